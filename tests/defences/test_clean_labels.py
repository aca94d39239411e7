"""Labels as they are leave a party that protects them only where its policy says so; nothing else hands them out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.simulator import Federation, finished, run
from tests.trainings import policies
from tests.worlds import PARTIES, spec, world
from treetap.errors import ConfigError, Refused
from treetap.party.defences.clean_labels import CleanLabels, LabelRules, Use
from treetap.party.defences.settings import Defences, LabelDp
from treetap.party.policy import merged
from treetap.party.runtime.ledger import Kind, ledger_of
from treetap.protocols.prediction import predict_request
from treetap.tables.label_columns import LabelCells
from treetap.tables.labels import Labels
from treetap.trees.params import BoostingParams

LABEL_HOLDER, FEATURE, _ = PARTIES
HERE = world(60, (1, 2), seed=3)
NOISE = LabelDp(epsilon=0.1, stages=1)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
ROOT = Path(__file__).parents[2]
OPEN = Labels(np.array([0, 1, 1]), ["no", "yes"])


def _rules(*, noisy: bool = False, budget: float | None = None, evaluate: bool = False) -> LabelRules:
    return LabelRules("bank", noisy, budget, evaluate)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (_rules(), {Use.TRAINING, Use.EVAL_TABLE, Use.NOISE, Use.EVALUATION, Use.OWN_FILES}),
        (_rules(noisy=True), {Use.NOISE, Use.EVALUATION, Use.OWN_FILES}),
        (_rules(budget=1.0), {Use.NOISE, Use.EVALUATION, Use.OWN_FILES}),
        (_rules(noisy=True, budget=1.0, evaluate=True), {Use.NOISE, Use.EVALUATION, Use.OWN_FILES}),
    ],
)
def test_each_use_is_decided(rules: LabelRules, allowed: set[Use]) -> None:
    """Under protection neither trainings nor eval tables; what the party reads alone always."""
    clean = CleanLabels(OPEN, rules)
    for use in Use:
        if use in allowed:
            assert clean.for_use(use) is OPEN
        else:
            with pytest.raises((Refused, ConfigError)):
                clean.for_use(use)


def test_measures_are_released_by_one_line_of_the_policy() -> None:
    """Without protection they are as before; with it they need `evaluate_clean_labels`, and are noted."""
    assert _rules().released
    assert not _rules().protect
    for rules in ({"noisy": True}, {"budget": 2.0}, {"noisy": True, "budget": 2.0}):
        assert _rules(**rules).protect
        assert not _rules(**rules).released
        assert _rules(**rules, evaluate=True).released


def test_closed_labels_show_nothing() -> None:
    """No label is in a representation, which a log may hold."""
    assert repr(CleanLabels(OPEN, _rules())) == "<CleanLabels: <Labels of 3 records>>"
    assert repr(LabelCells(pa.chunked_array([["secret"]]))) == "<LabelCells of 1 records>"
    assert CleanLabels(OPEN, _rules()).at(np.array([2])).for_use(Use.OWN_FILES).values.tolist() == [1]


def _flipped(table: pa.Table, place: int) -> pa.Table:
    """The same table with one label changed."""
    y = table.column("y").to_pylist()
    y[place] = 1 - y[place]
    return table.set_column(table.column_names.index("y"), "y", pa.array(y))


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("policy", "noisy", "leaves"),
    [
        ({"labels": {"label_budget": 0.1}}, True, False),
        ({}, True, False),
        ({"labels": {"label_budget": 0.1, "evaluate_clean_labels": True}}, True, True),
        ({}, False, True),
    ],
)
def test_an_evaluation_answers_nobody_about_a_clean_label(
    policy: dict[str, Any], noisy: bool, leaves: bool, tmp_path: Path
) -> None:
    """Of two tables that differ in one label the coordinator gets the same; the party's own file has the measures."""
    tables = {party: (columns, dict(own)) for party, (columns, own) in HERE.tables.items()}
    for name in ("again", "flipped"):
        tables[FEATURE][1][name] = tables[FEATURE][1]["train"]
    mine = tables[LABEL_HOLDER][1]["train"]
    tables[LABEL_HOLDER][1].update(again=mine, flipped=_flipped(mine, 17))
    job = spec(PARAMS, 2, obfuscation="standard")
    rules = policies(job)
    rules[LABEL_HOLDER] = {**rules.get(LABEL_HOLDER, {}), **policy}
    defences = {LABEL_HOLDER: Defences(label_dp=NOISE)} if noisy else None

    async def main() -> None:
        federation = Federation(tmp_path, tables, policies=rules, defences=defences)
        assert (await federation.train(job)).state == "finished"
        told, kept = [], []
        for name in ("again", "flipped"):
            status = finished(
                await federation.predict(predict_request(model="job", table=name, job=name, evaluate=True))
            )
            told.append({each.name: each.value for each in status.metrics})
            kept.append(json.loads(Path(status.evaluation).read_text())["measures"])
        await federation.close()
        assert kept[0] != kept[1]
        assert bool(told[0]) == leaves
        assert (told[0] != told[1]) == leaves
        released = ledger_of(federation.state(LABEL_HOLDER)).charges(Kind.CLEAN_LABELS)
        assert [each.occasion.job for each in released] == (["again", "flipped"] if noisy and leaves else [])
        for each in released:
            assert (each.amount, set(each.details["measures"])) == (60, set(told[0]))

    run(main())


@pytest.mark.parametrize(("evaluate", "told"), [(False, "the log has where"), (True, "none of the model's classes")])
async def test_an_error_tells_no_row_of_a_label(
    evaluate: bool, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a protected party the operator hears that labels do not fit the model, and the log has which."""
    tables = {party: (columns, dict(own)) for party, (columns, own) in HERE.tables.items()}
    tables[FEATURE][1]["again"] = tables[FEATURE][1]["train"]
    y = tables[LABEL_HOLDER][1]["train"].column("y").to_pylist()
    own = tables[LABEL_HOLDER][1]["train"]
    tables[LABEL_HOLDER][1]["again"] = own.set_column(own.column_names.index("y"), "y", pa.array([7, *y[1:]]))
    job = spec(PARAMS, 2, obfuscation="standard")
    rules = policies(job)
    rules[LABEL_HOLDER] = merged(rules.get(LABEL_HOLDER, {}), {"labels": {"evaluate_clean_labels": evaluate}})

    federation = Federation(tmp_path, tables, policies=rules, defences={LABEL_HOLDER: Defences(label_dp=NOISE)})
    assert (await federation.train(job)).state == "finished"
    status = await federation.predict(predict_request(model="job", table="again", job="again", evaluate=True))
    await federation.close()
    error = str(status.error)
    assert told in error
    assert bool(re.search(r"row \d", error)) == evaluate
    assert "none of the model's classes" in caplog.text


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("from treetap.tables.labels import read_labels", "TID251"),
        ("from treetap.tables.labels import _complete", "TID251"),
        ("from treetap.tables.labels import read_classes", "TID251"),
        ("from treetap.tables.labels import read_targets", "TID251"),
        ("from treetap.tables.labels import read_partial_labels", "TID251"),
        ("from treetap.tables.label_columns import cells_of", "TID251"),
        ("def opened(table):\n    return table.label._cells", "SLF001"),
        ("def opened(clean):\n    return clean._held", "SLF001"),
    ],
)
def test_lint_refuses_every_other_way(line: str, fault: str) -> None:
    """In the code of parties; in the module that hands labels out it permits the readers."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent))
    assert ruff, "ruff is of the extra dev"

    def faults(name: str) -> str:
        check = [ruff, "check", "--no-cache", "--output-format", "concise", "--stdin-filename", name, "-"]
        return subprocess.run(check, input=line, cwd=ROOT, text=True, capture_output=True, check=False).stdout

    assert fault in faults("party/forest/other.py")
    assert "TID251" not in faults("party/defences/clean_labels.py")
