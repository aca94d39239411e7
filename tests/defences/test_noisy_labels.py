"""Noisy labels on disk and their ledger: what is drawn again, what is charged, and what a crash or damage leaves."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetap.errors import DataError, Refused
from treetap.party.defences import noisy_labels
from treetap.party.defences.budgets import LabelBudget
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.defences.settings import LabelDp
from treetap.party.runtime.job_store import Store
from treetap.party.runtime.ledger import LEDGER, Occasion
from treetap.privacy.label_dp import staged
from treetap.protocols.own_priors import by_own_trees
from treetap.tables.features import Held
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

N = 80
OWN = LabelDp(epsilon=1.0, stages=2)
JOB = Occasion(table="loans", parties=("b",), coordinator="c", job="credit", attempt=1)


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
