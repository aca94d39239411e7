"""A submission in the journal: the message that specifies the job, and the version of the protocol that it is of."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treetap.protocols.registry import prediction_name, training_name
from treetap.version import PROTOCOL_VERSION
from treetap.wire.v2 import prediction_pb2, setup_pb2


@dataclass(frozen=True)
class Submitted:
    """A submitted job.

    Attributes:
        kind: train, predict or serve, which is also the command.
        submission: the nonce by which parties distinguish this job from another one of the same name.
    """

    job: str
    kind: str
    submission: str
    _content: str

    @property
    def spec(self) -> setup_pb2.JobSpec:
        """The specification of a training."""
        return setup_pb2.JobSpec.FromString(base64.b64decode(self._content))

    @property
    def opening(self) -> prediction_pb2.OpenModel:
        """The opening of a prediction or of serving."""
        return prediction_pb2.OpenModel.FromString(base64.b64decode(self._content))

    @property
    def protocol(self) -> str:
        """The name of its protocol."""
        return training_name(self.spec) if self.kind == "train" else prediction_name(self.opening)

    @property
    def members(self) -> list[str]:
        """The job's parties, its aggregator or recipient first."""
        if self.kind == "train":
            return [self.spec.aggregator, *self.spec.feature_parties]
        return [self.opening.recipient, *self.opening.feature_parties]


def submitted_in(job: str, line: Mapping[str, Any]) -> Submitted:
    """The submission in a line of the journal, of this version of the protocol."""
    return Submitted(job, line["kind"], line["submission"], line[content_key(line["kind"])])


def other_version(line: Mapping[str, Any]) -> str:
    """The reason why a submission cannot be read, and the remedy; empty for one of this version."""
    if line["wire"] == PROTOCOL_VERSION:
        return ""
    return (
        f"was begun in version {line['wire']} of the protocol, and this release reads version {PROTOCOL_VERSION} "
        "alone: install the release that began it"
    )


def content_key(kind: str) -> str:
    """The key of the message of a job of this kind."""
    return "spec" if kind == "train" else "opening"


def new_submission() -> str:
    """A nonce that distinguishes a submission of a job from another one of the same name."""
    return str(secrets.randbits(64))
