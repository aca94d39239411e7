"""`column_privacy` in forests and on a lattice: the trainer's trees with the drawn noise, its bounds, and the way."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.boosting.drawn_noise import DrawnNoise
from tests.boosting.test_column_privacy import BASE, _defences, _federation, _spec
from tests.library.trees.repairs import by_number
from tests.simulator import Message, finished
from tests.worlds import PARTIES, World, manifest, world
from treetap.errors import ConfigError, Malformed
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.party.defences.budgets import ColumnBudget
from treetap.party.defences.settings import ColumnPrivacyTable, Defences
from treetap.party.forest.feature_party import FeatureParty
from treetap.party.growth.column_noise import ColumnNoise
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_cells, most_draws
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.trees.candidates import CandidateList, Shape
from treetap.trees.centralised import CentralForest, train_forest
from treetap.trees.ensemble import Tree
from treetap.trees.forest_criterion import ForestCriterion, Targets
from treetap.trees.loss import UNIT
from treetap.trees.noised_sums import fair_decreases
from treetap.trees.params import ForestParams

LABEL_HOLDER, FEATURE, OTHER = PARTIES
FOREST = ForestParams(n_estimators=2, max_depth=3, max_bin=6)
BOOTSTRAP = replace(FOREST, bootstrap=True, subsample=1.0)
#: World, parameters, scheme, ε by feature party.
CASES: dict[str, tuple[dict[str, Any], ForestParams, str, tuple[float, ...]]] = {
    "drawn with replacement": ({"missing": 0.2}, BOOTSTRAP, PAILLIER, (5000.0, 3000.0)),
    "words of all trees": ({}, FOREST, LATTICE, (3000.0,)),
    "words of each tree": ({}, BOOTSTRAP, LATTICE, (5000.0, 5000.0)),
    "numbers": ({"objective": "reg:squarederror"}, replace(FOREST, criterion="squared_error"), PAILLIER, (5000.0,)),
    "numbers, drawn with replacement": (
        {"objective": "reg:squarederror"},
        replace(BOOTSTRAP, criterion="squared_error"),
        LATTICE,
        (9000.0,),
    ),
    "three classes, parties sit trees out": (
        {"objective": "multi:softprob", "classes": 3, "missing": 0.1},
        replace(FOREST, party_dropout={FEATURE: 0.3}),
        PAILLIER,
        (3000.0, 3000.0),
    ),
    "strong noise": ({}, BOOTSTRAP, PAILLIER, (60.0,)),
}


def _central(here: World, params: ForestParams, defences: dict[str, Defences], drawn: DrawnNoise) -> CentralForest:
    noised = {}
    for party, own in defences.items():
        assert own.column_privacy is not None
        privacy = ColumnPrivacy(own.column_privacy.epsilon, own.column_privacy.delta, own.column_privacy.trees)
        slots = here.classes if params.criterion == "gini" else 2
        noise = privacy.noise_of_forest(params, slots, most_draws(params, party, len(here.y)))
        noised[party] = noise, partial(drawn.of, "job", party)
    return train_forest(here.parties, here.y, params, here.classes, noised=noised)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_the_forest_of_the_drawn_noise(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees, leaves and split tables are the trainer's with that noise; noise is drawn for both children of a split."""
    of_world, params, scheme, epsilons = CASES[case]
    here, drawn, defences = world(80, (1, 3, 2), seed=4, **of_world), DrawnNoise(monkeypatch), _defences(epsilons)

    federation = _federation(tmp_path, here, defences)
    finished(await federation.train(_spec(params, scheme=scheme)))
    await federation.close()
    states = federation.states
    central = _central(here, params, defences, drawn)
    shards = {party: read_model(states[party] / "models" / "job")[1] for party in PARTIES}
    trees = [Tree.from_dict(line["tree"]) for line in shards[LABEL_HOLDER]]
    assert [by_number(tree) for tree in trees] == [by_number(tree) for tree in central.ensemble.trees]
    for party, lines in shards.items():
        kept = [
            OwnSplit.from_dict(split) for line in lines for split in line["own" if party == LABEL_HOLDER else "splits"]
        ]
        assert [(split.feature, split.bin, split.missing_left) for split in kept] == [
            (candidate.feature, candidate.bin, candidate.missing_left) for candidate, _ in central.splits[party]
        ]
    for party, own in defences.items():
        assert manifest(states[LABEL_HOLDER])["column_privacy"][party] == manifest(states[party])["column_privacy"]
        (charge,) = ColumnBudget(states[party], None).charges()
        assert own.column_privacy is not None
        assert charge.details["epsilon"] == own.column_privacy.epsilon
    won = {split.owner for tree in trees for split in tree.splits}
    assert won & set(defences) or case == "strong noise"
    nodes = {(party, tree, node) for _, party, tree, node in drawn.sums if node > 1}
    assert any((party, tree, node ^ 1) in nodes for party, tree, node in nodes)


def test_a_draw_that_noise_does_not_allow_is_refused() -> None:
    """Of a tree beyond the last one, or with sums of classes; see `test_expected_records` of other draws."""
    party: Any = object.__new__(FeatureParty)
    party._params, party._spec, party._sums_of_all = BOOTSTRAP, SimpleNamespace(aggregator=LABEL_HOLDER), False
    party._noise = object.__new__(ColumnNoise)
    party._noise._spec = party._spec
    party._check_noised(1)
    with pytest.raises(Malformed, match="sent a draw of tree 2, and the job has 2, by which column_privacy counts"):
        party._check_noised(2)
    party._sums_of_all = True
    with pytest.raises(ConfigError, match="column_privacy and id_lmid do not go together"):
        party._check_noised(1)


async def test_every_attempt_at_a_forest_on_a_lattice_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a sum leaves; after a kill the next attempt draws anew."""
    here, drawn, killed = world(60, seed=3), DrawnNoise(monkeypatch), list[Message]()
    own = ColumnPrivacyTable(epsilon=500.0, delta=1e-6, trees=2)

    defences = {FEATURE: Defences(column_privacy=own)}
    federation = _federation(tmp_path, here, defences, **{FEATURE: {"columns": {"column_budget": 5000.0}}})
    ledger = ColumnBudget(federation.configs[FEATURE].state, None)

    def kill(message: Message) -> None:
        if (message.word, message.sender, message.served) == ("candidate_sums", FEATURE, False) and not killed:
            assert len(ledger.charges()) == 1
            killed.append(message)
            federation.restart(FEATURE)

    federation.hook = kill
    assert (await federation.train(_spec(FOREST, scheme=LATTICE))).state == "interrupted"
    await asyncio.sleep(200)
    assert (await federation.resume("job")).state == "finished"
    assert [charge.occasion.attempt for charge in ledger.charges()] == [1, 2]
    await federation.close()
    assert drawn.attempts(FEATURE) == {1, 2}


@pytest.mark.parametrize("criterion", ["gini", "squared_error"])
def test_no_neighbour_changes_more_than_the_draws_allow(criterion: str) -> None:
    """Of all records, all bins and labels at their bounds, over all trees and levels: Δ² / 2 is ρ of the attempt."""
    params = replace(BOOTSTRAP, criterion=criterion, n_estimators=5, max_depth=2, seed=3)
    records, privacy = 12, ColumnPrivacy(4.0, 1e-6, 5)
    slots = 3 if criterion == "gini" else 2
    noise = privacy.noise_of_forest(params, slots, most_draws(params, FEATURE, records))
    values = np.eye(3, dtype=np.int64) if criterion == "gini" else np.array([[UNIT, 1], [-UNIT, 1], [0, 1]])
    worst = 0.0
    for record, value, (before, after) in itertools.product(
        range(records), values, itertools.permutations(range(3), 2)
    ):
        squared = 0.0
        for t in range(params.n_estimators):
            drawn = int(params.drawn(t, records)[record])
            cells = np.zeros((2, 3, slots), dtype=np.int64)
            cells[0, before] += drawn * value
            cells[1, after] += drawn * value
            change = (cells[0] - cells[1]) / np.array(noise.bounds)
            squared += params.max_depth * float((change**2).sum()) / float(noise.variance)
        worst = max(worst, squared / 2)
    assert worst == pytest.approx(privacy.rho)
    assert worst <= privacy.rho


def test_parts_of_a_draw_are_of_trees_that_the_party_sums() -> None:
    """Trees that it sits out count nothing; without replacement a record counts once in a tree."""
    params = replace(BOOTSTRAP, n_estimators=6, party_dropout={FEATURE: 0.5})
    there = [t for t in range(6) if params.takes_part(t, FEATURE)]
    assert 0 < len(there) < 6
    squares = np.sum([params.drawn(t, 50) ** 2 for t in there], axis=0)
    assert most_draws(params, FEATURE, 50) == squares.max() > most_draws(FOREST, FEATURE, 50)
    assert most_draws(replace(FOREST, n_estimators=9), FEATURE, 400) == 9


@pytest.mark.parametrize("classes", [2, 5, 0])
def test_noise_alone_makes_decreases_as_large_as_the_handicap_says(classes: int) -> None:
    """Two sides that are alike: at its largest, the mean is a sixth of the handicap; a side below the floor is none."""
    params = replace(FOREST, max_bin=32, criterion="gini" if classes else "squared_error")
    privacy, outputs = ColumnPrivacy(4.0, 1e-6, 2), classes or 1
    noise = privacy.noise_of_forest(params, classes or 2, 2)
    targets = Targets(np.zeros((1, outputs), dtype=np.int64), params.criterion, 1.0, 0.0)
    criterion, side = ForestCriterion(targets, params), 200_000
    shares = np.arange(1, classes + 1) / (classes * (classes + 1) / 2) if classes else np.array([0.3 * UNIT])
    left = np.array([*np.rint(side * shares), side]).astype(np.int64)
    left[-1] = left[:-1].sum() if classes else side
    candidates = CandidateList([Shape(32, False)])
    halves = drawn_cells(candidates, replace(noise, most_bins=32), 4000)[:, :, :16].sum(axis=2).T
    lefts = left + noise.in_tree(halves)
    parent = np.array([2 * left])
    gains = criterion.gains(lefts[None], parent)
    fair = fair_decreases(gains, lefts[None], parent, criterion, noise)
    ratio = float((gains - fair).mean() / gains.mean())
    assert 6 * (1 - 6 * np.sqrt(2 / 4000)) < ratio < 6 * (1 + 6 * np.sqrt(2 / 4000))
    small = left.copy()
    small[-1] = int(noise.deviation(outputs))
    assert fair_decreases(gains[:, :1], small[None, None], parent, criterion, noise) == -np.inf


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("noised", [False, True])
async def test_noise_has_nodes_summed_by_sets_at_all_parties(
    noised: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By queries the label holder would choose in which nodes a record counts."""
    here = world(60, seed=3)
    caplog.set_level("INFO")

    federation = _federation(tmp_path, here, _defences((500.0,)) if noised else {})
    assert (await federation.train(_spec(BASE, scheme=LATTICE))).state == "finished"
    await federation.close()
    assert f"nodes are summed by {'sets' if noised else 'queries'}" in caplog.text
