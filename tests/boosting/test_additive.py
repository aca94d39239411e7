"""Additive models: federations find the oracle's, by best gain and in turns, and count the cells that left sets place.

What the word decides and refuses; XGBoost's trees of depth 1 are the same.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treetap
from tests.attacks.sums.test_opened_sums import opened_by, trained
from tests.attacks.sums.test_reading import figures_of, truth_of
from tests.boosting.categories import categorical_world
from tests.commands import command
from tests.library.trees.boosters import as_input, boosted, told_apart, xgb
from tests.library.trees.tables import encoded, labels_for, signal, table
from tests.oracle import OracleSplit, oracle_predict, oracle_train
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, World, assert_oracles_model, manifest, spec, weighted, world
from treetap.attacks.audit import _of_victim
from treetap.attacks.report.sums import words
from treetap.attacks.report.verdict import lines
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import ConfigError
from treetap.models.store import PLACED
from treetap.party.defences.settings import Defences, IdLmid, ReducedLeakage
from treetap.protocols.job_spec import check_spec, taking_part
from treetap.protocols.key_options import LATTICE
from treetap.trees.binning import bin_table
from treetap.trees.candidates import Candidate
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams
from treetap.trees.placed_cells import placed_by_tree

LABEL_HOLDER, FEATURE, OTHER = PARTIES
BEST = BoostingParams(n_estimators=6, max_depth=1, max_bin=6, min_child_weight=0.1, model="additive")
TURNS = replace(BEST, n_estimators=9, cycle=(LABEL_HOLDER, FEATURE, OTHER, FEATURE))
ON_LATTICE: dict[str, Any] = {"scheme": LATTICE, "key_bits": 0, "obfuscation": ""}
PRIVATE: dict[str, Any] = {**ON_LATTICE, "sums": "shared", "dealer": "dealer"}
THREE = partial(world, 70, (1, 2, 3), missing=0.2, seed=3)
CLASSES = partial(world, 80, (1, 2, 2), objective="multi:softprob", classes=3, missing=0.1)


def _weighted() -> World:
    here = world(70, (1, 2, 2), missing=0.1, seed=3)
    return weighted(here, np.random.default_rng(1).integers(0, 12, len(here.y)) / 4)


@dataclass(frozen=True)
class Case:
    """A job and its world; `directions` of each party's columns, `job` beside the parameters."""

    params: BoostingParams
    world: Callable[[], World] = THREE
    directions: list[list[int]] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "turns": Case(TURNS),
    "best gain": Case(BEST),
    "best gain of drawn records and columns": Case(replace(BEST, subsample=0.7, colsample_bytree=0.6)),
    "early stopping": Case(replace(BEST, n_estimators=20, early_stopping_rounds=2, validation_share=0.3)),
    "turns, early stopping": Case(replace(TURNS, n_estimators=20, early_stopping_rounds=3, validation_share=0.3)),
    "monotone": Case(BEST, directions=[[-1], [1, 0], [0, -1, 1]]),
    "turns, monotone": Case(TURNS, directions=[[-1], [1, 0], [0, -1, 1]]),
    "weights": Case(replace(BEST, max_sample_weight=4.0, scale_pos_weight=1.5), _weighted),
    "turns, weights": Case(replace(TURNS, max_sample_weight=4.0), _weighted),
    "a tree for each class": Case(replace(BEST, objective="multi:softprob", n_estimators=3), CLASSES),
    "turns, classes in vector leaves": Case(
        replace(TURNS, objective="multi:softprob", multi_strategy="multi_output_tree"), CLASSES
    ),
    "numbers": Case(
        replace(BEST, objective="reg:squarederror", reg_alpha=0.5),
        partial(world, 60, (2, 1, 2), objective="reg:squarederror", missing=0.1),
    ),
    "categories": Case(BEST, partial(categorical_world, missing=0.1), options={"encode": "categorical"}),
    "turns on a lattice": Case(TURNS, job=ON_LATTICE),
    "turns, withdrawn nodes": Case(TURNS, options={"defences": {LABEL_HOLDER: Defences(id_lmid=IdLmid(xi=0.05))}}),
    "turns, own trees": Case(
        TURNS, options={"defences": {LABEL_HOLDER: Defences(reduced_leakage=ReducedLeakage(trees=3))}}
    ),
    "turns, private": Case(replace(TURNS, instance_spaces="withheld"), job=PRIVATE, options={"dealer": True}),
    "private": Case(replace(BEST, instance_spaces="withheld"), job=PRIVATE, options={"dealer": True}),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_the_oracles_model(case: str, tmp_path: Path) -> None:
    """Node for node; each feature party's manifest has the shares of cells that its true splits place."""
    it = CASES[case]
    here, params = it.world(), it.params
    marked = {name: own for name, own in zip(PARTIES, it.directions, strict=False) if any(own)}
    weights = None if here.weights is None else list(here.weights)
    more: dict[str, Any] = {"weights": weights, "categories": here.categories, "monotone": marked or None}
    for defences in it.options.get("defences", {}).values():
        more |= {"xi": defences.id_lmid.xi} if defences.id_lmid else {"own_trees": defences.reduced_leakage.trees}
    oracle = oracle_train(here.parties, list(here.y), params, here.classes, **more)
    splits = [node for tree in oracle for node in tree.nodes.values() if isinstance(node, OracleSplit)]
    assert len({split.owner for split in splits}) > 1

    constraints = {
        party: {here.tables[party][0][j]: direction for j, direction in enumerate(own) if direction}
        for party, own in marked.items()
    }
    federation = Federation(tmp_path, here.tables, constraints=constraints, **it.options)
    finished(await federation.train(spec(params, len(here.blocks), **it.job)))
    assert_oracles_model(federation.states, oracle)
    own = manifest(federation.state(LABEL_HOLDER))["params"]
    assert (own["max_depth"], own["model"], tuple(own["cycle"])) == (1, "additive", params.cycle)
    for party in PARTIES[1:]:
        shares = manifest(federation.state(party))[PLACED]
        assert len(shares) == len(oracle)
        assert shares == sorted(shares)
        assert (shares[-1] > shares[0]) <= any(split.owner == party for split in splits)


def test_by_best_gain_it_is_xgboosts() -> None:
    """Margins of depth 1 on the joined bins, missing values among them; no split ties."""
    parties = table(seed=2, n=150, widths=[3, 2], missing=0.2)
    labels = labels_for("binary:logistic", signal(parties, 22), 2)
    params, tables = replace(BEST, max_bin=12, n_estimators=8, base_score=0.5), encoded(parties, 12)
    oracle = told_apart(parties, list(labels), params)
    _, theirs = boosted(xgb.DMatrix(as_input(tables), label=labels), params)
    np.testing.assert_allclose(oracle_predict(oracle, parties), theirs, atol=1e-5)
    np.testing.assert_allclose(train(tables, labels, params).predict(tables), theirs, atol=1e-5)


def test_turns_go_round_the_parties_and_each_ones_columns() -> None:
    """Whose turn it is, with which column, by the cycle and the party's number of columns alone."""
    turns = [
        (party, TURNS.columns(tree, party, count).tolist())
        for tree in range(9)
        for party, count in zip(PARTIES, (1, 2, 3), strict=True)
        if TURNS.columns(tree, party, count).size
    ]
    holder, own, other = turns[0::4], turns[1::2], turns[2::4]
    assert holder == [(LABEL_HOLDER, [0])] * 3
    assert own == [(FEATURE, [0]), (FEATURE, [1])] * 2
    assert other == [(OTHER, [0]), (OTHER, [1])]
    assert [taking_part(spec(TURNS), tree) for tree in range(4)] == [[], [FEATURE], [OTHER], [FEATURE]]
    assert TURNS.columns(1, FEATURE, 0).size == 0


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"model": "additive", "max_depth": 4}, 'model = "additive" decides max_depth = 1: remove max_depth = 4'),
        ({"model": "additiv"}, "model must be one of trees, additive, not 'additiv'; did you mean"),
        ({"model": "additive", "protocol": "forest"}, "protocol 'forest' has no parameter model"),
        ({"cycle": ["a", "b"]}, "cycle gives each tree .* does not go with model = 'trees'"),
        ({"model": "additive", "cycle": ["a"], "colsample_bytree": 0.5}, "does not go with colsample_bytree = 0.5"),
        ({"model": "additive", "cycle": ["a"], "party_dropout": {"a": 0.5}}, "not go with parties that sit trees out"),
        (
            {"model": "additive", "cycle": ["a"], "objective": "multi:softprob"},
            "does not go with multi_strategy = 'one_output_per_tree' with several classes",
        ),
    ],
)
def test_what_does_not_go_together_is_named(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        JobTable.model_validate(keys)


def test_the_word_decides_the_depth() -> None:
    """Also beside the depth that it decides; parameters that do not come from a file are checked too."""
    for given in ({}, {"max_depth": 1}):
        assert JobTable.model_validate({"model": "additive", **given}).params().max_depth == 1
    with pytest.raises(ConfigError, match="decides max_depth = 1: remove max_depth = 6"):
        BoostingParams(model="additive").validate()


@pytest.mark.parametrize(
    ("params", "changes", "fault"),
    [
        (replace(BEST, instance_spaces="withheld"), ON_LATTICE, "every node that is split is a root"),
        (replace(TURNS, cycle=(LABEL_HOLDER, FEATURE)), {}, "names the job's parties"),
        (replace(TURNS, cycle=(*TURNS.cycle, "nobody")), {}, "names the job's parties"),
    ],
)
def test_jobs_that_no_party_takes(params: BoostingParams, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        check_spec(spec(params, **changes))
    check_spec(spec(replace(BEST, instance_spaces="withheld"), **PRIVATE))


def test_only_an_additive_model_is_gone_on_with() -> None:
    """The sum of both models' trees is to be additive."""
    before = BoostingParams(max_depth=1).to_dict()
    assert "goes on with an additive model alone" in BEST.continuation_faults(before)[0]
    assert not BEST.continuation_faults(BEST.to_dict())
    assert not BoostingParams().continuation_faults(BEST.to_dict())


def test_a_cell_is_placed_where_cuts_leave_one_bin_that_occurs() -> None:
    """Of four bins, one of which no record of the training has, and missing values."""
    rows = np.array([[0, 1, 3, 3, np.nan, np.nan, 2], [0, 0, 1, 1, 1, 1, 1.0]]).T
    binned = bin_table(rows, ["a", "b"], 8)
    first, last = Candidate(0, 0, missing_left=False), Candidate(0, 1, missing_left=True)
    # 0 alone; then 1 and missing values lie between the cuts, and above them 3 without 2
    shares = placed_by_tree(binned, 6, [[], [first], [first], [last]])
    np.testing.assert_allclose(shares, [0, 1 / 12, 1 / 12, 3 / 12])
    assert placed_by_tree(binned, 6, [[Candidate(1, 0, missing_left=False)]]).tolist() == [0.5]
    assert placed_by_tree(bin_table(np.empty((6, 0)), [], 8), 6, [[]]).tolist() == [0.0]


@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_a_party_reads_its_own_count_and_an_audit_finds_the_same(tmp_path: Path) -> None:
    """`treetap leakage` at a feature party; the audit's left sets, linked to its columns, place as many cells."""
    here = world(120, (1, 3, 2), missing=0.1, seed=5)
    states = trained(tmp_path / "job", here, replace(BEST, n_estimators=12, max_bin=4))
    opened = opened_by(states)
    for party in PARTIES[1:]:
        shares = manifest(states[party])[PLACED]
        read = figures_of(opened, truth_of(here, party, 4), party, steps=0)
        assert read.placed_after is not None
        assert [it.trees for it in read.placed_after] == [1, 2, 5, 10, 12]
        expected = [shares[it.trees - 1] for it in read.placed_after]
        assert [it.placed for it in read.placed_after] == pytest.approx(expected)
        told = f"{100 * expected[2]:.1f} % after 5, {100 * expected[3]:.1f} % after 10"
        (line,) = lines([_of_victim(LABEL_HOLDER, party, read, "", "columns")])
        assert told in line.more
        assert told in words(party, read)
    (tmp_path / "own.toml").write_text(f'name = "{FEATURE}"\nstate = "own"\ninsecure = true\n')
    shutil.copytree(states[FEATURE], tmp_path / "own")
    shares = manifest(states[FEATURE])[PLACED]
    ask = ("leakage", "job", "--config", tmp_path / "own.toml")
    assert json.loads(command.treetap(*ask, "--json").out) == {"job": "job", "party": FEATURE, PLACED: shares}
    assert shares[-1] > 0
    assert f"{100 * shares[-1]:.1f} %" in command.treetap(*ask).out


def test_estimators_take_the_word_and_turns() -> None:
    """What a column adds to the score depends on no other; a depth beside the word is refused by name."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(200, 5))
    y = (X[:, 0] + X[:, 2] - X[:, 3] > 0).astype(int)
    given: dict[str, Any] = {"parties": {"bank": [0, 1], "telco": [2, 3, 4]}, "simulate": True, "verbose": False}
    given |= {"model": "additive", "cycle": ("bank", "telco"), "n_estimators": 10}
    model = treetap.FederatedClassifier(**given).fit(X, y)
    assert model.score(X, y) > 0.8

    def scores(first: float) -> Any:
        chances = model.predict_proba(np.c_[np.full(len(X), first), X[:, 1:]])[:, 1]
        return np.log(chances / (1 - chances))

    added = scores(2.0) - scores(-2.0)
    assert added[0] > 0
    np.testing.assert_allclose(added, added[0])
    for wrong, fault in (({"max_depth": 4}, "remove max_depth = 4"), ({"cycle": ["bank"]}, "each at least once")):
        with pytest.raises(ValueError, match=fault):
            treetap.FederatedClassifier(**given | wrong).fit(X, y)
