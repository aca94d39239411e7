"""`min_cell_records` in a federation: the joined table's trees, and no group of few records in any message."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.boosting.categories import categorical_world
from tests.library.trees.repairs import by_number
from tests.simulator import Federation, Message, finished
from tests.worlds import PARTIES, World, manifest, spec, world
from treetap.commands.model.view import describe
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.party.defences.settings import Defences, IdLmid
from treetap.party.growth.feature_party import FeaturePartyGrowth, OwnTree
from treetap.party.growth.offered_candidates import OfferedCandidates
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.centralised import CentralTrees, train_forest
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
LABEL_HOLDER, FEATURE, OTHER = PARTIES
BASE = BoostingParams(n_estimators=2, max_depth=3, max_bin=8, min_child_weight=0.0)
FOREST = ForestParams(n_estimators=3, max_depth=4, max_bin=8)
THREE: dict[str, Any] = {"objective": "multi:softprob", "classes": 3}
#: World, its categories, parameters, `min_cell_records` by feature party, directions of the columns of all parties.
CASES: dict[str, tuple[dict[str, Any], bool, TreeParams, tuple[int, int], int]] = {
    "missing values, sampled, one party alone": ({"missing": 0.2}, False, replace(BASE, subsample=0.8), (3, 0), 0),
    "forest, drawn with replacement": (
        {**THREE, "missing": 0.1},
        False,
        replace(FOREST, bootstrap=True, colsample_bytree=0.7),
        (2, 4),
        0,
    ),
    "categories and partitions of them, missing values": (
        {"missing": 0.15, "n": 90},
        True,
        replace(BASE, max_cat_to_onehot=4, n_estimators=3),
        (3, 2),
        0,
    ),
    "several outputs, parties sit trees out": (
        {**THREE, "missing": 0.1},
        False,
        replace(
            BASE,
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=4,
            party_dropout={"feature-b": 0.4, "feature-c": 0.6},
        ),
        (2, 3),
        0,
    ),
    "a tree per class, the best split first": (
        {**THREE, "levels": 2},
        False,
        replace(BASE, objective="multi:softprob", grow_policy="lossguide", max_leaves=6, n_estimators=1),
        (5, 3),
        0,
    ),
    "monotone constraints": (
        {"missing": 0.25, "objective": "reg:squarederror"},
        False,
        replace(BASE, objective="reg:squarederror"),
        (3, 2),
        1,
    ),
    "numbers": (
        {"objective": "reg:squarederror"},
        False,
        replace(BASE, objective="reg:squarederror", colsample_bytree=0.6),
        (4, 4),
        0,
    ),
}


def _world(case: str) -> tuple[World, dict[str, int], dict[str, dict[str, int]]]:
    """The world, `min_cell_records` and constraints of a case."""
    of_world, categories, _, least, direction = CASES[case]
    here = categorical_world(seed=5, **of_world) if categories else world(70, (2, 2, 2), seed=6, **of_world)
    own = {party: count for party, count in zip(PARTIES[1:], least, strict=True) if count}
    columns = {name: names for name, (names, _) in here.tables.items()}
    return here, own, {party: {columns[party][0]: direction} for party in PARTIES if direction}


def _central(case: str, here: World, own: dict[str, int] | None) -> CentralTrees:
    params = CASES[case][2]
    tables = []
    for name, block in here.parties:
        names = [str(j) for j in range(block.shape[1])]
        categories = {str(j): count for (party, j), count in here.categories.items() if party == name}
        table = bin_table(block, names, params.max_bin, categories=categories, max_cat_to_onehot=params.one_hot_below)
        directions = np.array([CASES[case][4], *[0] * (len(names) - 1)])
        tables.append((name, replace(table, directions=directions if CASES[case][4] else None)))
    if isinstance(params, ForestParams):
        return train_forest(here.parties, here.y, params, here.classes, tables, min_cell_records=own)
    assert isinstance(params, BoostingParams)
    return centralised.train(tables, here.y, params, here.classes, min_cell_records=own)


async def _train(
    folder: Path, here: World, params: TreeParams, defences: dict[str, Defences], **more: Any
) -> tuple[dict[str, Path], str]:
    """The parties' states, and the error of the job, empty if it finished."""

    encode = "categorical" if here.categories else "ordinal"
    federation = Federation(folder, here.tables, defences=defences, encode=encode, **more)
    status = await federation.train(spec(params, key_bits=512, obfuscation="standard"))
    await federation.close()
    return federation.states, "" if status.state == "finished" else status.error


class Opened:
    """The sums that a label holder has opened, and the columns that their owners made them of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: (party, tree) → columns of the owner, and node → sums (candidates, slots).
        self.trees: dict[tuple[str, int], tuple[OwnTree, dict[int, Any]]] = {}
        send, take = FeaturePartyGrowth.send_sums, OfferedCandidates.take

        async def sent(growth: Any, tree: OwnTree, *rest: Any) -> None:
            self.trees.setdefault((growth._context.party, tree.index), (tree, {}))
            await send(growth, tree, *rest)

        async def taken(offered: Any, party: str, t: int, stage: int) -> Any:
            sums = await take(offered, party, t, stage)
            kept = self.trees[party, t][1]
            for node, of_node in zip(offered._growing.build, sums, strict=True):
                assert node not in kept or (kept[node] == of_node).all()
                kept[node] = of_node
            self.drawn[t] = offered._growing.values[:, offered._growing._width - 1] > 0
            self.values[t] = offered._growing.values
            return sums

        self.drawn: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        monkeypatch.setattr(FeaturePartyGrowth, "send_sums", sent)
        monkeypatch.setattr(OfferedCandidates, "take", taken)

    def sets(self, party: str, t: int) -> Iterator[dict[int, list[set[int]]]]:
        """For each column of numbers the left sets that its opened sums are over, by node: drawn records.

        Found from the sums alone: of all left sets in the bins of the job the one that has them.
        """
        tree, opened = self.trees[party, t]
        bins, order = tree.columns.bins, tree.columns.order(1)
        values, drawn = self.values[t], self.drawn[t]
        for f, shape in enumerate(bins.candidates.shapes):
            by_node: dict[int, list[set[int]]] = {}
            for node, sums in opened.items():
                rows = tree.rows_of(node)
                rows = rows[drawn[rows]]
                codes = bins.all_codes[rows, f]
                known = {}
                for v, missing in product(range(-1, shape.n_bins), (False, True)):
                    here = rows[(codes <= v) | (missing & (codes == shape.n_bins))]
                    known[tuple(values[here].sum(axis=0))] = set(here.tolist())
                known[tuple(values[:0].sum(axis=0))] = set()
                known[tuple(values[rows].sum(axis=0))] = set(rows.tolist())
                places = np.flatnonzero(bins.candidates.feature[order] == f)
                told, whole = [known[tuple(sums[place])] for place in places], set(rows.tolist())
                # a node whose sums of the column are over none or all of its records says nothing of the column
                by_node[node] = [*told, whole] if any(0 < len(left) < len(whole) for left in told) else []
            yield by_node


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_the_joined_tables_trees(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees and split tables are the trainer's with the same setting, others than without; all left sets are large."""
    here, own, constraints = _world(case)
    params, opened = CASES[case][2], Opened(monkeypatch)
    defences = {party: Defences(min_cell_records=least) for party, least in own.items()}
    states, error = await _train(tmp_path, here, params, defences, constraints=constraints)
    assert error == ""
    central, free = _central(case, here, own), _central(case, here, None)
    shards = {party: read_model(states[party] / "models" / "job")[1] for party in PARTIES}
    trees = [Tree.from_dict(line["tree"]) for line in shards[LABEL_HOLDER]]
    assert [by_number(tree) for tree in trees] == [by_number(tree) for tree in central.ensemble.trees]
    for party, lines in shards.items():
        kept = [OwnSplit.from_dict(each) for line in lines for each in line.get("splits", line.get("own"))]
        expected = {split.handle: split.node for tree in central.ensemble.trees for split in tree.splits
                    if split.owner == party}  # fmt: skip
        assert kept == [
            OwnSplit.of(handle, expected[handle], *central.splits[party][handle]) for handle in sorted(expected)
        ]
    assert central.splits != free.splits
    shown = describe(states[LABEL_HOLDER] / "models" / "job")
    assert shown["min_cell_records"] == own
    for party in PARTIES[1:]:
        assert manifest(states[party]).get("min_cell_records", 0) == own.get(party, 0)
    groups = 0
    for party, t in opened.trees:
        if party in own and not here.categories:
            for by_node in opened.sets(party, t):
                sizes = list(_differences(by_node))
                groups += len(sizes)
                assert min(sizes, default=own[party]) >= own[party]
    assert groups > 50 or here.categories


def _differences(by_node: dict[int, list[set[int]]]) -> Iterator[int]:
    """Sizes above 0 of all differences of a column's left sets, one within the other, of nodes and those above them."""
    for low, high in product(by_node, by_node):
        if low >> max(0, low.bit_length() - high.bit_length()) == high:
            for small, large in product(by_node[low], by_node[high]):
                if small < large and small:
                    yield len(large) - len(small)
                yield from [len(large)] if large else []


#: Parameters, the label holder's defences, `min_cell_records` of a feature party, the error, contents that were sent.
REFUSED: dict[str, tuple[TreeParams, dict[str, Any], int, str, set[str]]] = {
    "more than a tree draws": (BASE, {}, 31, "min_cell_records = 31 under .* a tree draws 60 .* at most 30", set()),
    "more than a sampled tree draws": (replace(BASE, subsample=0.5), {}, 19, "a tree draws 31 .* at most 15", set()),
    "sums over undrawn records": (
        BASE,
        {"id_lmid": IdLmid(xi=0.5)},
        3,
        "feature-c: label-holder withholds sets .*\nmin_cell_records and id_lmid do not go together",
        {"public_key"},
    ),
    "sums over undrawn records, forest": (
        FOREST,
        {"id_lmid": IdLmid(xi=0.5)},
        3,
        "feature-c: label-holder withholds sets .*\n.* leave one of them out",
        {"public_key", "encrypted_labels", "sampled_records"},
    ),
    "sums of classes of drawn records, forest": (
        FOREST,
        {"id_lmid": IdLmid(xi=0.5, counts="paper")},
        3,
        "label-holder withholds sets .*\n.* leave one of them out",
        {
            "public_key",
            "encrypted_labels",
            "sampled_records",
            "candidate_sums",
        },  # the label holder sees in them that cells are merged
    ),
}


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_keep_it_is_refused_before_a_sum_is_sent(case: str, tmp_path: Path) -> None:
    """By name, with what to change; the party that has the setting sends nothing of its columns."""
    params, of_labels, least, fault, allowed = REFUSED[case]
    here = world(60, seed=3)

    defences = {LABEL_HOLDER: Defences(**of_labels), OTHER: Defences(min_cell_records=least)}
    federation, sent = Federation(tmp_path, here.tables, defences=defences), set()

    def keep(sender: str, _: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if message.WhichOneof("body") != "alignment" and sender != FEATURE:
            sent.add(name_of(message))
        return message

    federation.tamper = keep
    status = await federation.train(spec(params, key_bits=512))
    assert status.state in ("failed", "interrupted")
    assert re.search(fault, status.error), status.error
    assert sent <= allowed


async def test_a_resumed_job_keeps_the_setting(tmp_path: Path) -> None:
    """Another one between two attempts is refused by name; with the first one the job goes on."""
    here, seen = world(60, seed=3), []

    federation = Federation(tmp_path, here.tables, defences={FEATURE: Defences(min_cell_records=3)})

    def restart(least: int | None) -> None:
        federation.kill(FEATURE)
        config = federation.configs[FEATURE]
        own = Defences(min_cell_records=least)
        federation.configs[FEATURE] = config.model_copy(update={"defences": own})
        federation.start(FEATURE)

    def change(message: Message) -> None:
        if (message.to, message.word, message.served) == (FEATURE, "store_tree", False) and not seen:
            seen.append(message)
            restart(None)

    federation.hook = change
    assert (await federation.train(spec(BASE, key_bits=512))).state == "interrupted"
    await asyncio.sleep(200)
    refused = await federation.resume()
    assert "min_cell_records of feature-b is not there and was 3 when job job began" in refused.error
    restart(3)
    await asyncio.sleep(200)
    finished(await federation.resume())
