"""Refusals of the label holder where a defence of the label makes values of leaves depend on its own columns.

Entries of the manifest: `treetap.models.store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from party.config import PartyConfig
from treetap.errors import ConfigError
from treetap.models.store import HIDES_CONSTANTS, VALUES
from treetap.protocols.exclusions import PREDICTIONS, Feature, broken
from treetap.protocols.prediction import features_of
from treetap.wire.v2 import prediction_pb2


def check_private_values(manifest: Mapping[str, Any], config: PartyConfig, opening: prediction_pb2.OpenModel) -> None:
    """`ConfigError` listing all that is asked of a model and would show such values; other models pass.

    Scores of repaired trees depend on clean labels, which no feature party may compare with the noisy ones that it has
    seen.
    """
    faults, model = list[str](), opening.model
    if manifest.get(HIDES_CONSTANTS):
        rows = broken(PREDICTIONS, features_of(opening) | {Feature.HIDDEN_VALUES})
        faults += [f"model {model}: {row}" for row in rows]
    if manifest.get(VALUES) and opening.serve and config.serve is not None:
        named = [name for name in config.serve.clients if name in manifest["feature_parties"]]
        if named:
            faults.append(
                f"serve.clients names {', '.join(named)}, a feature party of model {model}, whose scores depend on the "
                "labels that noise hid from it: take it out, or serve a model without grafting and refit"
            )
    if faults:
        raise ConfigError("\n".join(faults), party=config.name)
