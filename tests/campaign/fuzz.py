"""Altered messages: one field of one message of a small job has a boundary value, and the job ends by name or rightly.

Every message that processes send each other is altered on its way: parcels between parties, steps that the coordinator
asks for, their events, what an operator orders and what a client asks. Cases are enumerated from messages of jobs that
nothing disturbs and from descriptors (`boundaries`), and drawn from a seed.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import Message

from tests.campaign.boundaries import Change, changed, changes
from tests.campaign.checks import logged
from tests.campaign.small_jobs import LABEL_HOLDER, PREDICTIONS, TRAININGS, B, begin, play, right_answer, trained, wrong
from tests.replay import JOB, asked
from tests.serving.served import CLIENT, IDS, WAYS, serve
from tests.simulator import Federation, run
from treetap import errors
from treetap.errors import Defect, TreetapError
from treetap.wire.frame import name_of
from treetap.wire.v2 import jobs_pb2, serving_pb2

#: The jobs of which messages are altered.
STORIES = (*TRAININGS, *PREDICTIONS, "serving", "operator", "client")
#: What an operator and a client ask, by word.
ORDERS: dict[str, Message] = {
    "Submit": jobs_pb2.SubmitRequest(job="new", spec=JOB),
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
#: (word, field) → why its sender alone decides or knows what is right there: another value is another honest message.
OWN_WORD = {
    ("prepare", "spec"): "the job that the coordinator orders; the label holder's parameters are those that count",
    ("open_model", "open_model"): "the prediction that the coordinator orders",
    ("children", "handle"): "a party's name for its own split; a prediction with another ends by name",
    ("route_queries", "records"): "the records that the label holder asks about, for its own use",
    ("route_answers", "left"): "directions at the party's own thresholds",
}
#: CPU seconds that a case may take (a training takes 0.2), and bytes by which a process may grow meanwhile.
MOST_CPU_S, MOST_BYTES = 20.0, 400 * 2**20
#: Messages after which an altered order that was accepted is cancelled.
_ENOUGH = 300
_ERRORS = "|".join(name for name, kind in vars(errors).items() if isinstance(kind, type) and kind is not Defect)
_UNFORESEEN = re.compile(r"defect|Traceback|Error\('|failed \(\w+\)|object at 0x", re.IGNORECASE)


class Place(NamedTuple):
    """A message of a story: which way it goes, who sends it to whom, its word, and how many such came before."""

    story: str
    way: str  #: parcel, request, event, order or question
    sender: str
    to: str
    word: str
    nth: int


class Case(NamedTuple):
    """A message, and how it is altered."""

    place: Place
    change: Change


@dataclass
class Outcome:
    """`kind`: right, named, own word (see `OWN_WORD`), or finding. `says`: the error, or what did not hold."""

    kind: str
    says: str
    hit: bool = True
    cpu_s: float = 0.0


#: (way, sender, receiver, message) → what arrives in its place.
Alter = Callable[[str, str, str, Message], Message]


class TooLong(BaseException):
    """A case has used its processor time."""


def intercept(federation: Federation, alter: Alter) -> None:
    """Have a function see, and alter, every message that arrives at a party, and every event that leaves it."""
    for party in federation.configs:
        node = federation.node(party)
        step, deliver = node.step, node.deliver

        async def altered_step(caller: str, request: Any, party: str = party, step: Any = step) -> AsyncIterator[Any]:
            async for event in step(caller, alter("request", caller, party, request)):
                yield alter("event", party, caller, event)

        async def altered_deliver(caller: str, parcel: Any, party: str = party, deliver: Any = deliver) -> Any:
            return await deliver(caller, alter("parcel", caller, party, parcel))

        node.step, node.deliver = altered_step, altered_deliver  # type: ignore[method-assign]


def _word(way: str, message: Any) -> str:
    if way != "event":
        return name_of(message)
    return name_of(message.result) if message.HasField("result") else "progress"


@cache
def recorded(story: str) -> dict[Place, Message]:
    """Every message of a story that nothing disturbs."""
    if story in ("operator", "client"):
        way, sender, to = ("order", "operator", "coordinator") if story == "operator" else ("question", CLIENT, B)
        all_of = ORDERS if story == "operator" else QUESTIONS
        return {Place(story, way, sender, to, word, 0): message for word, message in all_of.items()}
    found: dict[Place, Message] = {}
    counted: Counter[tuple[str, ...]] = Counter()

    def keep(way: str, sender: str, to: str, message: Message) -> Message:
        key = (way, sender, to, _word(way, message))
        copy = type(message)()
        copy.CopyFrom(message)
        found[Place(story, *key, counted[key])] = copy
        counted[key] += 1
        return message

    trained()

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            federation = begin(Path(folder) / "here", story)
            intercept(federation, keep)
            status = await play(federation, story)
            assert status.state in ("finished", "cancelled"), status
            await federation.close()

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


def carry_out(case: Case, folder: Path) -> Outcome:
    """Play a case in a new folder, which is deleted, and judge how it ends."""
    trained()
    begun = time.process_time()
    try:
        with logged() as log, _limited():
            outcome = run(_judged(case, folder))
        if log.faults and outcome.kind != "finding":
            outcome = Outcome("finding", log.faults[0])
    except TooLong:
        outcome = Outcome("finding", f"more than {MOST_CPU_S:g} s of processor time")
    except Exception as failure:  # noqa: BLE001 - any is a finding
        outcome = Outcome("finding", f"{type(failure).__name__}: {failure}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    outcome.cpu_s = time.process_time() - begun
    return outcome


async def _judged(case: Case, folder: Path) -> Outcome:
    federation = begin(folder, case.place.story)
    try:
        if case.place.way == "order":
            return await _ordered(federation, case)
        if case.place.way == "question":
            return await _questioned(federation, case)
        return await _altered(federation, case)
    finally:
        await federation.close()


async def _altered(federation: Federation, case: Case) -> Outcome:
    place, counted, hits = case.place, Counter[tuple[str, ...]](), 0
    story = place.story

    def alter(way: str, sender: str, to: str, message: Message) -> Message:
        nonlocal hits
        key = (way, sender, to, _word(way, message))
        counted[key] += 1
        if hits or (*key, counted[key] - 1) != place[1:]:
            return message
        try:
            hits, made = 1, changed(message, case.change)
        except (IndexError, KeyError, AttributeError):  # a part that this run's message does not have
            return message
        return made

    intercept(federation, alter)
    status = await play(federation, story)
    outcome = _of_status(federation, story, status)
    outcome.hit = bool(hits)
    if any((place.word, field) in OWN_WORD for field in case.change.path) and outcome.says.startswith("WRONG"):
        outcome.kind = "own word"
    if status.state in ("failed", "interrupted") and outcome.kind == "named" and story != "serving":
        after = _of_status(federation, story, await federation.resume("job" if story in TRAININGS else "new"))
        if after.kind == "finding" or (after.kind == "named" and place.way == "parcel"):
            return Outcome("finding", f"{outcome.says}; resumed: {after.says}")
    return outcome


def _of_status(federation: Federation, story: str, status: jobs_pb2.JobStatus) -> Outcome:
    if status.state not in ("finished", "cancelled"):
        return _named(status.error)
    try:
        if says := wrong(federation, story):
            return Outcome("finding", f"WRONG: {says}")
    except TreetapError as error:  # a coordinator that asks for other steps leaves a part of a model unpublished
        return _named(str(error))
    return Outcome("right", "")


def _named(error: str) -> Outcome:
    if not error or _UNFORESEEN.search(error):
        return Outcome("finding", f"an error that is not named: {error!r}"[:400])
    return Outcome("named", error)


async def _ordered(federation: Federation, case: Case) -> Outcome:
    """An altered order of an operator: refused by name, or carried out until it ends or is cancelled."""
    jobs, word, order = federation.jobs, case.place.word, changed(ORDERS[case.place.word], case.change)
    order = type(order).FromString(order.SerializeToString())
    seen = 0
    enough = asyncio.Event()

    def count(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen > _ENOUGH:
            enough.set()

    federation.hook = count
    try:
        if word == "Status":
            jobs.status(order.job)
        elif word == "Watch":
            async for _ in jobs.watch(order.job):
                pass
        elif word == "Prune":
            jobs.prune(order.jobs, order.days, dry_run=order.dry_run)
        elif word == "Cancel":
            await jobs.cancel(order.job)
        else:
            job = jobs.resume(order.job) if word == "Resume" else getattr(jobs, word.lower())(order)
            ended = asyncio.ensure_future(jobs.wait(job))
            await asyncio.wait({ended, asyncio.ensure_future(enough.wait())}, timeout=60, return_when="FIRST_COMPLETED")
            if not ended.done():
                await jobs.cancel(job)
            status = await ended
            if status.state not in ("finished", "cancelled"):
                return _named(status.error)
    except TreetapError as error:
        return _named(str(error))
    return Outcome("right", "")


async def _questioned(federation: Federation, case: Case) -> Outcome:
    """An altered question of a client: refused by name or answered rightly; the next one is answered."""
    await serve(federation, protocol="interactive", **{k: v for k, v in WAYS["interactive"].items() if k != "protocol"})
    served, outcome = federation.node(LABEL_HOLDER).served_models, Outcome("right", "")
    question = changed(QUESTIONS[case.place.word], case.change)
    try:
        if case.place.word == "Predict":
            right_answer(await served.predict(CLIENT, question, None))
        else:
            served.describe(CLIENT, question.model)
    except TreetapError as error:
        outcome = _named(str(error))
    right_answer(await served.predict(CLIENT, serving_pb2.PredictRecords(ids=IDS[:1]), None))
    return outcome


@contextmanager
def _limited() -> Iterator[None]:
    """Within the block, `TooLong` after `MOST_CPU_S`; MemoryError-like finding where the process grew too much."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    _reset_peak()
    grown_from = _peak_bytes()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    grown = _peak_bytes() - grown_from
    assert grown <= MOST_BYTES, f"the process grew by {grown >> 20} MiB"


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
