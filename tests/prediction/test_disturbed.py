"""Predictions of every protocol whose processes are killed, or whose network is bad: their files are the same."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.small_jobs import PREDICTIONS, begin, play, wrong
from tests.needs import needs_library_of
from tests.runtime.test_kill_and_resume import GIVEN_UP_S, REAL
from tests.simulator import COORDINATOR, Faults, Federation, Message
from tests.worlds import PARTIES
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")

#: A message in so many is one at which a process is killed.
EVERY = {"eini": 2, "per-tree": 7, "masked": 5, "network": 3}
STORIES = (*PREDICTIONS, *({"network"} - set(PREDICTIONS)))


def _assert_same(federation: Federation, story: str, status: jobs_pb2.JobStatus, whole: jobs_pb2.JobStatus) -> None:
    """The scores are the oracle's; explanations and attributions are those of an undisturbed prediction."""
    assert (status.state, status.error) == ("finished", "")
    assert wrong(federation, story, status.job) == ""
    folder = federation.state(PARTIES[0]) / "predictions"
    own, of_whole = (sorted(p.name.removeprefix(job) for p in folder.glob(f"{job}.*")) for job in (status.job, "whole"))
    assert own == of_whole
    if whole.explanations:
        assert pq.read_table(status.explanations) == pq.read_table(whole.explanations)
    if whole.attributions:
        found, expected = pq.read_table(status.attributions), pq.read_table(whole.attributions)
        for name in expected.column_names[1:]:
            np.testing.assert_allclose(found.column(name), expected.column(name), rtol=0, atol=1e-9)


@pytest.mark.second_tier
@pytest.mark.parametrize(("story", "turn"), [*((story, 0) for story in STORIES), *product(["interactive"], (1, 2, 3))])
async def test_killed_at_a_message_it_is_resumed(story: str, turn: int, tmp_path: Path) -> None:
    """Victims take turns, and are back at once or after a while; no key and no mask is ever on a disk."""
    needs_library_of("splitnn" if story == "network" else story)

    federation = begin(tmp_path, story)
    before = len(federation.log)
    whole = await play(federation, story, "whole")
    _assert_same(federation, story, whole, whole)
    for offset in range(0, len(federation.log) - before, EVERY.get(story, 1)):
        job, victim = f"p{offset}", (*PARTIES, COORDINATOR)[(offset + turn) % 4]
        moment, killed = (len(federation.log) + offset, offset % 3 == 0), list[Message]()

        def hook(
            message: Message,
            victim: str = victim,
            moment: tuple[int, bool] = moment,
            killed: list[Message] = killed,
            back_at_once: bool = offset % 2 == 0,
        ) -> None:
            if not killed and message.number >= moment[0] and message.served == moment[1]:
                killed.append(message)
                federation.kill(victim)
                if back_at_once:
                    federation.start(victim)

        federation.hook = hook
        with ciphers(KeysMade(), transparent=offset % REAL != 0):
            status = await play(federation, story, job)
            assert not [*tmp_path.rglob("secret*"), *tmp_path.rglob("*mask*")]
            if not federation.alive(victim):
                await asyncio.sleep(GIVEN_UP_S)
                federation.start(victim)
            if status.state != "finished":
                assert status.state == "interrupted", status.error
                status = await federation.resume(job)
        assert killed
        _assert_same(federation, story, status, whole)


@pytest.mark.parametrize("story", [pytest.param(name, marks=pytest.mark.second_tier(but=1)) for name in STORIES])
async def test_a_bad_network_changes_nothing(story: str, tmp_path: Path) -> None:
    """Lost, late and doubled messages."""
    needs_library_of("splitnn" if story == "network" else story)

    federation = begin(tmp_path, story)
    whole = await play(federation, story, "whole")
    federation.faults = Faults(seed=3, drop=0.1, lose_reply=0.1, double=0.1, delay_s=0.5, late_s=3.0)
    for number in range(2):
        _assert_same(federation, story, await play(federation, story, f"p{number}"), whole)
