"""A small job of a network that campaigns play: two epochs of two batches, of which a party may sit some out.

Importing it imports no PyTorch; see `INSTALLED`.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow.parquet as pq

from tests.replay import HERE
from tests.splitnn.jobs import PARAMS as LARGER
from tests.worlds import PARTIES, spec
from treetap.models.store import read_weights
from treetap.neural.params import DEFAULT, Bottom, Top
from treetap.protocols.libraries import missing_library
from treetap.protocols.registry import training

#: True if the library that networks need is there.
INSTALLED = not missing_library("splitnn", training("splitnn"))
PARAMS = replace(
    LARGER, batch_size=8, bottom={DEFAULT: Bottom(width=2)}, top=Top((2,)), party_dropout={PARTIES[1]: 0.4}
)
JOB = spec(PARAMS)


@cache
def _in_one_graph() -> dict[str, dict[str, npt.NDArray[Any]]]:
    """The weights of all parties."""
    from tests.splitnn.networks import oracle

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for party, (_, tables) in HERE.tables.items():
            (folder / party).mkdir()
            pq.write_table(tables["train"], folder / party / "train.parquet")
        network, _ = oracle(folder, HERE, PARAMS)
    return network.weights()


def assert_network(states: dict[str, Path], job: str = "job") -> None:
    """The published weights are those of one graph, bit by bit; `DataError` if a file of a model is damaged."""
    for party, weights in _in_one_graph().items():
        _, found = read_weights(states[party] / "models" / job)
        assert sorted(found) == sorted(weights), f"{party} has other weights"
        for name, values in weights.items():
            assert found[name].tobytes() == values.tobytes(), f"{party}: {name} differs"
