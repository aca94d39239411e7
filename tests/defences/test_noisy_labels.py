"""Noisy labels, and where clean ones may be used.

- Noisy labels on disk and their ledger: what is drawn again, what is charged, and what a crash or damage leaves.
- Labels as they are leave a party that protects them only where its policy says so; nothing else hands them out.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.simulator import Federation, finished
from tests.trainings import policies
from tests.worlds import PARTIES, spec, world
from treetap.errors import ConfigError, DataError, Refused
from treetap.party.defences import noisy_labels
from treetap.party.defences.budgets import LabelBudget
from treetap.party.defences.clean_labels import CleanLabels, LabelRules, Use
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.defences.settings import Defences, LabelDp
from treetap.party.policy import merged
from treetap.party.runtime.job_store import Store
from treetap.party.runtime.ledger import LEDGER, Kind, Occasion, ledger_of
from treetap.privacy.label_dp import staged
from treetap.protocols.own_priors import by_own_trees
from treetap.protocols.prediction import predict_request
from treetap.tables.features import Held
from treetap.tables.label_columns import LabelCells
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.trees.params import BoostingParams

N = 80
OWN = LabelDp(epsilon=1.0, stages=2)
JOB = Occasion(table="loans", parties=("b",), coordinator="c", job="credit", attempt=1)
LABEL_HOLDER, FEATURE, _ = PARTIES
HERE = world(60, (1, 2), seed=3)
NOISE = LabelDp(epsilon=0.1, stages=1)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
ROOT = Path(__file__).parents[2]
OPEN = Labels(np.array([0, 1, 1]), ["no", "yes"])


def table(changed: int | None = None, shift: float = 0.0) -> tuple[Table, Labels]:
    """A table and its labels, which follow its first column; one label or one column may differ."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(N, 3))
    values = (features[:, 0] + 0.3 * rng.normal(size=N) > 0).astype(np.int64)
    features[:, 2] += shift
    if changed is not None:
        values[changed] = 1 - values[changed]
    ids = [f"r{i:03d}" for i in range(N)]
    return Table(Path("own.csv"), Ids.of(ids), ["a", "b", "c"], Held(features), None, np.arange(N)), Labels(
        values, ["no", "yes"]
    )


def noisy(state: Path, own: LabelDp = OWN, budget: float | None = None, **changes: Any) -> list[int]:
    """The noisy labels of a table, by a party that has just started."""
    found: list[int] = (
        NoisyLabels("a", state, own, budget, by_own_trees).of(*table(**changes), "y", JOB).labels.values.tolist()
    )
    return found


def spent(state: Path) -> float:
    """The ε that the ledger has."""
    return float(LabelBudget(state, None).spent())


def test_the_same_table_has_the_same_labels_and_one_charge(tmp_path: Path) -> None:
    """Another label, another ε, other stages are new draws; other columns are one where they give the priors."""
    first = noisy(tmp_path)
    assert noisy(tmp_path) == first
    assert spent(tmp_path) == 1.0
    one_stage = LabelDp(epsilon=0.5)
    noisy(tmp_path, one_stage)
    noisy(tmp_path, one_stage, shift=1.0)
    assert spent(tmp_path) == 1.5
    noisy(tmp_path, changed=3)
    noisy(tmp_path, shift=1.0)
    noisy(tmp_path, LabelDp(epsilon=1.0, stages=3))
    assert spent(tmp_path) == 4.5
    assert noisy(tmp_path) == first
    (charge,) = [each for each in LabelBudget(tmp_path, None).charges() if each.stages == 3]
    assert (charge.records, charge.classes, charge.epsilon, charge.column) == (N, 2, 1.0, "y")


def test_decimal_shares_of_a_budget_add_up(tmp_path: Path) -> None:
    """Three draws of 0.1 fit a budget of 0.3, a fourth is refused, and a stored one is free however little is left."""
    own = LabelDp(epsilon=0.1)
    draws = [noisy(tmp_path, own, 0.3, changed=place) for place in range(3)]
    with pytest.raises(Refused, match=r"a draws no noisy labels .* ε = 0.1, .* label_budget = 0.3 it has spent 0.3"):
        noisy(tmp_path, own, 0.3)
    assert noisy(tmp_path, own, 0.3, changed=1) == draws[1]
    assert noisy(tmp_path, own, 0.05, changed=1) == draws[1]


def test_a_crash_after_the_charge_costs_it_and_leaves_no_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start draws anew and charges again, and says so; a crash before the charge costs nothing."""

    def crash(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LabelBudget, "charge", crash)
        with pytest.raises(OSError, match="No space"):
            noisy(tmp_path)
    assert spent(tmp_path) == 0.0
    with monkeypatch.context() as patch:
        patch.setattr(noisy_labels, "write_whole", crash)
        with pytest.raises(OSError, match="No space"):
            noisy(tmp_path)
    assert (spent(tmp_path), list((tmp_path / "noisy_labels").iterdir())) == (1.0, [])
    found = noisy(tmp_path)
    assert "noisy labels charged for are not in" in caplog.text
    assert spent(tmp_path) == 2.0
    assert noisy(tmp_path) == found


def _cut(path: Path) -> None:
    path.write_bytes(b"")


def _change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage", "says"),
    [
        (LEDGER, _cut, "lacks the charge of"),
        (LEDGER, Path.unlink, "lacks the charge of"),
        (LEDGER, _change, "line 1 is damaged"),
        ("noisy_labels/0.npz", _cut, "is damaged; .* a new draw is charged"),
        ("noisy_labels/0.npz", _change, "is damaged; .* a new draw is charged"),
    ],
)
def test_damage_is_found(file: str, damage: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    """No draw is made on a ledger that is not what was written, and no labels are used that are not."""
    noisy(tmp_path)
    damage(tmp_path / file)
    with pytest.raises(DataError, match=says):
        noisy(tmp_path)


def test_two_jobs_at_once_draw_once(tmp_path: Path) -> None:
    """They prepare in threads of one process."""
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: noisy(tmp_path), range(4)))
    assert found == [found[0]] * 4
    assert spent(tmp_path) == 1.0


def test_fewer_records_than_stages_are_refused_and_cost_nothing(tmp_path: Path) -> None:
    """The error names the cure."""
    whole, labels = table()
    few = np.arange(3)
    with pytest.raises(DataError, match=r"own.csv: has fewer records than label_dp has stages \(4\): set stages = 1"):
        NoisyLabels("a", tmp_path, LabelDp(epsilon=1.0, stages=4), None, by_own_trees).of(
            whole.take(few), labels.at(few), "y", JOB
        )
    assert spent(tmp_path) == 0.0


def test_priors_by_own_columns_never_use_the_records_own_label() -> None:
    """Another label of a record leaves the priors of its part and of earlier ones as they were, and moves later ones.

    They are better than none: they name the likelier class of most records.
    """
    whole, labels = table()

    def asked(values: np.ndarray[Any, Any]) -> list[tuple[list[int], list[list[float]]]]:
        given, found = by_own_trees(whole, 2).of, []

        def priors(before: Any, drawn: Any, following: Any) -> Any:
            prior = given(before, drawn, following)
            found.append((following.tolist(), prior.tolist()))
            return prior

        staged(values, 2, 30.0, 4, priors, random.Random(2).randrange)
        return found

    as_it_was = asked(labels.values)
    for stage, (part, priors) in enumerate(as_it_was):
        assert np.mean(np.argmax(priors, axis=1) == labels.values[part]) > 0.7
        changed = asked(table(changed=part[0])[1].values)
        assert changed[: stage + 1] == as_it_was[: stage + 1]
        assert stage == 2 or changed[stage + 1] != as_it_was[stage + 1]


def test_a_part_whose_noisy_labels_are_of_one_class_gives_priors_too() -> None:
    """Shares with one record more of each class, so that no class is excluded."""
    whole, _ = table()
    found = by_own_trees(whole, 3).of(np.arange(4), np.array([1, 1, 1, 1]), np.arange(5, 7))
    assert found == pytest.approx(np.tile([1 / 7, 5 / 7, 1 / 7], (2, 1)))


def test_a_start_deletes_the_draft_of_noisy_labels_that_a_power_failure_left(tmp_path: Path) -> None:
    """No later draw has its number, so nothing else would; the labels in use stay."""
    first = noisy(tmp_path)
    (tmp_path / "noisy_labels" / "1.npz.part").write_bytes(b"PK")
    Store(tmp_path)
    assert [path.name for path in (tmp_path / "noisy_labels").iterdir()] == ["0.npz"]
    assert noisy(tmp_path) == first


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


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("policy", "noisy", "leaves"),
    [
        ({"labels": {"label_budget": 0.1}}, True, False),
        ({}, True, False),
        ({"labels": {"label_budget": 0.1, "evaluate_clean_labels": True}}, True, True),
        ({}, False, True),
    ],
)
async def test_an_evaluation_answers_nobody_about_a_clean_label(
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

    federation = Federation(tmp_path, tables, policies=rules, defences=defences)
    assert (await federation.train(job)).state == "finished"
    told, kept = [], []
    for name in ("again", "flipped"):
        status = finished(await federation.predict(predict_request(model="job", table=name, job=name, evaluate=True)))
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
