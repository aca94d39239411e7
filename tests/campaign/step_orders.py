"""Every step asked for at every moment of small jobs: what the tables of steps do not let come is refused.

The jobs of `fuzz` are conducted again, wave by wave. After each wave every party is asked for every step there is, in
the first rounds and stages, except for those that may come now and those that are done.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from party.alignment.raised_lists import own_steps
from party.alignment.steps import ALIGNMENT, alignment_steps
from party.prediction.steps import NAMES
from party.protocols import PREDICTION, TRAINING
from party.runtime.step_order import StepTable, id_of
from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, begin, play, trained, training_of, wrong
from tests.replay import CLOSING, Conducted, Replay, ask, with_word
from tests.simulator import Federation, run
from tests.step_tables import Asked, TableReader, table_at
from tests.trainings import protocol_of
from tests.worlds import PARTIES
from treetap.errors import Conflict, OutOfOrder, TreetapError
from treetap.protocols.alignment import count_turns, turns
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import prediction, training
from treetap.wire.frame import PATHS, name_of
from treetap.wire.v2 import control_pb2

LABEL_HOLDER = PARTIES[0]
STORIES = (*TRAININGS, *PREDICTIONS, *PREVIEWS)
#: Steps that open or end a job, or may always come.
_APART = ("prepare", "open_model", "open_preview", "check_job", *CLOSING)
#: Rounds and stages in which a step is asked for.
_PLACES = [(round, stage) for round in range(2) for stage in range(3)]


def table_of(story: str, party: str) -> StepTable:
    """The steps of a party's role in a story."""
    if story in PREVIEWS:
        return table_at("alignment.preview")
    if story in TRAININGS:
        protocol = protocol_of(params_of(TRAININGS[story][1]))
        package, role = TRAINING[protocol], "label_holder" if party == LABEL_HOLDER else "feature_party"
        if training(protocol).one_role:
            role = "party"
    else:
        name = {"per-tree": "interactive", "network": "splitnn"}.get(story, story)
        of_recipient, of_others = prediction(name).roles
        package, role = PREDICTION[name], (of_recipient if party == LABEL_HOLDER else of_others).partition(".")[0]
    return table_at(f"{package}.{role}".removeprefix("party."))


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

    def after(self, last: Asked) -> set[Asked]:
        """The steps that may come after the last one."""
        if last in self._aligning[:-1]:
            return {self._aligning[self._aligning.index(last) + 1]}
        found = self._table.after((ALIGNMENT, 0, 0) if last in self._aligning else last)
        allowed = set()
        for step in found:
            if step[0] == ALIGNMENT:
                allowed |= {self._aligning[0]}
            elif step[0] == NAMES and not self._names:
                allowed |= set(self._table.after((NAMES, 0, 0)))
            else:
                allowed.add(step)
        return allowed


def _conducted(folder: Path, story: str) -> Conducted:
    async def main() -> Conducted:
        federation = begin(folder, story)
        assert (await play(federation, story)).state == "finished"
        await federation.close()
        return [event for event in federation.conducted if name_of(event[2]) not in CLOSING]

    return run(main())


async def _everything_now(replay: Replay, party: str, reader: Reader, words: tuple[str, ...], found: Any) -> None:
    """Ask a party for every step that may not come now; `found` counts refusals and takes what was not refused."""
    opening, last = replay.answers[party][0][0], id_of(replay.answers[party][-1][0])
    done, allowed = {id_of(request) for request, _ in replay.answers[party]}, reader.after(last)
    for word in words:
        for round, stage in _PLACES:
            step = (word, round, stage)
            if step in done or step in allowed:
                continue
            request = with_word(word, opening.job, opening.attempt)
            request.round, request.stage = round, stage
            try:
                await ask(replay.federation, party, request)
                found["findings"].append(f"{party} did {step} after {last}")
            except (OutOfOrder, Conflict) as refusal:
                found["kinds"][type(refusal).__name__] += 1
            except TreetapError as other:
                found["findings"].append(f"{party}: {step} after {last}: {type(other).__name__}: {other}")


def conduct(folder: Path, stories: tuple[str, ...] = STORIES, every: int = 1) -> dict[str, Any]:
    """All steps at all moments of some stories; the figures as a file has them. `every`: 2 tries every second word."""
    began, began_cpu = time.monotonic(), time.process_time()
    words = tuple(sorted(set(PATHS[control_pb2.StepRequest]) - set(_APART)))[::every]
    found: dict[str, Any] = {"kinds": Counter(), "findings": []}
    moments = 0
    for story in stories:
        if story not in TRAININGS:
            trained(training_of(story))
        events = _conducted(folder / f"{story}-first", story)
        readers = {party: Reader(story, party) for party in parties_of(story)}

        async def again(story: str = story, events: Conducted = events, readers: dict[str, Reader] = readers) -> None:
            nonlocal moments
            federation: Federation = begin(folder / story, story)
            replay = Replay(federation, events)
            async for _ in replay.waves():
                for party, reader in readers.items():
                    if replay.answers[party]:
                        moments += 1
                        await _everything_now(replay, party, reader, words, found)
            if says := wrong(federation, story):
                found["findings"].append(f"{story}: {says}")
            await federation.close()

        run(again())
    return {
        "name": "step-orders",
        "cases": found["kinds"].total(),
        "moments": moments,
        "steps": len(words),
        "kinds": dict(found["kinds"]),
        "findings": len(found["findings"]),
        "failing": found["findings"][:50],
        "cpu_s": round(time.process_time() - began_cpu, 2),
        "wall_s": round(time.monotonic() - began, 1),
    }
