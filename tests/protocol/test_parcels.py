"""Parcels: who may send which, what a repeat does, and what becomes of gaps, surplus and floods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from party import mailbox as mailbox_module
from party.mailbox import Mailbox
from tests.protocol.replay import HERE, ORACLE, Conducted, Replay
from tests.protocol.worlds import PARTIES, assert_oracles_model
from tests.simulator import COORDINATOR, Federation, run
from treetap.errors import Conflict, Interrupted, Malformed, OutOfOrder, Refused, Silent, UnknownJob
from treetap.wire.v1 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
KINDS = [field.name for field in exchange_pb2.Parcel.DESCRIPTOR.oneofs_by_name["body"].fields]


def parcel(
    kind: str = "gradients", part: int = 0, *, last: bool = False, job: str = "job", attempt: int = 1, content: int = 0
) -> exchange_pb2.Parcel:
    """A parcel of a tree that the job does not have; `content` makes gradients differ."""
    made = exchange_pb2.Parcel(job=job, attempt=attempt, tree=9, part=part, last=last)
    getattr(made, kind).SetInParent()
    if content:
        made.gradients.ciphertexts = bytes([content]) * 10
    return made


def test_only_members_reach_a_running_job(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """Strangers, unknown jobs, attempts that are over or not prepared, and empty parcels are refused by name."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        node = federation.node(FEATURE)
        with pytest.raises(UnknownJob, match="feature-b holds no job 'job'; was it restarted"):
            await node.deliver(LABEL_HOLDER, parcel())
        await Replay(federation, jobs[0]).to(before="begin_tree")
        for stranger in (COORDINATOR, "operator", FEATURE, ""):
            with pytest.raises(Refused, match=f"{stranger} is not a party of job job"):
                await node.deliver(stranger, parcel())
        with pytest.raises(UnknownJob, match="feature-b holds no job 'other'"):
            await node.deliver(LABEL_HOLDER, parcel(job="other"))
        with pytest.raises(OutOfOrder, match="attempt 0 of job job is over: attempt 1 has begun"):
            await node.deliver(LABEL_HOLDER, parcel(attempt=0))
        with pytest.raises(UnknownJob, match="attempt 2 of job job has not been prepared here"):
            await node.deliver(LABEL_HOLDER, parcel(attempt=2))
        with pytest.raises(Malformed, match="a parcel without content; is the sender of another version"):
            await node.deliver(LABEL_HOLDER, exchange_pb2.Parcel(job="job", attempt=1))
        await federation.close()

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_parcel_is_filed_once(kind: str, jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """For every kind: the same parcel again is acknowledged, the same number with other content is a conflict."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await Replay(federation, jobs[0]).to(before="begin_tree")
        node = federation.node(FEATURE)
        for _ in range(3):
            assert await node.deliver(LABEL_HOLDER, parcel(kind)) == exchange_pb2.Receipt()
        with pytest.raises(Conflict, match=f"{kind} part 0 from label-holder came again with other content"):
            await node.deliver(LABEL_HOLDER, parcel(kind, last=True))
        assert await node.deliver(OTHER, parcel(kind, last=True)) == exchange_pb2.Receipt()  # a series of its own
        await federation.close()

    run(main())


def test_parcels_of_a_third_party_change_nothing(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """Series are told apart by who sent them: a member that sends what is not its to send is not heard."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        replay = Replay(federation, jobs[0])
        async for _ in replay.waves():
            if not replay.answers[FEATURE]:
                continue
            for tree in range(2):
                for level in range(2):
                    for kind in KINDS:
                        false = parcel(kind, last=True)
                        false.tree, false.level = tree, level
                        await federation.node(FEATURE).deliver(OTHER, false)
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())


async def _parts(series: AsyncIterator[exchange_pb2.Parcel], count: int | None = None) -> list[int]:
    found = []
    async for each in series:
        found.append(each.part)
        if len(found) == count:
            break
    return found


def test_a_series_comes_in_order_however_it_arrived() -> None:
    """Parts that overtook each other are handed out by number, up to the last."""

    async def main() -> None:
        box = Mailbox(60)
        reading = asyncio.ensure_future(_parts(box.series("a", "gradients", 9, 0)))
        for part in (2, 0, 3, 1):
            await box.file("a", parcel(part=part, last=part == 3))
            await asyncio.sleep(50)  # each parcel starts the silence anew
        assert await reading == [0, 1, 2, 3]

    run(main())


def test_a_gap_is_silence_that_names_what_is_missing() -> None:
    """A part that never comes ends the waiting after the agreed silence with the kind and the sender's name."""

    async def main() -> None:
        box = Mailbox(60)
        for part in (0, 2):
            await box.file("bank", parcel(part=part, last=part == 2))
        series = box.series("bank", "gradients", 9, 0)
        assert (await anext(series)).part == 0
        start = asyncio.get_running_loop().time()
        with pytest.raises(Silent, match="waited 60 s for gradients of bank, in vain"):
            await anext(series)
        assert asyncio.get_running_loop().time() - start == pytest.approx(60)

    run(main())


def test_nothing_comes_after_the_last_part() -> None:
    """A part beyond the last one is a conflict, in whichever order the two arrive."""

    async def main() -> None:
        box = Mailbox(60)
        await box.file("a", parcel(part=1, last=True))
        with pytest.raises(Conflict, match="gradients part 2 from a came after the last part 1"):
            await box.file("a", parcel(part=2))
        await box.file("b", parcel(part=2))
        with pytest.raises(Conflict, match="gradients part 1 from b says it is the last, a later one has come"):
            await box.file("b", parcel(part=1, last=True))

    run(main())


def test_a_flood_is_held_back_until_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A series over its limit keeps its sender waiting, never the part that is read next; repeats are filed once."""
    monkeypatch.setattr(mailbox_module, "UNREAD_LIMIT", 40)

    async def main() -> None:
        box = Mailbox(60)
        await box.file("a", parcel(part=1, content=1))
        await box.file("a", parcel(part=2, content=2))
        held = [asyncio.ensure_future(box.file("a", parcel(part=3, last=True, content=3))) for _ in range(2)]
        await asyncio.sleep(1)
        assert not any(task.done() for task in held)
        await box.file("a", parcel(part=0, content=4))  # what the reader needs is let in
        series = box.series("a", "gradients", 9, 0)
        assert await _parts(series) == [0, 1, 2, 3]
        await asyncio.gather(*held)

    run(main())


def test_a_sender_is_not_held_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody reads, the sender hears so after the silence, or at once when the job is left."""
    monkeypatch.setattr(mailbox_module, "UNREAD_LIMIT", 10)

    async def main() -> None:
        box = Mailbox(60)
        await box.file("a", parcel(part=1, content=1))
        with pytest.raises(Silent, match="waited 60 s for gradients to be read, in vain"):
            await box.file("a", parcel(part=2, content=2))
        held = asyncio.ensure_future(box.file("a", parcel(part=2, content=2)))
        waiting = asyncio.ensure_future(anext(box.series("b", "gradients", 9, 0)))
        await asyncio.sleep(1)
        await box.close()
        for task in (held, waiting):
            with pytest.raises(Interrupted, match="the job was left while waiting for gradients"):
                await task
        with pytest.raises(Interrupted, match="the job was left while waiting for gradients"):
            await anext(box.series("a", "gradients", 9, 0))

    run(main())


def test_a_stored_tree_is_forgotten_and_others_are_kept() -> None:
    """What is left of one tree goes, what came early for the next stays."""

    async def main() -> None:
        box = Mailbox(1)
        for tree in (0, 1):
            early = parcel(last=True)
            early.tree = tree
            await box.file("a", early)
        box.forget(0)
        assert await _parts(box.series("a", "gradients", 1, 0)) == [0]
        with pytest.raises(Silent):
            await _parts(box.series("a", "gradients", 0, 0))

    run(main())
