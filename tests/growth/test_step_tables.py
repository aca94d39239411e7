"""Every line of the tables of steps is taken in some job, and no job takes a step that they have not.

Here of trainings with a label holder; a protocol of one role has such a test in its own folder.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from party.defences.settings import Defences, ReducedLeakage
from party.growth.label_holder import ALONE
from party.protocols import TRAINING
from party.runtime.step_order import StepTable, id_of
from tests.replay import CLOSING, HERE
from tests.simulator import Federation, Message, run
from tests.step_tables import Asked, Line, TableReader, lines_of, table_at, taken
from tests.trainings import TWO_ROLES, jobs_of, oracle
from tests.worlds import PARTIES, assert_oracles_model, spec
from treetap.wire.frame import name_of

LABEL_HOLDER, B, C = PARTIES


def _tables(word: str) -> tuple[StepTable, StepTable]:
    """The tables of a protocol's label holder and feature party."""
    roles = ("label_holder", "feature_party")
    label_holder, feature_party = (table_at(f"{TRAINING[word]}.{role}".removeprefix("party.")) for role in roles)
    return label_holder, feature_party


def attempts(federation: Federation, name: str) -> list[list[Asked]]:
    """The steps that a party has done, attempt by attempt at each job."""
    found: defaultdict[tuple[str, int], list[Asked]] = defaultdict(list)
    for kind, to, request in federation.conducted:
        if kind == "end" and to == name and name_of(request) not in CLOSING:
            found[request.job, request.attempt].append(id_of(request))
    return list(found.values())


@pytest.mark.parametrize("word", TWO_ROLES)
def test_every_line_is_taken(word: str, tmp_path: Path) -> None:
    """Interrupted in a tree, while models are published, with all trees stored, with a tree grown alone."""
    params, stumps = jobs_of(word).PARAMS, jobs_of(word).WITHOUT_SPLITS
    label_holder, feature_party = _tables(word)
    lines: dict[str, set[Line]] = {name: set() for name in PARTIES}

    def follow(federation: Federation) -> None:
        for name in PARTIES:
            table: StepTable = label_holder if name == LABEL_HOLDER else feature_party
            aligning = "compare_digests" if name == LABEL_HOLDER else "send_digest"
            for steps in attempts(federation, name):
                lines[name] |= taken(TableReader(table, aligning, resumes=range(4)), steps)

    def break_off(
        federation: Federation, step: str, to: str, round: int | None = None, *, served: bool = False
    ) -> None:
        """Kill the party that a step, of a round, goes to, once, before or after the step."""

        def hook(message: Message) -> None:
            if (message.word, message.to, message.served) != (step, to, served):
                return
            if round in (None, federation.jobs.status("job")[0].round):
                federation.hook = None
                federation.kill(to)

        federation.hook = hook

    async def main() -> None:
        federation = Federation(tmp_path / "trees", HERE.tables)
        job = spec(params, obfuscation="standard")
        break_off(federation, "choose_splits", LABEL_HOLDER, 3)
        assert (await federation.train(job)).state == "interrupted"
        federation.start(LABEL_HOLDER)
        for name in (B, C):
            break_off(federation, "publish", name)
            assert (await federation.resume()).state == "interrupted"
            federation.start(name)
        assert (await federation.resume()).state == "finished"
        assert_oracles_model(federation.states, oracle(HERE, params))
        follow(federation)
        await federation.close()
        others = Federation(tmp_path / "stumps", HERE.tables)
        job = spec(stumps, obfuscation="standard")
        assert (await others.train(job, "at-once")).state == "finished"
        break_off(others, "store_tree", LABEL_HOLDER, stumps.n_estimators, served=True)
        assert (await others.train(job)).state == "interrupted"
        others.start(LABEL_HOLDER)
        assert (await others.resume()).state == "finished"
        follow(others)
        await others.close()
        if any(line.when == ALONE for line in label_holder["begin_tree"]):
            own = {LABEL_HOLDER: Defences(reduced_leakage=ReducedLeakage(trees=1))}
            withheld = Federation(tmp_path / "own tree", HERE.tables, defences=own)
            assert (await withheld.train(spec(stumps, obfuscation="standard"))).state == "finished"
            follow(withheld)
            await withheld.close()

    run(main())
    assert lines[LABEL_HOLDER] == lines_of(label_holder)
    assert lines[B] | lines[C] == lines_of(feature_party)


@pytest.mark.parametrize("word", TWO_ROLES)
def test_every_step_has_a_row(word: str) -> None:
    """Every step that may come has a row of its own, so no step is a dead end."""
    for table in _tables(word):
        assert {line.step for line in lines_of(table)} <= set(table)
