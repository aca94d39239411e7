"""Checks of defences of the label that hold whatever broke: draws, their ledger, repairs, and the account of sets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.campaign import stages
from tests.campaign.label_draws import Used
from tests.campaign.stages import Stage
from tests.library.trees.repairs import VARIANTS, in_order_of_nodes
from tests.library.trees.repairs import trained as trained_centrally
from tests.oracle import OracleModel
from tests.trainings import oracle
from tests.worlds import PARTIES, assert_oracles_model
from treetap.models.store import LEAKAGE, read_leakage, read_model, read_repaired
from treetap.party.defences.budgets import LabelBudget
from treetap.party.runtime.ledger import Kind, ledger_of
from treetap.trees.ensemble import Tree
from treetap.trees.params import TreeParams
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.repair import RepairedTree, repair

HOLDER = PARTIES[0]
Ints = npt.NDArray[np.int64]
#: Of a line of the account, what permutations by chance have a part in.
_BY_CHANCE = ("by_chance_nats", "excess_share")


def stored_labels(states: dict[str, Path]) -> Ints:
    """The noisy labels (N,) on the label holder's disk, in order of ids: of one table there is one file.

    Raises:
        AssertionError: there is none, or another one.
    """
    files = sorted((states[HOLDER] / "noisy_labels").glob("*.npz"))
    assert len(files) == 1, f"noisy labels are in {[path.name for path in files]}"
    labels: Ints = np.load(files[0])["labels"]
    return labels


def faults_of_draws(states: dict[str, Path], used: Used, here: Stage, hits: int) -> list[str]:
    """Faults of the ledger and the draws after everything; none where a stage has no noisy labels.

    All jobs used the labels of one draw, which lie on disk and are charged. A fault may have made a draw void, which
    no party has used: it is charged for, and no more than `hits` of them are.
    """
    own = here.defences.label_dp
    if own is None:
        return [f"{party} has noisy labels" for party, state in states.items() if _draws_of(state)]
    budget, found = LabelBudget(states[HOLDER], here.budget), []
    charges, files = budget.charges(), sorted((states[HOLDER] / "noisy_labels").glob("*.npz"))
    taken = used.of[states[HOLDER]]
    if len(taken) > 1 or len(files) > 1:
        found.append(f"{len(taken)} draws were used, and {len(files)} are stored")
    for path in files:
        charged = charges[int(path.stem)] if int(path.stem) < len(charges) else None
        if charged is None or (taken and charged.labels not in taken):
            found.append(f"{path.name} was not charged, or is not what was used")
    if taken and not files:
        found.append("noisy labels were used that are not stored")
    if not bool(taken or files) <= len(charges) <= 1 + hits:
        found.append(f"{len(charges)} charges after {hits} faults")
    if {(each.epsilon, each.records, each.column) for each in charges} - {(own.epsilon, len(here.here.y), "y")}:
        found.append(f"the ledger has {charges}")
    if budget.spent() != len(charges) * own.epsilon:
        found.append(f"{budget.spent()} of the budget are spent on {len(charges)} charges")
    return found


def _draws_of(state: Path) -> bool:
    return (state / "noisy_labels").exists() or bool(ledger_of(state).charges(Kind.NOISY_LABELS))


def assert_noisy_model(states: dict[str, Path], here: Stage, job: str) -> None:
    """The published trees are the oracle's on the stored noisy labels, the repairs those computed from these."""
    labels = stored_labels(states)
    model, repaired = _expected(here.name, labels.tobytes())
    assert_oracles_model(states, model, job)
    lines = read_repaired(states[HOLDER] / "models" / job)
    found = [in_order_of_nodes(RepairedTree(*(Tree.from_dict(line[name]) for name in VARIANTS))) for line in lines]
    assert found == repaired, "repairs are others"
    assert_account(states, here, job)


def assert_account(states: dict[str, Path], here: Stage, job: str) -> None:
    """The account of what sets of records said has every tree, with the figures of a training without faults.

    Call `stages.after_training` before, outside a running loop. Of another draw of labels the figures are others.
    """
    if isinstance(here.params, PivodlParams):  # which has no such account
        return
    mine, folder = states[HOLDER] / "models" / job, stages.after_training(here.name) / HOLDER / "state"
    theirs = read_leakage(folder / "models" / "job")
    found = read_leakage(mine)
    assert [line["tree"] for line in found] == list(range(len(read_model(mine)[1]))), "the account lacks trees"
    assert {name for line in found for name in line["parties"]} == set(PARTIES[1:]), "the account lacks parties"
    assert all(line["noisy_labels"] == (here.defences.label_dp is not None) for line in found)
    same = here.defences.label_dp is None
    if same or (stored_labels(states) == stored_labels({HOLDER: folder})).all():
        assert _certain(found) == _certain(theirs), "the account has other figures"
    for party in PARTIES[1:]:
        assert not (states[party] / "models" / job / LEAKAGE).exists(), f"{party} has the account"


def _certain(figures: Any) -> Any:
    """Figures without those that chance has a part in, as they are written to nine digits."""
    if isinstance(figures, dict):
        return {name: _certain(each) for name, each in figures.items() if name not in _BY_CHANCE}
    if isinstance(figures, list):
        return [_certain(each) for each in figures]
    return round(figures, 9) if isinstance(figures, float) else figures


@cache
def _expected(name: str, labels: bytes) -> tuple[OracleModel, list[RepairedTree]]:
    """The oracle's model on noisy labels, and its repairs."""
    here = stages.stage(name)
    noisy = np.frombuffer(labels, dtype=np.int64)
    assert isinstance(here.params, TreeParams)
    model = oracle(replace(here.here, y=noisy), here.params)
    clean = here.here.y.astype(np.int64)
    central, _ = trained_centrally(here.here.parties, noisy, clean, here.params, here.here.classes)
    return model, [in_order_of_nodes(each) for each in repair(central, here.params)]
