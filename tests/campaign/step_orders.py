"""Every step asked for at every moment of small jobs: what the tables of steps do not let come is refused.

The jobs of `fuzz` are conducted again, wave by wave. After each wave every party is asked for every step there is, in
the first rounds and stages, except for those that may come now. Those that are done are answered as before; others are
refused with what is expected, which is what the table has by one of the outcomes of the last step, the one that the
job took: its next step is among it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, begin, play, wrong
from tests.replay import CLOSING, Conducted, Replay, ask, with_word
from tests.simulator import Federation, run
from tests.step_tables import Asked, Line, TableReader, table_at
from tests.trainings import protocol_of
from tests.worlds import PARTIES
from treetap.errors import Conflict, OutOfOrder, TreetapError, UnknownJob
from treetap.party.alignment.lists import own_steps
from treetap.party.alignment.steps import alignment_steps
from treetap.party.prediction.steps import NAMES, table_for
from treetap.party.protocols import PREDICTION, TRAINING
from treetap.party.runtime.step_order import ALIGNMENT, StepTable, describe, id_of
from treetap.protocols.alignment import count_turns, turns
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import prediction, training
from treetap.wire.frame import PATHS, content_of, name_of
from treetap.wire.v2 import control_pb2

LABEL_HOLDER = PARTIES[0]
STORIES = (*TRAININGS, *PREDICTIONS, *PREVIEWS)
#: Steps that open or end a job, or may always come.
_APART = ("prepare", "open_model", "open_preview", "check_job", *CLOSING)
#: Every other step that there is.
WORDS = tuple(sorted(set(PATHS[control_pb2.StepRequest]) - set(_APART)))
#: Rounds and stages in which a step is asked for.
_PLACES = [(round, stage) for round in range(2) for stage in range(3)]
#: A refusal's words: the step, and what is expected in its place.
_REFUSED = re.compile(r"(.*) cannot come now; expected (.*)")


def table_of(story: str, party: str) -> StepTable:
    """The steps of a party's role in a story."""
    if story in PREVIEWS:
        return table_at("alignment.preview")
    name = (
        protocol_of(params_of(TRAININGS[story][1]))
        if story in TRAININGS
        else str(PREDICTIONS[story].get("protocol", story))
    )
    if story in TRAININGS:
        package, role = TRAINING[name], "label_holder" if party == LABEL_HOLDER else "feature_party"
        if training(name).one_role:
            role = "party"
    else:
        of_recipient, of_others = prediction(name).roles
        package, role = PREDICTION[name], (of_recipient if party == LABEL_HOLDER else of_others).partition(".")[0]
    table = table_at(f"{package}.{role}".removeprefix("treetap.party."))
    return table if story in TRAININGS else table_for(name, table)


def parties_of(story: str) -> tuple[str, ...]:
    """The parties of a story, the label holder first."""
    return tuple(name for name in PARTIES if story not in TRAININGS or name in TRAININGS[story][0].tables)


class Reader:
    """Steps that may come after a step, whatever its outcome, with those of an alignment one after the other."""

    def __init__(self, story: str, party: str) -> None:
        method = TRAININGS[story][1].alignment if story in TRAININGS else "sorted-ids"
        self._aligning = list(alignment_steps(list(parties_of(story)), method, party))
        if story in PREVIEWS:
            plan = count_turns if PREVIEWS[story] == "count" else turns
            self._aligning = own_steps(plan(len(PARTIES)), PARTIES.index(party))
        explained = PREDICTIONS.get(story, {}).get("explain")
        naming = ("take_names" if party == LABEL_HOLDER else "name_features") if explained else None
        self._table = TableReader(table_of(story, party), ALIGNMENT, naming=naming or NAMES, resumes=range(3))
        self._names = naming is not None

    def after(self, last: Asked) -> dict[Asked, Line | None]:
        """The steps that may come after the last one, with the line of the table that lets each."""
        if last in self._aligning[:-1]:
            return {self._aligning[self._aligning.index(last) + 1]: None}
        allowed: dict[Asked, Line | None] = {}
        for step, line in self._table.after((ALIGNMENT, 0, 0) if last in self._aligning else last).items():
            if step[0] == ALIGNMENT:
                allowed[self._aligning[0]] = line
            elif step[0] == NAMES and not self._names:
                allowed |= self._table.after((NAMES, 0, 0))
            else:
                allowed[step] = line
        return allowed


class _Asking:
    """Asks parties for steps that may not come; `findings` and `kinds` have what came of it."""

    def __init__(self, story: str, replay: Replay, coming: dict[str, list[Asked]]) -> None:
        self.findings: list[str] = []
        self.kinds = Counter[str]()
        self._replay, self._coming = replay, coming
        self._readers = {party: Reader(story, party) for party in parties_of(story)}

    async def now(self, words: tuple[str, ...]) -> int:
        """Ask every party for all that it has done, and for its own and these steps where they may not come now."""
        moments = 0
        for party, reader in self._readers.items():
            if not (answers := self._replay.answers[party]):
                await self._ask(party, with_word(words[0]), UnknownJob)
                continue
            moments += 1
            for request, answer in answers:
                if await ask(self._replay.federation, party, request) != answer:
                    self.findings.append(f"{party} answered {id_of(request)} otherwise when it came again")
                self.kinds["answered again"] += 1
                if (other := _otherwise(request)) != request:
                    await self._ask(party, other, Conflict)
            await self._early(party, reader.after(id_of(answers[-1][0])), words)
        return moments

    async def _early(self, party: str, allowed: dict[Asked, Line | None], words: tuple[str, ...]) -> None:
        answers = self._replay.answers[party]
        opening, done = answers[0][0], {id_of(request) for request, _ in answers}
        says = set[str]()
        own = {word for word, _, _ in self._coming[party]} - set(_APART)
        for step in [(word, *place) for word in sorted({*words, *own}) for place in _PLACES]:
            if step not in done and step not in allowed:
                request = with_word(step[0], opening.job, opening.attempt)
                request.round, request.stage = step[1:]
                if refusal := _REFUSED.fullmatch(await self._ask(party, request, OutOfOrder)):
                    says.add(refusal[2])
                    if refusal[1] != describe(step):
                        self.findings.append(f"{party} refused {step} as {refusal[1]}")
        following = self._coming[party][len(answers) : len(answers) + 1]
        if len(says) != 1 or not _expected(*says, allowed, following):
            self.findings.append(f"{party} expects {says} after {id_of(answers[-1][0])}, where {following} comes")

    async def _ask(self, party: str, request: control_pb2.StepRequest, refusal: type[TreetapError]) -> str:
        try:
            await ask(self._replay.federation, party, request)
            says = "it was done"
        except refusal as expected:
            self.kinds[refusal.__name__] += 1
            return str(expected)
        except TreetapError as other:
            says = f"{type(other).__name__}: {other}"
        self.findings.append(f"{party}: {id_of(request)}: {says}")
        return ""


def _otherwise(request: control_pb2.StepRequest) -> control_pb2.StepRequest:
    """A step with other content, or without any."""
    if name_of(request) in _APART:
        other = control_pb2.StepRequest.FromString(request.SerializeToString())
        content: Any = content_of(other, name_of(other))
        content.peers.add(name="another", address="another:1")
    else:
        other = with_word(name_of(request), request.job, request.attempt)
        other.round, other.stage = request.round, request.stage
    return other


def _expected(says: str, allowed: dict[Asked, Line | None], following: list[Asked]) -> bool:
    """True if a refusal names the step that comes and all that the table has by one outcome, and nothing else."""
    named = {each.partition(" of round ")[0].partition(" after round ")[0] for each in says.split(" or ")} - {"nothing"}
    known = {step: None if line is None else line.when for step, line in allowed.items()}
    by_outcome = [{step[0] for step, when in known.items() if when in (None, one)} for one in {None, *known.values()}]
    places = {describe(step) for step in known} | {step[0] for step in known}
    exact = [each for each in says.split(" or ") if " of round " in each]
    return named in by_outcome and {step for step, *_ in following} <= named and set(exact) <= places


def _conducted(folder: Path, story: str) -> Conducted:
    async def main() -> Conducted:
        federation = begin(folder, story)
        assert (await play(federation, story)).state == "finished"
        await federation.close()
        return [event for event in federation.conducted if name_of(event[2]) not in CLOSING]

    return run(main())


def conduct(folder: Path, stories: tuple[str, ...] = STORIES, every: int = 1) -> dict[str, Any]:
    """All steps at all moments of some stories; the figures as a file has them.

    `every`: 2 asks a role for its own steps and for half of the others.
    """
    words, kinds, findings = WORDS[::every], Counter[str](), list[str]()
    moments = 0
    for story in stories:
        events = _conducted(folder / f"{story}-first", story)

        async def again(story: str = story, events: Conducted = events) -> None:
            nonlocal moments
            federation: Federation = begin(folder / story, story)
            replay = Replay(federation, events)
            coming = {party: [id_of(request) for request in replay.vocabulary(party)] for party in parties_of(story)}
            asking = _Asking(story, replay, coming)
            async for _ in replay.waves():
                moments += await asking.now(words)
            if says := wrong(federation, story):
                asking.findings.append(f"{story}: {says}")
            await federation.close()
            findings.extend(asking.findings)
            kinds.update(asking.kinds)

        run(again())
    return {
        "cases": kinds.total(),
        "moments": moments,
        "steps": len(words),
        "kinds": dict(kinds),
        "findings": len(findings),
        "failing": findings[:50],
    }
