"""One cell of the reproduction: a model with a defence, what the other party sees of it, attacks, AUC, ciphertexts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from ciphertexts import Counting, as_the_paper, on_the_wire
from defended_cells import Cell
from id2graph_trial import ATTACKER, HOLDER
from two_parties import World, noisy_labels, params_of, world_of

from treetap.arrays import Bools, Ints
from treetap.attacks.id2graph.clustering import Leaves
from treetap.attacks.id2graph.schema import Settings, usual_discount
from treetap.attacks.registry import EXACT_UP_TO, attack
from treetap.attacks.scores import score
from treetap.attacks.view.known_trees import expected_views
from treetap.lab.experiment import joint_model
from treetap.lab.experiment.defence_points import measured, repaired
from treetap.models.own_split import OwnSplit
from treetap.protocols.registry import training as protocol_of
from treetap.trees import metrics
from treetap.trees.centralised import CentralTrees
from treetap.trees.ensemble import ROOT, Ensemble, Split, route
from treetap.trees.withholding import NOTHING, Withholding

#: The length of the keys for which ciphertexts are counted.
KEY_BITS = 2048
ATTACKS = ("id2graph", "uni", "uni+cl", "cl")


@dataclass(frozen=True)
class Trained:
    """A cell's model. `variants`: by the defence whose point each is; `meaning`: of all their splits."""

    world: World
    model: CentralTrees
    variants: dict[str, Ensemble]
    meaning: joint_model.Meaning
    counting: Counting


def run(cell: Cell) -> dict[str, Any]:
    """The result of a cell, for the file of results."""
    started = time.perf_counter()
    it = trained(cell)
    world, asked = it.world, {name: table.features for name, table in it.world.after.items()}
    objective, test = it.model.params.objective, {}
    for name, each in it.variants.items():
        outcome = each.outcome(joint_model.scores(each, it.meaning, asked))
        test[name] = measured(metrics.evaluate(objective, outcome, world.wanted))
    return {
        "trial": cell.key(),
        "records": [len(world.labels.values), len(world.wanted)],
        "test": test,
        "v_measure": _attacked(cell, world, _leaves(world, it.model)),
        "ciphertexts": {"paper": as_the_paper(it.counting), "wire": on_the_wire(it.counting, KEY_BITS)},
        **joint_model.hidden(it.model.ensemble),
        "seconds": round(time.perf_counter() - started, 2),
    }


def trained(cell: Cell) -> Trained:
    """Train a cell on the joined table: the trees that a federation finds."""
    world, withheld = world_of(cell.set, cell.seed, own=cell.own), withholding_of(cell)
    params, learned = params_of(cell.set, cell.model, cell.seed), world.labels
    if cell.defence == "label_dp":
        assert cell.value is not None
        learned = replace(learned, values=noisy_labels(cell.set, cell.seed, cell.value, own=cell.own))
    train = protocol_of(cell.model).centrally.train
    assert train is not None
    model = train(list(world.before.items()), learned.values, world.classes, params, withheld)
    variants, meaning = {cell.defence: model.ensemble}, _meaning(model)
    if cell.defence == "label_dp":
        repairs, meaning = repaired(HOLDER, world.before, model, learned, world.labels)
        variants |= repairs
    counting = Counting(model, world.before[ATTACKER], world.classes, withheld, _reached(world, model, meaning))
    return Trained(world, model, variants, meaning, counting)


def withholding_of(cell: Cell) -> Withholding:
    """The settings of what the label holder withholds."""
    if cell.defence == "reduced_leakage":
        return Withholding(own_trees=int(cell.value or 0))
    if cell.defence == "id_lmid":
        return Withholding(xi=cell.value, shown=cell.counts == "shown")
    return NOTHING


def _leaves(world: World, model: CentralTrees) -> Leaves:
    """The sets of records that the attacker is shown; the root, which holds all, is none."""
    raw = [(name, it.features) for name, it in world.before.items()]
    views = expected_views(model, raw, ATTACKER, world.before[ATTACKER].columns)
    return [[leaf.records for leaf in view.leaves() if leaf.node != ROOT] for view in views]


def _attacked(cell: Cell, world: World, leaves: Leaves) -> dict[str, float]:
    settings = Settings.read({"discount": usual_discount(cell.model), "seed": cell.seed})
    y, x = world.labels.values.astype(np.int64), world.before[ATTACKER].features
    exact = "id2graph" if len(y) <= EXACT_UP_TO else "id2graph-quotient"
    alone = _clustered(cell.set, cell.seed, cell.own)
    if not any(leaves):  # no set is shown: nothing to add to the columns
        return {name: 0.0 if name == "uni" else alone for name in ATTACKS}
    found = {"cl": alone}
    for name in ATTACKS[:-1]:
        outcome = attack(exact if name == "id2graph" else name, leaves, len(y), x, world.classes, settings)
        found[name] = score(y, outcome.clusters).v_measure
    return {name: found[name] for name in ATTACKS}


@cache
def _clustered(name: str, seed: int, own: bool) -> float:
    """CL, which knows no tree."""
    world = world_of(name, seed, own=own)
    y = world.labels.values.astype(np.int64)
    settings = Settings.read({"seed": seed})
    outcome = attack("cl", [], len(y), world.before[ATTACKER].features, world.classes, settings)
    return float(score(y, outcome.clusters).v_measure)


def _meaning(model: CentralTrees) -> joint_model.Meaning:
    def meaning(split: Split) -> OwnSplit:
        it, cut = model.entry(split)
        return OwnSplit(split.handle, split.node, it.feature, it.bin, cut, it.missing_left)

    return meaning


def _reached(world: World, model: CentralTrees, meaning: joint_model.Meaning) -> Callable[[int], Ints]:
    def goes_left(split: Split, rows: Ints) -> Bools:
        own = meaning(split)
        return np.asarray(own.goes_left(world.before[split.owner].features[rows, own.feature]))

    return lambda t: route(model.ensemble.trees[t].splits, len(world.labels.values), goes_left)
