"""The rule of the verdict: its borders, its interval, and how often chance alone is taken for a leak."""

from __future__ import annotations

import numpy as np
import pytest

from tests.attacks.documents import made
from tests.attacks.frontiers import frontier, point
from tests.attacks.present import present
from treetap.attacks.advice.advise import AdvisedJob, advise
from treetap.attacks.known_labels.names import macro_auc
from treetap.attacks.report.page import html
from treetap.attacks.report.verdict import lines, to_do
from treetap.attacks.scores import matched, score
from treetap.attacks.verdict import (
    Compared,
    FirstNamed,
    Verdict,
    cells_right,
    compared_cells,
    compared_places,
    drawn_error,
    judged,
    paired_error,
    unbalanced,
    word_of,
)


def _compared(before: float, reached: float, error: float = 0.001, tries: int = 1, **more: object) -> Compared:
    given = {"measure": "accuracy", "before_how": "own columns", "reached_how": "UNI", "details": "attacks"}
    return Compared.model_validate(
        given | {"before": before, "reached": reached, "error": error, "tries": tries} | more
    )


@pytest.mark.parametrize(
    ("share", "low", "word"),
    [
        (0.0, 0.1, "nothing found"),
        (0.3, 0.0, "nothing found"),
        (0.3, -0.01, "nothing found"),
        (0.001, 0.0001, "little"),
        (0.05, 0.01, "little"),
        (0.0501, 0.01, "notable"),
        (0.2, 0.01, "notable"),
        (0.2001, 0.01, "severe"),
        (1.0, 0.01, "severe"),
    ],
)
def test_the_borders_of_the_words(share: float, low: float, word: str) -> None:
    """Inside its interval nothing is found; then 5 and 20 % of what was left."""
    assert word_of(share, low) == word


def test_shares_of_what_was_left_do_not_depend_on_rounding() -> None:
    """From 50 to 52.5 % is 5 % of what was left, from 90 to 92 % 20 %, in floating point too."""
    for before in np.linspace(0.0, 0.95, 20):
        for share, word in ((0.05, "little"), (0.2, "notable")):
            assert _compared(before, before + share * (1 - before), error=1e-6).word == word
    assert _compared(1.0, 1.0).word == "nothing found"


def test_after_is_never_less_than_before() -> None:
    """An attacker who does worse with the training uses what it had; the worse figure is said."""
    verdict = judged("telco", "labels", "bank", [_compared(0.8, 0.7)], reason="", details="attacks")
    assert (verdict.before, verdict.after, verdict.gain, verdict.word) == (0.8, 0.8, 0.0, "nothing found")
    assert verdict.after_how == "the training adds nothing: UNI reaches 0.700"


def test_the_worst_comparison_is_the_verdict() -> None:
    """By its word, then by the share that it gained, whatever the points."""
    several = [_compared(0.5, 0.59), _compared(0.97, 0.98), _compared(0.5, 0.9, error=0.4)]
    verdict = judged("telco", "labels", "bank", several, reason="", details="attacks")
    assert (verdict.before, verdict.word) == (0.97, "severe")
    nothing = judged("telco", "labels", "bank", [], reason="no labels", details="attacks")
    assert (nothing.word, nothing.before, nothing.reason, nothing.rank) == ("not measured", None, "no labels", -1)


def test_tries_widen_the_interval() -> None:
    """One guess: 1.96 errors; the best of a hundred needs 3.48."""
    assert _compared(0.5, 0.6, error=0.01).interval == pytest.approx((0.6 - 0.5 - 0.0196, 0.1196), abs=1e-4)
    low, _ = _compared(0.5, 0.6, error=0.01, tries=100).interval
    assert (0.1 - low) / 0.01 == pytest.approx(3.4808, abs=1e-3)


def test_the_error_of_paired_guesses() -> None:
    """By the formula with half a record in each case (Agresti, Min); guesses that are the same have a small one."""
    differences = np.array([1] * 12 + [-1] * 3 + [0] * 85)
    b, c, n = 12.5, 3.5, 102
    assert paired_error(differences) == pytest.approx(np.sqrt((b + c) - (b - c) ** 2 / n) / n)
    assert 0 < paired_error(np.zeros(100)) < 0.01
    assert drawn_error([0.5]) == 0.0
    assert drawn_error([0.4, 0.6]) == pytest.approx(0.1 * 12.7062 / 1.95996, rel=1e-3)


def test_chance_alone_is_seldom_taken_for_a_leak() -> None:
    """The best of 20 guesses that have nothing to do with the label, beside the most frequent class, 400 times."""
    draw, alarms = np.random.default_rng(0), 0
    for _ in range(400):
        truth = (draw.random(300) < 0.5).astype(np.int64)
        before = truth == np.bincount(truth).argmax()
        guesses = [(draw.random(300) < 0.5) == truth for _ in range(20)]
        right = max(guesses, key=lambda guess: guess.mean())
        error = paired_error(right.astype(np.int64) - before)
        alarms += _compared(before.mean(), right.mean(), error=error, tries=20).word != "nothing found"
    assert alarms <= 20


def test_what_a_training_tells_is_found() -> None:
    """A gain of ten points on 300 records is always found, as one of 20 tries."""
    draw, found = np.random.default_rng(1), 0
    for _ in range(100):
        before = draw.random(300) < 0.7
        right = before | (draw.random(300) < 1 / 3)
        error = paired_error(right.astype(np.int64) - before)
        found += _compared(before.mean(), right.mean(), error=error, tries=20).word in ("notable", "severe")
    assert found == 100


@pytest.mark.parametrize("classes", [2, 3])
def test_the_influence_of_a_record_on_the_auc(classes: int) -> None:
    """It is the derivative by the record's weight: what a copy of it changes, as records grow many."""
    draw = np.random.default_rng(classes)
    truth = draw.integers(0, classes, 60)
    chances = np.round(draw.random((60, classes)) + (truth[:, None] == np.arange(classes)), 1)
    whole, influence = macro_auc(chances, truth)
    assert influence.sum() == pytest.approx(0.0, abs=1e-12)
    many = 50
    for record in range(0, 60, 7):
        rows = np.concatenate([np.tile(np.arange(60), many), [record]])
        change = macro_auc(chances[rows], truth[rows])[0] - whole
        assert change * many == pytest.approx(influence[record], abs=3e-3)


def test_unbalanced_tables() -> None:
    """A rarest class below half of an equal share; classes without a record do not count."""
    assert not unbalanced([75, 25])
    assert unbalanced([76, 24])
    assert unbalanced([790, 210])
    assert not unbalanced([3, 2, 2])
    assert unbalanced([50, 34, 16])
    assert not unbalanced([10, 0])
    assert not unbalanced([])


def test_cells_that_are_not_claimed_are_named_by_their_columns_most_frequent_bin() -> None:
    """Two columns, the best of two ways; a wrong claim costs what the most frequent bin would have given."""
    codes = np.array([[0, 1], [0, 1], [0, 2], [1, 0]])
    nothing, one, wrong = np.full((4, 2), -1), np.full((4, 2), -1), np.full((4, 2), -1)
    one[3], wrong[0] = codes[3], (1, -1)
    for guess, reached in ((nothing, 5 / 8), (one, 7 / 8), (wrong, 4 / 8)):
        compared = present(compared_cells({"it": guess}, codes, "columns"))
        assert (compared.before, compared.reached) == (5 / 8, reached)
    best = present(compared_cells({"worse": wrong, "better": one}, codes, "columns"))
    assert (best.reached_how, best.tries) == ("better", 2)
    assert compared_cells({}, codes, "columns") is None


def test_the_records_that_are_right_add_up_to_the_accuracy() -> None:
    """More groups than classes, of random sizes."""
    draw = np.random.default_rng(5)
    for groups in (1, 2, 3, 9):
        truth, guess = draw.integers(0, 3, 90), draw.integers(0, groups, 90)
        assert matched(truth, guess).mean() == score(truth, guess).accuracy


def test_the_words_of_an_unbalanced_table() -> None:
    """AUC and the records named first, of so many, before and by chance."""
    first = FirstNamed(first=100, rarest="yes", before=0.30, after=0.384, chance=0.21)
    compared = _compared(0.661, 0.704, measure="AUC", known=40, first=first)
    (line,) = lines([judged("telco", "labels", "bank", [compared], reason="", details="attacks")])
    assert (line.head, line.style) == ("telco, of bank's labels: notable", "notable")
    assert [(it.when, it.said.strip(), it.how) for it in line.figures] == [
        ("before", "66.1 % of pairs right", "own columns"),
        ("after", "70.4 % of pairs right", ""),
    ]
    assert line.gain == "+4.3 points (+4.1 to +4.5), 13 % of what was left; 40 labels known"
    assert line.notes == ["if it knows 40 of the labels", "the records that it is surest of are right no more often"]


def test_what_was_not_measured_for_one_reason_is_one_line() -> None:
    """Two parties' columns; figures are not made up."""
    several = [
        Verdict(party="bank", learned="columns", of=of, word="not measured", reason="why", details="columns")
        for of in ("telco", "shop")
    ]
    (line,) = lines(several)
    assert (line.head, line.gain) == ("bank, of the columns of telco and shop: not measured", "why")
    assert (line.before, line.gained) == (None, None)


def _verdicts(labels: float, columns: float) -> list[Verdict]:
    """Labels and columns were guessed from 0.5 up to these figures."""
    return [
        judged("telco", "labels", "bank", [_compared(0.5, labels)], reason="", details="attacks"),
        judged("bank", "columns", "telco", [_compared(0.5, columns)], reason="", details="columns"),
    ]


def _to_do(labels: float, columns: float, **changes: object) -> dict[str, str]:
    """Direction → cure."""
    document = made(trees=1).model_copy(update={"verdicts": _verdicts(labels, columns), **changes})
    return {str(learned): cure for learned, cure in to_do(document).items()}


def test_what_to_do_follows_the_words() -> None:
    """Nothing where little or nothing was found; else a cure for each direction, of columns at least settings."""
    assert to_do(made(trees=1).model_copy(update={"verdicts": []})) == {}
    assert _to_do(0.5, 0.52) == {}
    labels = "To lower what others learned of labels: a defence: docs/defend.md.\n"
    labels += "To try it on yours:\n    treetap frontier FILE"
    columns = (
        "To lower what clinic learned of columns: fewer or flatter trees, or no sums over few records: docs/defend.md."
    )
    columns += "\nThe latter, in a feature party's file:\n    [defences]\n    min_cell_records = 10"
    assert _to_do(0.6, 0.52, advice=None) == {"labels": labels}
    assert _to_do(0.6, 0.9, advice=None) == {"labels": labels, "columns": columns}
    assert "min_cell_records" not in _to_do(0.5, 0.9, advice=None, protocol="pivodl")["columns"]


def test_a_cure_was_measured_where_a_frontier_has_one() -> None:
    """Of columns what takes most away; of labels the first that takes some, and opens no columns that are to close."""
    merged = point("min_cell_records", {"min_cell_records": 10}, 0.9, 0.6, read=0.2)
    noise = point("label_dp", {"epsilon": 1.0, "stages": 2}, 0.9, 0.25, read=0.96)
    shown = point("id_lmid", {"xi": 0.5}, 0.85, 0.3, read=0.5)
    job = AdvisedJob("boosting", "bank", ["telco"], 2, {}, "severe", {}, {})
    advice = advise(job, ("this table", frontier(merged, noise, shown, read=0.5)))
    assert advice.suggestions[0].defence == "label_dp"
    both, more = _to_do(0.6, 0.9, advice=advice), "Its lines: “What lowers this” in the report."
    assert both["columns"].splitlines() == [
        "To lower what clinic learned of columns: no sums over few records.",
        "On this very table it took away 75 % of the cells read.",
        more,
    ]
    assert both["labels"].splitlines() == [
        "To lower what others learned of labels: show others no group of records that tells much of their labels "
        "(ID-LMID).",
        "On this very table it took away 75 %.",
        more,
    ]
    assert "of which chance changes some (label DP)" in _to_do(0.6, 0.5, advice=advice)["labels"]
    page = html(made(trees=1).model_copy(update={"verdicts": _verdicts(0.6, 0.9), "advice": advice}))
    assert 'it took away 75&#160;% of the cells read.<br>\nIts lines: <a href="#lowers">What lowers this</a>.' in page


def test_excluded_bins_are_never_named() -> None:
    """Neither where nothing is claimed, nor by a claim: the most frequent bin that is left is."""
    codes = np.array([[0], [0], [0], [1], [2], [2]])
    possible = [np.ones((6, 4), dtype=bool)]
    possible[0][3:, 0] = False
    possible[0][3, 2] = False
    nothing, wrong = np.full((6, 1), -1), np.zeros((6, 1), dtype=np.int64)
    for guess in (nothing, wrong):
        assert cells_right({"it": guess}, codes, possible)["it"].tolist() == [1.0] * 6
    assert cells_right({"it": nothing}, codes)["it"].mean() == 0.5
    compared = present(compared_cells({"it": nothing}, codes, "columns", possible))
    assert (compared.before, compared.reached) == (0.5, 1.0)


def test_near_places_are_severe_where_exact_bins_are_not() -> None:
    """Every value is known to within two bins of 32, none exactly: the worse word is the verdict, both are shown."""
    draw = np.random.default_rng(3)
    codes = draw.integers(0, 32, (600, 2))
    near = codes + draw.choice([-2.0, -1.0, 1.0, 2.0], codes.shape)
    exact = compared_cells({"it": np.clip(near, 0, 31).astype(np.int64)}, codes, "columns")
    places = present(compared_places({"it": 3.0 * near + 7.0, "flipped": -near}, codes, [0, 1], "columns"))
    assert exact is not None
    assert (exact.word, places.word, places.before) == ("nothing found", "severe", 0.0)
    assert places.reached == pytest.approx(np.mean([np.corrcoef(near[:, j], codes[:, j])[0, 1] ** 2 for j in (0, 1)]))
    verdict = judged("bank", "columns", "telco", [exact, places], reason="", details="columns")
    (line,) = lines([verdict.model_copy(update={"other": exact})])
    assert (line.word, verdict.measure) == ("severe", "explained")
    assert [it.said.split(" % ")[1] for it in line.figures] == [
        *["of variation explained"] * 2,
        *["of cells right"] * 2,
    ]
    assert (line.figures[1].gained > 0, line.figures[3].gained) == (True, 0.0)


def test_places_that_know_nothing_are_seldom_found_to_tell() -> None:
    """Random places of 10 columns, 200 times."""
    draw, alarms = np.random.default_rng(4), 0
    for _ in range(200):
        codes, guess = draw.integers(0, 16, (150, 10)), draw.normal(size=(150, 10))
        compared = present(compared_places({"it": guess}, codes, range(10), "columns"))
        alarms += compared.word != "nothing found"
    assert alarms <= 10
