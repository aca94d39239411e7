"""Cases of altered messages: all messages of small jobs that nothing disturbs, and all changes of each.

Every message that processes send each other is among them: those between parties, steps that the coordinator asks for,
their events, what an operator orders and what a client asks. Changes come from descriptors (`boundaries`).
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from google.protobuf.message import Message

from tests.campaign.boundaries import Change, changes
from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, SERVED, TRAININGS, B, begin, play, trained, training_of
from tests.pivodl.small_job import nonces
from tests.replay import JOB, asked
from tests.serving.served import CLIENT, IDS
from tests.simulator import Federation, run
from tests.worlds import PARTIES
from treetap.shares import choice
from treetap.wire.frame import name_of
from treetap.wire.v2 import approvals_pb2, jobs_pb2, overview_pb2, serving_pb2

#: The jobs of which messages are altered.
STORIES = (*TRAININGS, *PREDICTIONS, *PREVIEWS, *SERVED, "operator", "client", "approver")
#: What an operator, a client and an approver ask, by word.
ORDERS: dict[str, Message] = {
    "Draft": jobs_pb2.DraftRequest(train=jobs_pb2.SubmitRequest(job="new", spec=JOB, submission="7")),
    "Submit": jobs_pb2.SubmitRequest(job="new", spec=JOB, submission="7"),
    "Check": jobs_pb2.SubmitRequest(job="new", spec=JOB),
    "Align": jobs_pb2.AlignRequest(job="new", answer="count", table="train", parties=PARTIES, submission="7"),
    "Predict": asked("new", "interactive"),
    "Status": jobs_pb2.StatusRequest(job="job"),
    "Watch": jobs_pb2.JobName(job="job"),
    "Cancel": jobs_pb2.JobName(job="job"),
    "Resume": jobs_pb2.JobName(job="job"),
    "Prune": jobs_pb2.PruneRequest(days=1.0),
}
QUESTIONS: dict[str, Message] = {
    "Predict": serving_pb2.PredictRecords(model="job", ids=IDS[:2]),
    "Describe": serving_pb2.DescribeModel(model="job"),
}
#: A standing approval of few words.
STANDING = 'name = "weekly"\nuntil = 2100-01-01\ncount = 1\ncoordinator = "c"\npartners = ["b"]\ntable = "t"\n'
DECISIONS: dict[str, Message] = {
    "Jobs": approvals_pb2.AskedJobs(name="job"),
    "Decide": approvals_pb2.DecideRequest(job="job", digest=bytes(32), approve=True, days=1.0, why="so"),
    "Stand": approvals_pb2.StandRequest(text=STANDING),
    "Standing": approvals_pb2.AskedJobs(name="weekly"),
    "Revoke": approvals_pb2.RevokeRequest(name="weekly"),
    "Show": overview_pb2.AskedView(view="ledger", page=1),
}
#: Story → way, sender, receiver, and what is asked.
ASKED: dict[str, tuple[str, str, str, dict[str, Message]]] = {
    "operator": ("order", "operator", "coordinator", ORDERS),
    "client": ("question", CLIENT, B, QUESTIONS),
    "approver": ("decision", "ann", B, DECISIONS),
}
#: (way, sender, receiver, message) → what arrives in its place.
Alter = Callable[[str, str, str, Message], Message]


class Place(NamedTuple):
    """A message of a story: which way it goes, who sends it to whom, its word, and how many such came before."""

    story: str
    way: str  #: message, request, event, order, question or decision
    sender: str
    to: str
    word: str
    nth: int


class Case(NamedTuple):
    """A message, and how it is altered."""

    place: Place
    change: Change


def intercept(federation: Federation, alter: Alter) -> None:
    """Have a function see, and alter, every message that arrives at a party, and every event that leaves it."""
    for party in federation.configs:
        node = federation.node(party)
        step, deliver = node.step, node.deliver

        async def altered_step(caller: str, request: Any, party: str = party, step: Any = step) -> AsyncIterator[Any]:
            async for event in step(caller, alter("request", caller, party, request)):
                yield alter("event", party, caller, event)

        async def altered_deliver(
            caller: str, message: Any, *_as_it_came: bytes, party: str = party, deliver: Any = deliver
        ) -> Any:
            return await deliver(caller, alter("message", caller, party, message))

        node.step, node.deliver = altered_step, altered_deliver  # type: ignore[method-assign]


def word_of(way: str, message: Any) -> str:
    """The word of a message that goes some way."""
    if way != "event":
        return name_of(message)
    return name_of(message.result) if message.HasField("result") else "progress"


@contextmanager
def the_same_opened() -> Iterator[None]:
    """Within the block the same parties open whose sums in every case, and all that a dealer deals is dealt again."""
    with nonces(0), patch.object(choice, "ONE_OF", 1):
        yield


@cache
def recorded(story: str) -> dict[Place, Message]:
    """Every message of a story that nothing disturbs."""
    if story in ASKED:
        way, sender, to, all_of = ASKED[story]
        return {Place(story, way, sender, to, word, 0): message for word, message in all_of.items()}
    found: dict[Place, Message] = {}
    counted: Counter[tuple[str, ...]] = Counter()

    def keep(way: str, sender: str, to: str, message: Message) -> Message:
        key = (way, sender, to, word_of(way, message))
        copy = type(message)()
        copy.CopyFrom(message)
        found[Place(story, *key, counted[key])] = copy
        counted[key] += 1
        return message

    trained(training_of(story))

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            federation = begin(Path(folder) / "here", story)
            intercept(federation, keep)
            status = await play(federation, story)
            assert status.state in ("finished", "cancelled"), status
            await federation.close()

    with the_same_opened():
        run(main())
    last = {place[:5]: place.nth for place in found}
    return {place: message for place, message in found.items() if place.nth in (0, last[place[:5]])}


@cache
def cases(story: str) -> tuple[Case, ...]:
    """Every case of a story: the first and the last message of each word between two processes, all its changes."""
    return tuple(Case(place, change) for place, message in recorded(story).items() for change in changes(message))


def drawn(count: int, seed: int = 0, stories: tuple[str, ...] = STORIES) -> list[Case]:
    """Cases by chance: each story as often as another, of it each message, of it each change; without repeats.

    `count`: 0 for all.
    """
    chance, found = random.Random(seed), {}
    places = {story: _by_place(story) for story in stories}
    whole = sum(len(cases(story)) for story in stories)
    count = count or whole
    while len(found) < min(count, whole):
        of = places[chance.choice(stories)]
        found[chance.choice(of[chance.choice(list(of))])] = None
        if len(found) > whole * 3 // 4:
            rest = [case for story in stories for case in cases(story) if case not in found]
            chance.shuffle(rest)
            found |= dict.fromkeys(rest[: count - len(found)])
    return list(found)


@cache
def _by_place(story: str) -> dict[tuple[str, ...], list[Case]]:
    found: dict[tuple[str, ...], list[Case]] = {}
    for case in cases(story):
        found.setdefault(case.place[1:5], []).append(case)
    return found
