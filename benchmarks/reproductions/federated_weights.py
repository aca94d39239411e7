"""A training by a federation of processes under mutual TLS, its weights beside those of the centralised code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from divided_sets import config_of

from treetap.errors import TreetapError
from treetap.lab.local_federation import LocalFederation, clean_end, working_folder
from treetap.models.arrays import read_arrays
from treetap.models.store import WEIGHTS
from treetap.neural.centralised import CentralNetwork
from treetap.neural.params import SplitnnParams
from treetap.protocols.job_spec import check_spec, put_params
from treetap.wire.v2 import jobs_pb2, setup_pb2

Settings = dict[str, dict[str, Any]]


def party_settings(folder: Path, holder: str, features: Sequence[str]) -> Settings:
    """The configurations of the parties on the tables of a folder, without defences."""
    settings: Settings = {}
    for party in (holder, *features):
        own = party == holder
        table = config_of(folder, party, "train", labelled=own).model_dump(mode="json", exclude_none=True)
        policy = {
            "emits": {"EMBEDDING_GRADIENT" if own else "EMBEDDING": ["parties"]},
            "networks": {"reproducible": True},
            "columns": {"min_common_records": 1},
            "people": {"record": "off"},
        }
        settings[party] = {"policy": policy, "tables": {"train": table}}
    return settings


def compared(network: CentralNetwork, params: SplitnnParams, settings: Settings) -> dict[str, Any]:
    """Train in both ways: the largest difference of a weight, and seconds.

    Args:
        network: not yet trained; its label holder is the first party of `settings`.

    Raises:
        TreetapError: the federation has failed.
    """
    begun = time.monotonic()
    expected = network.train().weights()
    alone = time.monotonic() - begun
    holder, *features = settings
    spec = setup_pb2.JobSpec(table="train", aggregator=holder, feature_parties=features, alignment="sorted-ids")
    put_params(spec, params)
    check_spec(spec)
    with clean_end(), working_folder(None, "treetap-") as folder, LocalFederation(folder, settings) as here:
        begun = time.monotonic()
        name = here.operator.submit(jobs_pb2.SubmitRequest(job="network", spec=spec))
        status = here.operator.watch(name, lambda _: None)
        if status.state != "finished":
            raise TreetapError(status.error or status.state)
        spent = time.monotonic() - begun
        found = {party: read_arrays(here.state(party) / "models" / name / WEIGHTS) for party in settings}
    return {**_difference(expected, found), "seconds": spent, "centralised_seconds": alone}


def _difference(expected: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    difference, equal = 0.0, True
    for party, weights in expected.items():
        for key, values in weights.items():
            there = found[party][key]
            difference = max(difference, float(np.abs(there.astype(np.float64) - values.astype(np.float64)).max()))
            equal = equal and there.tobytes() == values.tobytes()
    return {"equal": equal, "difference": difference}
