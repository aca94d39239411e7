"""A record's value moves across a threshold: who reads a masked prediction's messages can tell by bits alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.blindness.comparison import between_parties, of_coordinator
from tests.blindness.observed import Crossed, Observed, observed, with_cell
from tests.masked.predictions import trained
from tests.pivodl.federations import job_of, transparent
from tests.pivodl.jobs import DEEP, fitting, policies
from tests.simulator import finished, run
from tests.worlds import PARTIES, world
from treetap.protocols.prediction import predict_request

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
N = 30
HERE = fitting(world(N, (1, 1, 1), seed=25, fresh=6), DEEP)
RECORD = f"r{N + 1:05d}"


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks of a federation after the training."""
    folder = tmp_path_factory.mktemp("trained") / "federation"

    async def main() -> None:
        await trained(folder, HERE, DEEP)

    with transparent():
        run(main())
    return folder


async def _predict(federation: Observed) -> Any:
    status = finished(await federation.predict(predict_request(model="job", job="p", block=3, recipient=PARTIES[1])))
    return pq.read_table(status.predictions).to_pylist()


@pytest.mark.second_tier
@pytest.mark.parametrize("mover", PARTIES)
def test_a_value_that_crosses_a_threshold_shows_to_nobody_but_by_its_bits(
    mover: str, disks: Path, tmp_path: Path
) -> None:
    """The coordinator receives the same bytes; peers messages of the same number and length, to the byte."""
    runs: list[tuple[list[Crossed], Any]] = []
    for value in (-9.0, 9.0):
        tables = with_cell(HERE, mover, "predict", RECORD, value)
        runs.append(observed(tmp_path / "f", tables, _predict, trained=disks, policies=policies(job_of(HERE, DEEP))))
    (crossed, found), (others, other) = runs
    assert found != other
    assert of_coordinator(crossed) == of_coordinator(others)
    assert between_parties(crossed) == between_parties(others)
    lengths = [
        [(sender, to, step, message.ByteSize()) for sender, to, step, message in each if step != "account"]
        for each in (crossed, others)
    ]
    assert lengths[0] == lengths[1]
