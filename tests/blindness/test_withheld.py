"""Instance spaces withheld: other winners elsewhere are not seen, nor are, with padded trees, other shapes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.blindness.comparison import PLAIN, RECORDS, between_parties, shown
from tests.blindness.observed import Observed, observed
from tests.simulator import COORDINATOR, finished
from tests.worlds import PARTIES, joined_model, spec
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams

LABEL_HOLDER, FEATURE, OTHER = PARTIES
N = 40
PARAMS = BoostingParams(
    **{"n_estimators": 2, "max_depth": 3, "max_bin": 4, "gamma": 1.0, "base_score": 0.0, "reg_lambda": 0.0},
    **{"objective": "reg:squarederror", "instance_spaces": "withheld"},
)
#: The column of the feature party that wins every root; one of the label holder's, one of the other party's.
ROOT, OWN, OTHERS = np.arange(N) // 20, np.arange(N) // 10 % 2, np.arange(N) // 5 % 2
#: Labels under which the feature party wins the same nodes by the same cut.
LABELS = {
    "the label holder wins the others": 100.0 * ROOT + 30 * OWN,
    "the other party wins the others": 100.0 * ROOT + 30 * OTHERS,
    "both do, one further down": 100.0 * ROOT + 30 * OWN * (1 + OTHERS),
    "there are no others": 100.0 * ROOT,
}


class Ran:
    """A training: what crossed, the steps that were asked of the feature party, and the splits of its trees."""

    def __init__(self, folder: Path, labels: str, params: BoostingParams) -> None:
        self.asked = list[tuple[Any, ...]]()
        self.splits = list[dict[int, str]]()
        ids, noise = [f"r{i:05d}" for i in range(N)], np.random.default_rng(1).permutation(N).astype(float)
        columns = {LABEL_HOLDER: {"a0": OWN}, FEATURE: {"b0": ROOT, "b1": noise}, OTHER: {"c0": OTHERS}}
        tables = {}
        for name, values in columns.items():
            content = {"id": ids, **{column: value.astype(float) for column, value in values.items()}}
            content |= {"y": LABELS[labels]} if name == LABEL_HOLDER else {}
            tables[name] = (list(values), {"train": pa.table(content)})
        self.crossed, _ = observed(folder, tables, lambda federation: self._train(federation, params))

    async def _train(self, federation: Observed, params: BoostingParams) -> None:
        finished(await federation.train(spec(params, scheme=LATTICE)))
        for tree in joined_model(federation.states):
            self.splits.append({node: what[1] for node, what in tree.items() if what[0] == "split"})
        self.asked += [(at, *shown(request)) for at, party, request in federation.conducted if party == FEATURE]

    @property
    def of_feature_party(self) -> list[Any]:
        """All that reaches or leaves the feature party, ciphertexts by their lengths."""
        mine = [each for each in self.crossed if FEATURE in (each.sender, each.to)]
        answers = [shown(each.message) for each in mine if each.to == COORDINATOR and each.step != "account"]
        return [self.asked, between_parties(mine, PLAIN | RECORDS), answers]

    @property
    def of_coordinator(self) -> list[Any]:
        """The topology that the coordinator gets."""
        return [
            (each.sender, each.step, shown(each.message, {"CONTROL", "TOPOLOGY"}))
            for each in self.crossed
            if each.to == COORDINATOR and each.step != "account"
        ]

    @property
    def own(self) -> list[list[int]]:
        """The nodes of each tree that the feature party won."""
        return [[node for node, owner in tree.items() if owner == FEATURE] for tree in self.splits]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Ran]:
    """By labels, and padded or not; with the same secret orders of candidates."""
    folder = tmp_path_factory.mktemp("withheld") / "f"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", lambda: random.Random(5))
        patch.setattr("treetap.party.setup.steps.secrets", SimpleNamespace(token_bytes=bytes))
        return {
            (labels, padded): Ran(folder, labels, replace(PARAMS, pad_trees=padded))
            for labels in LABELS
            for padded in (False, True)
        }


@pytest.mark.second_tier
def test_labels_are_what_they_say(runs: dict[tuple[str, bool], Ran]) -> None:
    """The feature party wins the roots alone; below them winners differ, and so do shapes."""
    one, other, deeper, none = (runs[labels, False].splits for labels in LABELS)
    assert all(ran.own == [[1], [1]] for ran in runs.values())
    assert one == [{1: FEATURE, 2: LABEL_HOLDER, 3: LABEL_HOLDER}] * 2
    assert other == [{1: FEATURE, 2: OTHER, 3: OTHER}] * 2
    assert [set(tree) - {1, 2, 3} for tree in deeper] != [set(), set()]
    assert none == [{1: FEATURE}] * 2


@pytest.mark.second_tier
def test_other_winners_of_equal_shapes_are_not_seen(runs: dict[tuple[str, bool], Ran]) -> None:
    """Plain fields, sizes and own left sets are equal; with others' shapes they are not, unless trees are padded."""
    one, other, *shapes = (runs[labels, False] for labels in LABELS)
    assert len(one.of_feature_party[1]) > 20
    assert one.of_feature_party == other.of_feature_party
    assert all(one.of_feature_party != shape.of_feature_party for shape in shapes)


@pytest.mark.second_tier
def test_shapes_of_padded_trees_are_not_seen(runs: dict[tuple[str, bool], Ran]) -> None:
    """Neither by the feature party nor, in fields of topology, by the coordinator."""
    first, *others = (runs[labels, True] for labels in LABELS)
    assert len(first.of_feature_party[1]) > 20
    for other in others:
        assert first.of_feature_party == other.of_feature_party
        assert first.of_coordinator == other.of_coordinator
    assert runs["there are no others", False].of_coordinator != first.of_coordinator


@pytest.mark.second_tier
def test_left_children_alone_are_built(runs: dict[tuple[str, bool], Ran]) -> None:
    """Whichever sibling is smaller; of padded trees those of all levels."""
    for (_, padded), ran in runs.items():
        words = [
            each.message.growth.encrypted_words for each in ran.crossed if each[1:3] == (FEATURE, "encrypted_words")
        ]
        nodes = [body.node for body in words if body.first == 0]
        assert all(node == 1 or node % 2 == 0 for node in nodes)
        if padded:
            assert nodes == [1, 2, 4, 6] * PARAMS.n_estimators
