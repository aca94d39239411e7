"""A cell by a federation of processes under mutual TLS, its weights beside those of the centralised code."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from network_cells import Cell, Scale
from network_sets import FEATURE, HOLDER, PARTIES, config_of, files_of
from network_settings import defences_of, params_of
from network_trainings import network_of, split_for

from treetap.commands.local_federation import LocalFederation, clean_end, working_folder
from treetap.errors import BadInput, TreetapError
from treetap.models.arrays import read_arrays
from treetap.models.store import WEIGHTS
from treetap.protocols.job_spec import check_spec, put_params
from treetap.wire.v2 import jobs_pb2, setup_pb2

_EMITTED = {HOLDER: "EMBEDDING_GRADIENT", FEATURE: "EMBEDDING"}


def compared(cell: Cell, scale: Scale) -> dict[str, Any]:
    """Train a cell in both ways: the largest difference of a weight, and seconds.

    Raises:
        BadInput: the cell has labels or a party's optimiser that the centralised code draws or sets in its own way.
        TreetapError: the federation has failed.
    """
    if cell.label_dp or cell.amplified or not cell.random_labels:
        raise BadInput(f"{cell.name()}: only dropout and defences of gradients are compared with a federation")
    params, split = params_of(cell, epochs=scale.epochs, resnet=scale.resnet), split_for(cell, scale)
    begun = time.monotonic()
    expected = network_of(cell, params, split, split.labels["train"]).train().weights()
    alone = time.monotonic() - begun
    spec = setup_pb2.JobSpec(table="train", aggregator=HOLDER, feature_parties=[FEATURE], alignment="sorted-ids")
    put_params(spec, params)
    check_spec(spec)
    with (
        clean_end(),
        working_folder(None, "treetap-") as folder,
        LocalFederation(folder, _settings(cell, scale)) as here,
    ):
        begun = time.monotonic()
        name = here.operator.submit(jobs_pb2.SubmitRequest(job="network", spec=spec))
        status = here.operator.watch(name, lambda _: None)
        if status.state != "finished":
            raise TreetapError(status.error or status.state)
        spent = time.monotonic() - begun
        found = {party: read_arrays(here.state(party) / "models" / name / WEIGHTS) for party in PARTIES}
    difference, equal = 0.0, True
    for party, weights in expected.items():
        for key, values in weights.items():
            difference = max(
                difference, float(np.abs(found[party][key].astype(np.float64) - values.astype(np.float64)).max())
            )
            equal = equal and found[party][key].tobytes() == values.tobytes()
    return {
        "equal": equal,
        "difference": difference,
        "seconds": spent,
        "centralised_seconds": alone,
    }


def _settings(cell: Cell, scale: Scale) -> dict[str, dict[str, Any]]:
    folder = files_of(cell.set, cell.seed, scale.most, turns=cell.turns)
    settings: dict[str, dict[str, Any]] = {}
    for party in PARTIES:
        tables = {"train": config_of(folder, party, "train").model_dump(mode="json", exclude_none=True)}
        policy = {
            "emits": {_EMITTED[party]: ["parties"]},
            "reproducible": True,
            "min_common_records": 1,
            "record": "off",
        }
        settings[party] = {"policy": policy, "tables": tables}
    if (defences := _defences(cell)) is not None:
        settings[HOLDER]["defences"] = defences
    return settings


def _defences(cell: Cell) -> dict[str, Any] | None:
    """The defences of the label holder's file."""
    wanted = defences_of(cell)
    found: dict[str, Any] = {"dimip": dict(wanted.dimip)} if wanted.dimip else {}
    if wanted.gradient is not None:
        found["gradient"] = {name: value for name, value in vars(wanted.gradient).items() if value}
    return found or None
