"""Masked predictions that are disturbed, and what is seen of them.

- Masked predictions of which a party drops out, or is killed.
- A record's value moves across a threshold: who reads a masked prediction's messages can tell by bits alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.blindness.comparison import between_parties, of_coordinator
from tests.blindness.observed import Crossed, Observed, observed, with_cell
from tests.masked.predictions import implied_scores, scores_of, trained
from tests.pivodl.federations import job_of, transparent
from tests.pivodl.jobs import DEEP, fitting, policies
from tests.simulator import Message, finished, run
from tests.worlds import PARTIES, world
from treetap.protocols.prediction import predict_request

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")

FIRST, RECIPIENT, LAST = PARTIES
HERE = fitting(world(30, (1, 1, 1), seed=25, fresh=6), DEEP)
#: Virtual seconds after which everybody who waited for a dead process has given up.
GIVEN_UP_S = 200.0
N = 30
SEEN = fitting(world(N, (1, 1, 1), seed=25, fresh=6), DEEP)
RECORD = f"r{N + 1:05d}"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("word", ["exchange_mask_keys", "pass_records", "send_shares"])
@pytest.mark.parametrize("policy", ["fail", "retry"])
async def test_a_party_that_drops_out_is_named(policy: str, word: str, tmp_path: Path) -> None:
    """Without its share there is no sum: the error names it, no file is written; retry gives it up later."""
    with transparent():
        federation = await trained(tmp_path, HERE, DEEP)
        expected = implied_scores(federation.states, HERE)

        def kill(message: Message) -> None:
            if (message.word, message.to) == (word, LAST) and federation.alive(LAST):
                federation.kill(LAST)

        federation.hook = kill
        more = {"away_policy": policy, "away_deadline_s": 5.0 if policy == "retry" else 0.0}
        request = predict_request(model="job", job="p", block=3, **more)
        status = await federation.predict(request)
        assert status.state == "interrupted"
        assert LAST in status.error
        assert not list((federation.state(FIRST) / "predictions").iterdir())
        federation.hook = None
        await asyncio.sleep(GIVEN_UP_S)
        federation.start(LAST)
        status = finished(await federation.resume("p"))
        assert (scores_of(status.predictions) == expected).all()


@pytest.mark.second_tier
async def test_an_attempt_has_masks_of_its_own(tmp_path: Path) -> None:
    """A block that is scored again after a kill has other masks; within an attempt a share is sent once."""
    with transparent():
        federation = await trained(tmp_path, HERE, DEEP)
        federation.kill_at(FIRST, lambda each: (each.word, each.served) == ("add_shares", True), back=True)
        status = await federation.predict(predict_request(model="job", job="p"))
        if status.state != "finished":
            status = await federation.resume("p")
        assert (status.state, status.error) == ("finished", "")
        shares = {
            (sender, message.attempt): message.protocol.masked.score_shares.values
            for sender, _, step, message in federation.crossed
            if step == "score_shares"
        }
        assert {attempt for _, attempt in shares} == {1, 2}
        for sender in (RECIPIENT, LAST):
            first, second = (np.frombuffer(shares[sender, attempt], dtype="<u8") for attempt in (1, 2))
            assert not np.isin(first, second).any()


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks of a federation after the training."""
    folder = tmp_path_factory.mktemp("trained") / "federation"

    async def main() -> None:
        await trained(folder, SEEN, DEEP)

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
        tables = with_cell(SEEN, mover, "predict", RECORD, value)
        runs.append(observed(tmp_path / "f", tables, _predict, trained=disks, policies=policies(job_of(SEEN, DEEP))))
    (crossed, found), (others, other) = runs
    assert found != other
    assert of_coordinator(crossed) == of_coordinator(others)
    assert between_parties(crossed) == between_parties(others)
    lengths = [
        [(sender, to, step, message.ByteSize()) for sender, to, step, message in each if step != "account"]
        for each in (crossed, others)
    ]
    assert lengths[0] == lengths[1]
