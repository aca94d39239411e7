from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.worlds import ids, planted, random_trees
from treetap.attacks.id2graph.clustering import Ints
from treetap.attacks.id2graph.grouping import Outcome
from treetap.attacks.id2graph.schema import Settings
from treetap.attacks.registry import GROUPING, OWN_CUTS, attack
from treetap.attacks.scores import score
from treetap.errors import BadInput
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.ensemble import route
from treetap.trees.params import BoostingParams

GRAPHS = ("id2graph", "id2graph-chunked", "id2graph-quotient")
LEAFY = ("uni", "uni+cl", *GRAPHS)


def labels_and_noise(seed: int, records: int = 240, classes: int = 3) -> tuple[Ints, np.ndarray]:
    """Random labels and features that tell nothing of them."""
    draw = np.random.default_rng(seed)
    return draw.integers(0, classes, records), draw.random((records, 2))


def grown(seed: int, records: int) -> list[list[Ints]]:
    """All leaves of three boosted trees on planted data."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(records, 4))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.3 * draw.normal(size=records) > 0).astype(np.int64)
    table = bin_table(x, list("abcd"), 16)
    model = train([("p", table)], y, BoostingParams(n_estimators=3, max_depth=4))
    trees = []
    for tree in model.ensemble.trees:
        splits = {s.node: model.entry(s)[0] for s in tree.splits}
        reached = route(
            tree.splits, records, lambda s, rows, by=splits: table.codes[rows, by[s.node].feature] <= by[s.node].bin
        )
        trees.append([np.flatnonzero(reached == leaf.node) for leaf in tree.leaves])
    return trees


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("name", LEAFY)
def test_leaves_that_separate_the_classes_give_them_away(name: str) -> None:
    """V = 1 whatever the features say, and without any."""
    labels, noise = labels_and_noise(0)
    leaves = planted(0, labels, 3, 1 if name.startswith("uni") else 2, 0.0)
    for features in (noise, None):
        found = attack(name, leaves, 240, features, 3, Settings(chunk_edges="linked"))
        assert score(labels, found.clusters).v_measure == pytest.approx(1.0)


@pytest.mark.parametrize("name", [name for name in GROUPING if name not in ("uni", OWN_CUTS)])
def test_leaves_that_ignore_the_labels_give_nothing_away(name: str) -> None:
    """V ≈ 0."""
    labels, features = labels_and_noise(1, 600)
    found = attack(name, random_trees(1001, 600, 4, 6), 600, features, 3)
    assert score(labels, found.clusters).v_measure < 0.03


def test_features_that_separate_give_cl_the_labels() -> None:
    """The baseline works without any leaf."""
    labels, noise = labels_and_noise(2)
    found = attack("cl", [], 240, np.column_stack([labels * 10.0, labels * 10.0 + noise[:, 0]]), 3)
    assert score(labels, found.clusters).v_measure == pytest.approx(1.0)
    assert found.groups is None


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("seed", "records"), [(0, 120), (1, 160), (2, 200)])
def test_exact_and_quotient_forms_reach_the_same_modularity(seed: int, records: int) -> None:
    """On the leaves of boosted trees; chunks as large as the leaves change nothing either."""
    leaves = grown(seed, records)
    reached = [attack(name, leaves, records, None, 2, Settings(discount=0.6)) for name in GRAPHS]
    assert reached[2].vertices < reached[0].vertices == records  # type: ignore[operator]
    assert max(r.modularity for r in reached) - min(r.modularity for r in reached) < 1e-9  # type: ignore[type-var,operator]


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("name", [name for name in GROUPING if name != OWN_CUTS])
def test_a_seed_repeats_an_attack(name: str) -> None:
    """Labels, groups and parameters are the same twice."""
    leaves, features = random_trees(3, 90, 3, 5, unknown=0.1), labels_and_noise(3, 90)[1]
    one, two = (attack(name, leaves, 90, features, 4, Settings(seed=9)) for _ in range(2))
    assert one.clusters.tolist() == two.clusters.tolist()
    assert one.parameters == two.parameters
    assert one.clusters.shape == (90,)


@pytest.mark.parametrize("name", LEAFY)
def test_records_in_no_leaf_are_groups_of_their_own_or_one(name: str) -> None:
    """Empty leaves, empty trees and records that no leaf holds: one group to UNI, vertices without an edge else."""
    leaves = [[ids(0, 1, 2), ids()], [], [ids(3, 4)]]
    found = attack(name, leaves, 8, np.arange(8.0)[:, None], 2)
    united = name.startswith("uni")
    assert found.found == (3 if united else 5)
    assert len(set(present(found.groups)[5:].tolist())) == (1 if united else 3)
    assert found.alone == (None if united else 3)
    # a defence may show nothing: the features are all there is
    nothing = attack(name, [[], []], 6, np.array([[0.0], [0], [0], [9], [9], [9]]), 2)
    assert nothing.found == (1 if united else 6)
    assert nothing.clusters.shape == (6,)


def test_custom_features_are_what_is_clustered() -> None:
    """One good column among noise: the attack with that column alone finds the labels; a missing value is borne."""
    labels, noise = labels_and_noise(4)
    features = np.column_stack([noise * 50, labels + 0.0])
    features[3, 2] = np.nan
    alone = attack("cl", [], 240, features, 3, Settings(columns=(2,)))
    assert score(labels, alone.clusters).v_measure > 0.97
    assert alone.parameters["columns"] == (2,)
    with pytest.raises(BadInput, match="columns names 7"):
        attack("cl", [], 240, features, 3, Settings(columns=(2, 7)))


def test_discount_and_alpha_matter() -> None:
    """A discount near 0 leaves the first tree, α = 0 leaves the features."""
    labels, other = labels_and_noise(6)[0], np.random.default_rng(60).integers(0, 3, 240)
    leaves = [*planted(6, labels, 1, 1, 0.0), *planted(7, other, 3, 1, 0.0)]
    first = attack("id2graph-quotient", leaves, 240, None, 3, Settings(discount=0.01))
    even = attack("id2graph-quotient", leaves, 240, None, 3, Settings(discount=1.0))
    assert score(labels, first.clusters).v_measure == pytest.approx(1.0)
    assert score(other, even.clusters).v_measure == pytest.approx(1.0)
    features = np.column_stack([other * 1.0])
    deaf = attack("id2graph-quotient", leaves[:1], 240, features, 3, Settings(alpha=0.0))
    assert score(other, deaf.clusters).v_measure == pytest.approx(1.0)


def test_chunks_change_the_graph_and_are_recorded() -> None:
    """Small chunks lower what is joined; the outcome tells what it was made with."""
    labels, features = labels_and_noise(7)
    leaves = planted(7, labels, 2, 1, 0.0)
    found: Outcome = attack("id2graph-chunked", leaves, 240, features, 3, Settings(chunk_size=10, chunk_weight=1.0))
    assert present(found.found) > 3
    assert found.parameters["chunk_size"] == 10
    assert found.parameters["chunk_edges"] == "paper"
    assert set(found.seconds) == {"graph", "communities", "clustering"}


@pytest.mark.parametrize("clusters", [0, 1, 7, 2.0, True, "2"])
def test_a_wrong_number_of_clusters_is_refused(clusters: object) -> None:
    """C is a whole number from 2 to N."""
    with pytest.raises(BadInput, match=r"clusters: must be a whole number in \[2, 6\]"):
        attack("uni", [], 6, None, clusters)  # type: ignore[arg-type]


def test_unknown_attacks_and_missing_features_are_refused() -> None:
    """The message lists what there is."""
    with pytest.raises(BadInput, match="known are cl, uni"):
        attack("id2grph", [], 6, None, 2)
    with pytest.raises(BadInput, match="give its table"):
        attack("cl", [], 6, None, 2)


def test_too_large_for_the_exact_form_is_refused_before_any_memory_is_taken() -> None:
    """A million records in one leaf: the message names the forms that can."""
    with pytest.raises(BadInput, match="use id2graph-quotient"):
        attack("id2graph", [[np.arange(1_000_000)]], 1_000_000, None, 2)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("discount", 0.0, r"discount must be a number in \(0, 1\]"),
        ("discount", 1.5, r"discount must be a number in \(0, 1\]"),
        ("alpha", -1.0, r"alpha must be a number in \[0"),
        ("alpha", float("nan"), "alpha must be a number"),
        ("chunk_size", 1, "chunk_size must be a whole number"),
        ("chunk_size", 10.0, "chunk_size must be a whole number"),
        ("chunk_weight", "100", "chunk_weight must be a number"),
        ("chunk_edges", "both", "chunk_edges must be one of paper, linked"),
        ("columns", [], "columns must be distinct column numbers"),
        ("columns", [1, 1], "columns must be distinct column numbers"),
        ("columns", "0", "columns must be distinct column numbers"),
        ("seed", -1, "seed must be a whole number"),
        ("runs", True, "runs must be a whole number"),
        ("alfa", 3.0, "unknown: alfa; known: discount"),
    ],
)
def test_bad_settings_are_refused(field: str, value: object, complaint: str) -> None:
    """By field, with the range."""
    with pytest.raises(BadInput, match=complaint):
        Settings.read({field: value})


def test_all_wrong_settings_are_told_together() -> None:
    """One message for two faults; a list of columns is welcome."""
    with pytest.raises(BadInput, match=r"alpha .*; chunk_edges"):
        Settings.read({"alpha": -1, "chunk_edges": "x"})
    assert Settings.read({"columns": [2, 0]}).columns == (2, 0)


def test_listing_the_attacks_loads_no_heavy_library() -> None:
    """--help must not wait for scikit-learn and scipy."""
    code = "import sys, treetap.attacks.registry; sys.exit(len({'scipy', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
