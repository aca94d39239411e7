"""Parcels in a running job: who may send which, what a repeat does, and what becomes of gaps and surplus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from tests.replay import DIGEST, HERE, JOB, ORACLE, Conducted, Replay
from tests.simulator import COORDINATOR, Federation, run
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import Conflict, Malformed, OutOfOrder, Refused, UnknownJob
from treetap.party.growth.messages import (
    child_messages,
    drawn_messages,
    space_messages,
    take_children,
    take_drawn,
    take_spaces,
)
from treetap.party.node import PartyNode
from treetap.party.runtime.mailbox import Mailbox, expected_of
from treetap.protocols.messages import JobSizes, Members, MessageRow, each_round, to_label_holder
from treetap.wire.frame import PATHS, filled, name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
KINDS = list(PATHS[exchange_pb2.PeerMessage])
#: Every party sends these to every other: lists of psi go around, noise is told to all.
FROM_ALL = {"blinded_ids", "noised_sums"}


def parcel(
    kind: str = "gradients", part: int = 0, *, last: bool = False, job: str = "job", attempt: int = 1, content: int = 0
) -> exchange_pb2.PeerMessage:
    """A parcel of a tree that the job does not have; `content` makes gradients differ."""
    made = exchange_pb2.PeerMessage(job=job, attempt=attempt, job_digest=DIGEST, round=9, part=part, last=last)
    filled(made, kind)
    if content:
        made.protocol.boosting.gradients.ciphertexts = bytes([content]) * 10
    return made


async def _unknown(node: PartyNode, caller: str, message: exchange_pb2.PeerMessage) -> str:
    """The text of a refusal that denies the job."""
    with pytest.raises(UnknownJob) as failure:
        await node.deliver(caller, message)
    return str(failure.value)


async def test_only_members_reach_a_running_job(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """Strangers, unknown jobs, attempts that are over or not prepared, and empty parcels are refused by name."""
    federation = Federation(tmp_path, HERE.tables)
    node = federation.node(FEATURE)
    with pytest.raises(UnknownJob, match="feature-b holds no job 'job'; was it restarted"):
        await node.deliver(LABEL_HOLDER, parcel())
    await Replay(federation, jobs[0]).to(before="begin_tree")
    for stranger in (COORDINATOR, "operator", FEATURE, ""):
        missing, there = [await _unknown(node, stranger, parcel(job=job)) for job in ("another", "job")]
        assert missing.replace("another", "job") == there  # whether there is such a job is the members' business
    with pytest.raises(UnknownJob, match="feature-b holds no job 'other'"):
        await node.deliver(LABEL_HOLDER, parcel(job="other"))
    with pytest.raises(OutOfOrder, match="attempt 0 of job job is over: attempt 1 has begun"):
        await node.deliver(LABEL_HOLDER, parcel(attempt=0))
    with pytest.raises(UnknownJob, match="attempt 2 of job job has not been prepared here"):
        await node.deliver(LABEL_HOLDER, parcel(attempt=2))
    with pytest.raises(Malformed, match=f"a message of {LABEL_HOLDER} without content; is {LABEL_HOLDER} of another"):
        await node.deliver(LABEL_HOLDER, exchange_pb2.PeerMessage(job="job", attempt=1, job_digest=DIGEST))


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_parcel_is_filed_once_or_refused(kind: str, jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """A kind that the job has: the same parcel again is acknowledged, the same number with other content is a conflict.

    Every other kind, and all of a party that has none to send, is refused by its name.
    """

    federation = Federation(tmp_path, HERE.tables)
    await Replay(federation, jobs[0]).to(before="begin_tree")
    node = federation.node(FEATURE)
    expected = node._sessions["job"].context.mailbox._expected.get(kind)
    first, last = parcel(kind), parcel(kind, last=True)
    if expected is not None and LABEL_HOLDER in expected.senders:
        assert expected.row.times is not None
        rounds, stages = expected.row.times(expected.sizes, LABEL_HOLDER, FEATURE)
        for each in (first, last):
            each.round, each.stage, each.part = rounds[-1], max(stages), 100
        mailbox = node._sessions["job"].context.mailbox
        if (LABEL_HOLDER, kind, first.round, first.stage) in mailbox._series:  # of the set-up, which is done
            with pytest.raises(Conflict, match=f"{kind} part 100 from label-holder came after the last part"):
                await node.deliver(LABEL_HOLDER, first)
            return
        for _ in range(3):
            assert await node.deliver(LABEL_HOLDER, first) == exchange_pb2.Receipt()
        with pytest.raises(Conflict, match=f"{kind} part 100 from label-holder came again with other content"):
            await node.deliver(LABEL_HOLDER, last)
    else:
        with pytest.raises(Refused, match=f"{kind} of label-holder: this party receives"):
            await node.deliver(LABEL_HOLDER, first)
    if kind not in FROM_ALL:
        with pytest.raises(Refused, match=f"{kind} of feature-c: this party receives"):
            await node.deliver(OTHER, first)


async def test_a_flood_for_trees_that_will_never_be_takes_no_room(
    jobs: tuple[Conducted, Conducted], tmp_path: Path
) -> None:
    """A member that sends 100 parts of 1 MiB that no step reads: the mailbox keeps none of them."""
    federation = Federation(tmp_path, HERE.tables)
    replay = Replay(federation, jobs[0])
    await replay.to(before="begin_tree")
    node, refused = federation.node(FEATURE), 0
    content = bytes(1 << 20)
    for number in range(100):
        flood = parcel("gradients", part=number % 3)
        flood.round, flood.stage = number, number % 5
        flood.protocol.boosting.gradients.ciphertexts = content
        try:
            await node.deliver(LABEL_HOLDER, flood)
        except Refused:
            refused += 1
    held = node._sessions["job"].context.mailbox._senders[LABEL_HOLDER]
    assert refused == 100
    assert held.in_memory + held.in_file == 0


async def test_parcels_of_a_third_party_change_nothing(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """A member that sends what is not its to send is refused, and the model comes out as it would without it."""
    federation = Federation(tmp_path, HERE.tables)
    replay = Replay(federation, jobs[0])
    async for _ in replay.waves():
        if not replay.answers[FEATURE]:
            continue
        for tree in range(2):
            for level in range(2):
                for kind in set(KINDS) - FROM_ALL:
                    false = parcel(kind, last=True)
                    false.round, false.stage = tree, level
                    with pytest.raises(Refused, match=f"{kind} of feature-c"):
                        await federation.node(FEATURE).deliver(OTHER, false)
    assert_oracles_model(federation.states, ORACLE)


@pytest.mark.parametrize("take", ["spaces", "children"])
def test_the_nodes_of_a_level_have_no_more_records_than_there_are(take: str) -> None:
    """A peer that names every record in each of many nodes is refused before all of them take room."""
    total, nodes = 800, 40
    everything = np.arange(total)

    async def messages() -> AsyncIterator[exchange_pb2.PeerMessage]:
        spaces = space_messages(((node, everything) for node in range(nodes)), total)
        children = child_messages(((node, 0, everything) for node in range(nodes)), total)
        for kind, bodies in (("instance_spaces", spaces), ("children", children)):
            for body in bodies if kind.endswith(take) else ():
                yield filled(exchange_pb2.PeerMessage(), kind, body.body)

    async def taken() -> None:
        if take == "spaces":
            await take_spaces(messages(), total)
        else:
            _, children = await take_children(messages(), total)
            list(children)

    with pytest.raises(Malformed, match="the nodes of a level have more than the 800 records together"):
        run(taken())


def test_a_tree_draws_no_more_records_than_there_are() -> None:
    """A peer that says of every record that it was drawn sixty times is refused: each takes room and time."""
    total = 500

    async def messages() -> AsyncIterator[exchange_pb2.PeerMessage]:
        for body in drawn_messages(np.full(total, 60), total):
            yield filled(exchange_pb2.PeerMessage(), "sampled_records", body.body)

    with pytest.raises(Malformed, match="a tree draws more records than the 500 that there are"):
        run(take_drawn(messages(), total))


async def test_nothing_comes_after_the_last_part(tmp_path: Path) -> None:
    """A part beyond the last one is a conflict, in whichever order the two arrive."""
    box = Mailbox(60, tmp_path)
    row = MessageRow("gradients", to_label_holder, each_round, lambda _sizes, _series: 0)
    sizes = JobSizes(members=Members("coordinator", "c", ("a", "b")), rounds=10)
    box.expect(expected_of([row], "c", sizes))
    await box.file("a", parcel(part=1, last=True))
    with pytest.raises(Conflict, match="gradients part 2 from a came after the last part 1"):
        await box.file("a", parcel(part=2))
    await box.file("b", parcel(part=2))
    with pytest.raises(Conflict, match="gradients part 1 from b is marked as the last part, but a later one has come"):
        await box.file("b", parcel(part=1, last=True))


async def test_a_parcel_that_never_comes_ends_the_job_by_name(tmp_path: Path) -> None:
    """A gap in a series is silence: the job stops, says which parcels of whom were waited for, and can be resumed."""

    def renumbered(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "gradients" and to == FEATURE:
            parcel.part += 1  # the first one never comes
        return parcel

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = renumbered
    status = await federation.train(JOB)
    assert status.state == "interrupted"
    assert "waited 20 s for gradients of label-holder, in vain" in status.error
    federation.tamper = None
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)
