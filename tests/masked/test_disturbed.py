"""Masked predictions of which a party drops out, or is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.masked.predictions import implied_scores, scores_of, trained
from tests.pivodl.federations import transparent
from tests.pivodl.jobs import DEEP, fitting
from tests.simulator import Message, finished
from tests.worlds import PARTIES, world
from treetap.protocols.prediction import predict_request

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
FIRST, RECIPIENT, LAST = PARTIES
HERE = fitting(world(30, (1, 1, 1), seed=25, fresh=6), DEEP)
#: Virtual seconds after which everybody who waited for a dead process has given up.
GIVEN_UP_S = 200.0


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
        killed = []

        def kill(message: Message) -> None:
            if (message.word, message.served) == ("add_shares", True) and not killed:
                killed.append(message)
                federation.kill(FIRST)
                federation.start(FIRST)

        federation.hook = kill
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
