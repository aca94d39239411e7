"""Refusals of the label holder where a defence of the label makes values of leaves depend on its own columns.

Entries of the manifest: `treetap.models.store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from party.config import PartyConfig
from treetap.errors import ConfigError
from treetap.models.store import HIDES_CONSTANTS, VALUES
from treetap.wire.v2 import prediction_pb2


def check_private_values(manifest: Mapping[str, Any], config: PartyConfig, opening: prediction_pb2.OpenModel) -> None:
    """`ConfigError` listing all that is asked of a model and would show such values; other models pass.

    Attributions divide values among the splits of the shape that all parties know. A degraded prediction weights by its
    covers, and which entries are constant would tell where values depend on the record. Scores of repaired trees depend
    on clean labels, which no feature party may compare with the noisy ones that it has seen.
    """
    faults, model = [], opening.model
    if manifest.get(HIDES_CONSTANTS):
        why = f"the leaves of model {model} have values by {config.name}'s own columns, since a defence of the label"
        if opening.attributions:
            faults.append(f"attributions: {why} was on; leave them out")
        if opening.away_policy == "degrade":
            faults.append(f"away = 'degrade': {why} was on; use retry or fail")
    if manifest.get(VALUES) and opening.serve and config.serve is not None:
        named = [name for name in config.serve.clients if name in manifest["feature_parties"]]
        if named:
            faults.append(
                f"serve.clients names {', '.join(named)}, a feature party of model {model}, whose scores depend on the "
                "labels that noise hid from it: take it out, or serve a model without grafting and refit"
            )
    if faults:
        raise ConfigError("\n".join(faults), party=config.name)
