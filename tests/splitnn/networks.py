"""Federations of networks, and how their weights are compared with those of the same training in one graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.simulator import Federation
from tests.splitnn.jobs import EMITS
from tests.worlds import PARTIES, World, spec
from treetap.models.store import read_weights
from treetap.neural.centralised import CentralNetwork, central_network
from treetap.neural.defences import LabelDefences
from treetap.neural.inputs import InputScaler
from treetap.neural.params import SplitnnParams
from treetap.party.defences.settings import Defences
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table
from treetap.wire.v2 import jobs_pb2

Weights = dict[str, dict[str, np.ndarray[Any, np.dtype[Any]]]]


def federation(folder: Path, here: World, **options: Any) -> Federation:
    """A federation whose policies permit reproducible networks."""
    return Federation(folder, here.tables, **{"policies": EMITS, **options})


async def trained(folder: Path, here: World, params: SplitnnParams, **options: Any) -> jobs_pb2.JobStatus:
    """Train in a federation; returns the status of the job."""
    running = federation(folder, here, **options)
    try:
        return await running.train(spec(params, parties=len(here.tables)))
    finally:
        await running.close()


def tables_of(folder: Path, here: World, name: str = "train") -> list[tuple[str, Table]]:
    """The parties' tables of a world as they read them, the label holder's first, without labels."""
    found = []
    for party, (columns, _) in here.tables.items():
        config = TableConfig(path=folder / party / f"{name}.parquet", id="id", columns=columns)
        found.append((party, read_table(config, with_label=False, missing=None)))
    return found


def oracle(
    folder: Path,
    here: World,
    params: SplitnnParams,
    defences: Defences | LabelDefences | None = None,
    of_columns: Mapping[str, Defences] | None = None,
) -> tuple[CentralNetwork, dict[str, InputScaler]]:
    """The network that a federation which wrote its tables below `folder` must find, trained.

    `defences`: the label holder's; `of_columns`: those of feature parties, by name.
    """
    found = defences.of_networks if isinstance(defences, Defences) else defences
    columns = {party: each.of_columns for party, each in (of_columns or {}).items()}
    network, scalers = central_network(tables_of(folder, here), here.y, here.classes, params, found, columns)
    return network.train(), scalers


def oracle_scores(folder: Path, here: World, params: SplitnnParams, *away: str) -> Any:
    """The oracle's scores (n, K) of the new records, in the order of their ids, without the parties that are away."""
    network, scalers = oracle(folder, here, params)
    inputs = {name: scalers[name].apply(table) for name, table in tables_of(folder, here, "predict") if name in scalers}
    return network.scores(inputs, np.arange(len(here.new[0]), dtype=np.int64), frozenset(away))


def published(folder: Path, here: World, job: str = "job") -> Weights:
    """The weights of all parties' published models; `DataError` if a model is not there or damaged."""
    return {party: read_weights(folder / party / "state" / "models" / job)[1] for party in here.tables}


def assert_same_bits(found: Weights, expected: Weights) -> None:
    """All weights of all parties are equal, bit by bit."""
    assert {party: sorted(each) for party, each in found.items()} == {
        party: sorted(each) for party, each in expected.items()
    }
    for party, weights in expected.items():
        for name, values in weights.items():
            assert found[party][name].tobytes() == values.tobytes(), f"{party}: {name}"


__all__ = [
    "PARTIES",
    "Weights",
    "assert_same_bits",
    "federation",
    "oracle",
    "oracle_scores",
    "published",
    "tables_of",
    "trained",
]
