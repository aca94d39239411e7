"""Attacks that know no label: planted splits and leaves give the order of labels away, and chance gives nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.worlds import evidence as evidence_of
from tests.attacks.worlds import planted, random_trees, views
from treetap.attacks.id2graph.schema import RankedResult
from treetap.attacks.known_labels import naming
from treetap.attacks.known_labels.evidence import SignatureEvidence, compared_names, of_others
from treetap.attacks.known_labels.naming import extreme_end, principal, turned
from treetap.attacks.known_labels.rows import Members
from treetap.attacks.registry import Needs, row, rows
from treetap.attacks.report.verdict import lines
from treetap.attacks.verdict import Compared, best_of, half_width, judged
from treetap.attacks.view.known_trees import Ints, KnownNode, OwnSplit, TreeView, WholeCut

ORDERS = ("first-component", "vote", "heaviest-cut")
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


def _with_splits(sides: Sequence[Bools]) -> list[TreeView]:
    """A tree for each split of its root: instance spaces are withheld, and the root is another party's."""
    trees = []
    for index, left in enumerate(sides):
        split = OwnSplit(2, index, 0, "own", 1, 0.5, missing_left=False)
        cut = WholeCut(2, np.flatnonzero(left), split)
        nodes = {1: KnownNode(1, np.arange(len(left)), "root")}
        trees.append(TreeView(index, 0, True, len(left), nodes, None, (cut,)))
    return trees


def _noisy(labels: Ints, trees: int, astray: float, seed: int = 0) -> list[Bools]:
    """Splits that follow the second class, a share of the records astray, every other one with its sides exchanged."""
    draw = np.random.default_rng(seed)
    return [(labels == 1) ^ (draw.random(len(labels)) < astray) ^ bool(k % 2) for k in range(trees)]


def _found(evidence: SignatureEvidence, names: Sequence[str] = ORDERS) -> dict[str, RankedResult]:
    results = {name: row(name).run(evidence) for name in names}
    return {name: result for name, result in results.items() if result is not None}


LABELS = (np.random.default_rng(3).random(600) < 0.2).astype(np.int64)


def test_orders_group_records() -> None:
    """A vote of good splits groups most records rightly, a column that is the label all of them, drawn splits none."""
    alike = (np.random.default_rng(4).random(600) < 0.5).astype(np.int64)
    for labels in (alike, LABELS):
        by = _found(evidence_of(_with_splits(_noisy(labels, 12, 0.2)), labels, labels[:, None] * 9.0))
        assert (by["first-component"].by["splits"].v_measure or 0) > 0.4
        assert (by["vote"].by["splits-alike"].v_measure or 0) > 0.7
        assert by["first-component"].by["columns"].v_measure == pytest.approx(1)
    drawn = _found(evidence_of(_with_splits(_noisy(LABELS, 12, 0.5)), LABELS))
    assert all((it.v_measure or 0) < 0.05 for result in drawn.values() for it in result.by.values())


def test_splits_that_follow_the_labels_give_their_order_away() -> None:
    """A split alone has a third astray; the vote and the component of twelve are near the truth, withheld as they are.

    No label is known: the sizes of the classes tell the side, and so do those labels that are known.
    """
    evidence = evidence_of(_with_splits(_noisy(LABELS, 12, 1 / 3)), LABELS)
    found = _found(evidence)
    for name, kind, low, high in (
        ("heaviest-cut", "splits", 0.58, 0.75),
        ("vote", "splits-alike", 0.9, 1.0),
        ("first-component", "nodes", 0.9, 1.0),
        ("first-component", "splits", 0.75, 1.0),
    ):
        it = found[name].by[kind]  # type: ignore[index] # a literal
        assert low < it.auc < high, (name, kind)
        assert it.by_sizes, (name, kind)
        assert present(it.by_known) > 0.8, (name, kind)
    (compared,) = compared_names(evidence)
    assert (compared.word, compared.known, compared.floor) == ("severe", None, "")
    assert compared.reached == max(it.auc for result in found.values() for it in result.by.values())
    assert compared.reached_how.endswith(", no label known")
    assert compared.tries == sum(2 * len(result.by) for result in found.values())
    (line,) = lines([judged("telco", "labels", "bank", [compared], reason="", details="known")])
    assert "labels known" not in line.gain


def test_leaves_that_follow_the_labels_give_their_order_away() -> None:
    """Of two classes and of several, each against the rest; a party that won no split has no vote."""
    for classes in (2, 4):
        labels = np.random.default_rng(5).choice(classes, 800, p=[0.7, *[0.3 / (classes - 1)] * (classes - 1)])
        evidence = evidence_of(views(planted(1, labels, 8, 2, 0.2), 800), labels)
        found = _found(evidence)
        assert found.keys() == {"first-component"}
        assert evidence.reasons == dict.fromkeys(("vote", "heaviest-cut"), "the party won no split")
        best = max(it.auc for it in found["first-component"].by.values())
        assert best > (0.95 if classes == 2 else 0.75)
        assert all((it.accuracy is None) == (classes > 2) for it in found["first-component"].by.values())


def test_what_has_nothing_to_do_with_the_labels_gives_nothing_away() -> None:
    """Splits, leaves and columns by lot, 15 times: the best of all is within chance of the best before the training."""
    alarms = 0
    for seed in range(15):
        draw = np.random.default_rng([seed, 7])
        labels = (draw.random(300) < 0.2).astype(np.int64)
        trees = _with_splits([draw.random(300) < 0.5 for _ in range(4)])
        trees += views(random_trees(seed, 300, 3, 6), 300)
        evidence = evidence_of(trees, labels, draw.normal(size=(300, 3)))
        found = _found(evidence)
        assert all(0.5 <= it.auc < 0.65 for result in found.values() for it in result.by.values())
        (compared,) = compared_names(evidence)
        alarms += compared.word != "nothing found"
    assert alarms <= 1


def test_own_columns_count_as_what_was_there_before() -> None:
    """Columns that are the label up to some noise order records as well before the training as splits of them after."""
    draw = np.random.default_rng(2)
    columns = np.stack([LABELS + draw.normal(0, 0.5, 600) for _ in range(3)], axis=1)
    columns[::9, 0] = np.nan
    evidence = evidence_of(_with_splits([column < 0.5 for column in columns.T]), LABELS, columns)
    found = _found(evidence)
    before = max(found["vote"].by["columns"].auc, found["first-component"].by["columns"].auc)
    assert before > 0.95
    (compared,) = compared_names(evidence)
    assert compared.before == pytest.approx(before)
    assert (compared.before_how, compared.word) == ("own columns", "nothing found")


def test_a_side_that_sizes_do_not_tell_is_said_to_be_of_known_labels() -> None:
    """A split parts a quarter of the records, none of the rarer class: sizes mislead, and known labels do not."""
    draw = np.random.default_rng(4)
    apart = draw.random(800) < 0.25
    labels = (~apart & (draw.random(800) < 0.3)).astype(np.int64)
    evidence = evidence_of(_with_splits([apart]), labels)
    it = _found(evidence)["heaviest-cut"].by["splits"]
    assert it.auc == pytest.approx(0.5 + 0.5 * apart.sum() / (labels == 0).sum())
    assert it.by_sizes is False
    assert present(it.by_known) > 0.8
    (compared,) = compared_names(evidence)
    assert (compared.known, compared.drawn) == (40, None)
    assert compared.reached_how.endswith(f", its side by known labels in {100 * present(it.by_known):.0f} % of draws")


def test_a_rare_class_of_several_counts_by_its_better_side() -> None:
    """No known label is of the third class, and a verdict counts every choice of the three sides as a try."""
    labels = np.array([0] * 290 + [1] * 290 + [2] * 20)
    first, third = _noisy((labels == 0).astype(np.int64), 1, 0.1)[0], labels == 2
    evidence = evidence_of(_with_splits([first | third] * 3), labels, draws=1, known=5)
    assert not (evidence.truth[evidence.drawn[0][0]] == 2).any()
    found = _found(evidence)["heaviest-cut"].by["splits"]
    named = evidence.named["heaviest-cut", "splits"]
    assert found.auc > 0.8
    assert found.by_known == pytest.approx(2 / 3)
    assert named.tries == 8
    assert named.told == "its sides by known labels in 67 % of classes and draws"
    assert np.isfinite(half_width(0.01, 2**62 * 5))


def test_a_party_that_labels_records_orders_those_of_others() -> None:
    """Records of its own are not scored: with their labels wrong the figures are the same."""
    own = np.arange(100)
    wrong = LABELS.copy()
    wrong[own[:60]] = 1 - wrong[own[:60]]
    sides = _with_splits(_noisy(LABELS, 8, 0.3))
    aucs = []
    for labels in (LABELS, wrong):
        evidence = evidence_of(sides, labels)
        evidence = replace(evidence, known=of_others(evidence.known, own))
        aucs.append(_found(evidence)["vote"].by["splits"].auc)
        assert [it.floor for it in compared_names(evidence)] == [""]  # what is not scored is not left out
    assert aucs[0] == aucs[1] > 0.7


def test_what_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records and the lightest splits beyond the bounds: the figure is called a floor, with what was left out."""
    monkeypatch.setattr(naming, "_MOST_NUMBERS", 600)
    evidence = evidence_of(_with_splits(_noisy(LABELS, 12, 0.3)), LABELS, most_records=60, draws=2)
    found = _found(evidence)
    many = len(evidence.places)
    assert {result.left_out for result in found.values()} == {12 - 600 // many}
    (compared,) = compared_names(evidence)
    assert compared.floor == (
        f"a floor, by {many} of 600 records and own splits without the {12 - 600 // many} lightest, which do not fit; "
        "to read more:\n    most_records = 600  # in [known_labels]"
    )
    (line,) = lines([judged("telco", "labels", "bank", [compared], reason="", details="known")])
    assert "\n".join([line.more, *line.paste]) == compared.floor
    assert line.notes[-1] == "at least so much: the attack stopped early; to read all:"


def test_principal_components_are_those_of_the_covariance() -> None:
    """Of a dense matrix and of sets, beside numpy's eigenvectors; of one column the column itself."""
    draw = np.random.default_rng(0)
    dense = draw.normal(size=(300, 30)) * np.linspace(0.2, 4, 30) ** 2 + 3
    inside, weights = draw.random((300, 30)) < np.linspace(0.1, 0.9, 30), np.linspace(0.2, 4, 30) ** 2
    members = Members.of(list(map(np.flatnonzero, inside.T)), weights, 300)
    for points, given in ((dense, dense), (inside * weights, members)):
        values = np.linalg.eigh(np.cov(points.T))[1][:, ::-1]
        found = principal(given, 2)
        for place in range(2):
            exact = (points - points.mean(axis=0)) @ values[:, place]
            assert abs(np.corrcoef(found[:, place], exact)[0, 1]) > 0.999
    assert abs(np.corrcoef(principal(dense[:, :1], 2)[:, 0], dense[:, 0])[0, 1]) > 0.999


def test_points_are_turned_and_ends_told_by_hand() -> None:
    """A point against the heaviest, with it, and without any relation; two of five that stand out."""
    points = np.array([[1, -1, 1], [1, -1, -1], [-1, 1, 1], [-1, 1, -1]])
    assert turned(points, 0).tolist() == [1, -1, 0]
    assert extreme_end(np.array([0.0, 0.1, 0.2, 5.0, 6.0]), 2)
    assert not extreme_end(np.array([-6.0, -5.0, 0.0, 0.1, 0.2]), 2)


def test_the_best_of_all_comparisons_is_the_verdict() -> None:
    """After: the largest; before: the largest, of whichever; tries add up, the error is no smaller, floors are said."""

    def compared(before: float, reached: float, error: float, **more: object) -> Compared:
        given = {
            "measure": "AUC",
            "before_how": f"before {before}",
            "reached_how": f"after {reached}",
            "details": "known",
        }
        return Compared.model_validate(given | {"before": before, "reached": reached, "error": error} | more)

    low = compared(0.6, 0.8, 0.01, tries=3, known=40, drawn=0.02, floor="a floor, by x")
    high = compared(0.5, 0.9, 0.005, tries=4)
    best = best_of([low, high])
    assert (best.before, best.before_how, best.reached, best.reached_how) == (0.6, "before 0.6", 0.9, "after 0.9")
    assert (best.error, best.tries, best.known, best.floor) == (0.01, 7, 40, "a floor, by x")
    assert best_of([high]) == high
    assert best.interval[0] <= high.interval[0]


def test_every_attack_by_trees_takes_part_in_the_verdict() -> None:
    """Each row that names or orders records leaves something for the comparison."""
    evidence = evidence_of(_with_splits(_noisy(LABELS, 3, 0.3)), LABELS, draws=1)
    for attack in rows(Needs.KNOWN_LABELS).values():
        attack.run(evidence)
    assert {name for name, _ in evidence.named} == set(rows(Needs.KNOWN_LABELS))
