"""A federation that serves, and clients who ask it, under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.oracle import oracle_predict
from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation
from tests.worlds import PARTIES, lattice_tolerance
from treetap.party.config import ServeConfig
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import jobs_pb2, serving_pb2

LABEL_HOLDER, B, C = PARTIES
CLIENT = "app"
#: Ids of the new records, sorted, and their scores as the oracle has them.
IDS = [f"r{16 + i:05d}" for i in range(6)]
EXACT: npt.NDArray[np.float64] = np.array(oracle_predict(ORACLE, HERE.newcomers))[:, 0]
WAYS: dict[str, dict[str, Any]] = {
    "interactive": {"protocol": "interactive"},
    "per-tree": {"protocol": "interactive", "form": "per-tree"},
    "eini": {"protocol": "eini", "key_bits": 1024},
    "eini-lattice": {"protocol": "eini-lattice"},
}


def tolerance(way: str) -> float:
    """How far a score may be from the oracle's."""
    return float(lattice_tolerance(ORACLE)[0]) if way == "eini-lattice" else 1e-9


#: Seconds within which a small federation serves.
SOON_S = 60.0


def config(**changes: Any) -> ServeConfig:
    """Whom the label holder answers."""
    return ServeConfig(**{"clients": [CLIENT], "listen": "127.0.0.1:0", **changes})


def ask(federation: Federation, *ids: str, client: str = CLIENT, **more: Any) -> asyncio.Future[Any]:
    """A client's request, under way."""
    within = more.pop("within_s", None)
    request = serving_pb2.PredictRecords(ids=ids, **more)
    return asyncio.ensure_future(federation.node(LABEL_HOLDER).served_models.predict(client, request, within))


async def expect(federation: Federation, requests: int) -> None:
    """Have the next round wait for so many requests, as long as the window at most: a round answers as many."""
    await asyncio.gather(*(ask(federation, IDS[0]) for _ in range(requests)))


async def phase(federation: Federation, job: str, wanted: str) -> jobs_pb2.JobStatus:
    """Wait until a job is in a phase, or does not run any more."""
    async with asyncio.timeout(SOON_S):
        while True:
            (status,) = federation.jobs.status(job)
            if status.phase == wanted or status.state != "running":
                return status
            await asyncio.sleep(0.05)


async def serve(federation: Federation, job: str = "s", **asked: Any) -> None:
    """Begin to serve the trained model, and wait until that is so."""
    given: dict[str, Any] = {"model": "job", "job": job, "serve": True, **asked}
    federation.jobs.submit(predict_request(**given))
    status = await phase(federation, job, "serve")
    assert (status.state, status.error) == ("running", "")
    await asyncio.sleep(0.5)  # the first wait for requests has begun


@asynccontextmanager
async def serving(
    folder: Path, asked: dict[str, Any], tables: Any = None, policies: Any = None, **changes: Any
) -> AsyncIterator[Federation]:
    """A federation whose label holder serves the model of `tests.replay`; ended in good order."""
    federation = Federation(folder, tables or HERE.tables, serve={LABEL_HOLDER: config(**changes)}, policies=policies)
    assert (await federation.train(JOB)).state == "finished"
    await serve(federation, **asked)
    yield federation
    await federation.close()


def scores(answers: Sequence[serving_pb2.PredictedRecords]) -> list[float]:
    """The raw scores of answers about one record each."""
    return [answer.predictions[0].scores[0] for answer in answers]


def without(tables: Any, party: str, ids: Sequence[str]) -> Any:
    """The same tables, but a party lacks some of the new records."""
    columns, own = tables[party]
    keep = pa.compute.invert(pa.compute.is_in(own["predict"].column("id"), pa.array(ids)))
    return {**tables, party: (columns, {**own, "predict": own["predict"].filter(keep)})}
