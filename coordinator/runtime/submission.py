"""A submission in the journal: the message that specifies the job, and its version of the wire."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from treetap.errors import Incompatible
from treetap.protocols.registry import prediction_name, training_name
from treetap.version import WIRE_VERSION
from treetap.wire.v1 import convert
from treetap.wire.v2 import prediction_pb2, setup_pb2

M = TypeVar("M", setup_pb2.JobSpec, prediction_pb2.OpenModel)


@dataclass(frozen=True)
class Submitted:
    """A submitted job.

    Attributes:
        kind: train, predict or serve, which is also the command.
        submission: the nonce by which parties distinguish this job from another one of the same name.
        wire: the version of the wire in which the job was begun.
        checked: the journal's lines have checksums; earlier releases wrote none.
    """

    job: str
    kind: str
    submission: str
    wire: int
    checked: bool
    _content: str

    @property
    def spec(self) -> setup_pb2.JobSpec:
        """The specification of a training."""
        return self._opened(setup_pb2.JobSpec)

    @property
    def opening(self) -> prediction_pb2.OpenModel:
        """The opening of a prediction or of serving."""
        return self._opened(prediction_pb2.OpenModel)

    @property
    def protocol(self) -> str:
        """The name of its protocol; empty where this release cannot read the submission."""
        if self.later:
            return ""
        return training_name(self.spec) if self.kind == "train" else prediction_name(self.opening)

    @property
    def members(self) -> list[str]:
        """The job's parties, its aggregator or recipient first."""
        if self.kind == "train":
            return [self.spec.aggregator, *self.spec.feature_parties]
        return [self.opening.recipient, *self.opening.feature_parties]

    @property
    def later(self) -> bool:
        """True if a later release began the job."""
        return self.wire > WIRE_VERSION

    @property
    def outdated(self) -> str:
        """The reason why the job cannot continue, and the remedy; empty for a job of this version."""
        if self.wire == WIRE_VERSION and self.checked:
            return ""
        other = f"treetap cancel {self.job}, then treetap {self.kind} under another name"
        if self.wire == WIRE_VERSION:
            return (
                f"job {self.job} was begun by an earlier release, which wrote no checksums, and this one cannot go on "
                f"with it: {other}"
            )
        if self.later:
            return (
                f"job {self.job} was begun in version {self.wire} of the wire, this is {WIRE_VERSION}: install the "
                "release that began it, or a later one"
            )
        return (
            f"job {self.job} was begun in version {self.wire} of the wire, and version {WIRE_VERSION} cannot go on "
            f"with it: {other}"
        )

    def _opened(self, kind: type[M]) -> M:
        content = base64.b64decode(self._content)
        if self.wire == WIRE_VERSION:
            return kind.FromString(content)
        if self.wire != 1:
            raise Incompatible(self.outdated)
        found = convert.upgraded(f"{convert.PACKAGE}{kind.DESCRIPTOR.name}", content)
        assert isinstance(found, kind)
        return found


def submitted_in(job: str, line: Mapping[str, Any], *, checked: bool) -> Submitted:
    """The submission in a line of the journal.

    A line without a version is of version 1, which wrote "word" for "submission".
    """
    kind, wire = line["kind"], line.get("wire", 1)
    submission = line["word" if wire == 1 else "submission"]
    return Submitted(job, kind, submission, wire, checked, line[content_key(kind)])


def content_key(kind: str) -> str:
    """The key of the message of a job of this kind."""
    return "spec" if kind == "train" else "opening"


def new_submission() -> str:
    """A nonce that distinguishes a submission of a job from another one of the same name."""
    return str(secrets.randbits(64))
