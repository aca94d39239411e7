"""Lies of a label holder about the records of a tree: caught by name, and answered where the check is taken out."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.growth.evaluated import evaluated
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, World, spec, world
from treetap.errors import Malformed
from treetap.party.defences.settings import ColumnPrivacyTable, Defences, IdLmid, LabelDp, ReducedLeakage
from treetap.party.growth.feature_party import ExpectedRecords, OwnTree
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams, FewestDrawn, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, B, C = PARTIES
N = 60
HERE = world(N, (1, 2, 1), seed=3)
BOOSTING = BoostingParams(n_estimators=3, max_depth=4, max_bin=30, subsample=0.8, min_child_weight=1.0)
FOREST = ForestParams(n_estimators=3, max_depth=4, max_bin=30, min_samples_leaf=4)
JOBS: dict[str, TreeParams] = {
    "boosting": BOOSTING,
    "forest": FOREST,
    "bootstrap": replace(FOREST, bootstrap=True),
}


class Line:
    """The way from the label holder to a feature party: what has crossed, and what the party has answered."""

    def __init__(self, params: TreeParams) -> None:
        self._trees = [HERE.members(tree) for tree in HERE.oracle(params)]
        self._params = params
        self.tree = -1
        self.lied: tuple[str, int, int] | None = None  # the answer that a lie is after, its tree and stage
        self.answered = False

    def at(self, tree: int) -> None:
        """Look at a tree."""
        if tree != self.tree:
            self.tree, self.members, self.drawn = tree, self._trees[tree], self._params.drawn(tree, N)
            self.before: list[int] = []  # nodes that earlier messages of the tree named


Lie = Callable[[Line, Any], bool]


def _records(space: Any, rows: Any) -> None:
    (chunk,) = chunks_of(np.sort(np.asarray(rows, dtype=np.int64)), N)
    space.records.CopyFrom(chunk)


def _another_draw(line: Line, growth: Any) -> bool:
    """A record that the seed does not draw takes the place of one that it draws, as often as it likes."""
    del line
    rows = set(rows_of([growth.sampled_records.chunks[0]], N).tolist())
    rows ^= {min(rows), min(set(range(N)) - rows)}
    growth.sampled_records.chunks[0].CopyFrom(next(iter(chunks_of(np.array(sorted(rows)), N))))
    return True


def _a_record_twice(line: Line, growth: Any) -> bool:
    """Of the records drawn twice one takes the place of another that is drawn once."""
    if growth.sampled_records.times != 2:
        return False
    rows = set(rows_of([growth.sampled_records.chunks[0]], N).tolist())
    rows ^= {int(np.flatnonzero(line.drawn == times)[0]) for times in (1, 2)}
    growth.sampled_records.chunks[0].CopyFrom(next(iter(chunks_of(np.array(sorted(rows)), N))))
    return True


def _of_another_node(line: Line, growth: Any) -> bool:
    for space in growth.instance_spaces.spaces:
        elsewhere = np.setdiff1d(np.arange(N), line.members[space.node >> 1])
        if len(elsewhere):
            _records(space, [*rows_of([space.records], N)[1:], elsewhere[0]])
            return True
    return False


def _one_record(line: Line, growth: Any) -> bool:
    """One record, and its sibling, if that is shown too, has all others of the parent."""
    spaces = {space.node: space for space in growth.instance_spaces.spaces}
    for node, space in spaces.items():
        rows = rows_of([space.records], N)
        one = rows[line.drawn[rows] > 0][:1]
        _records(space, one)
        if node ^ 1 in spaces:
            _records(spaces[node ^ 1], np.setdiff1d(line.members[node >> 1], one))
        return True
    return False


def _known(line: Line, growth: Any) -> bool:
    if not line.before or not growth.instance_spaces.spaces:
        line.before += [space.node for space in growth.instance_spaces.spaces]
        return False
    _records(growth.instance_spaces.spaces.add(node=line.before[0]), line.members[line.before[0]][:1])
    return True


def _nowhere(line: Line, growth: Any) -> bool:
    """Records of a node whose parent is no node of the tree."""
    del line
    _records(growth.instance_spaces.spaces.add(node=1 << 20), [0])
    return True


def _overlapping(line: Line, growth: Any) -> bool:
    """The second of two siblings has a record of the first one in the place of one of its own."""
    del line
    spaces = {space.node: space for space in growth.instance_spaces.spaces}
    for node, space in spaces.items():
        if node % 2 and node ^ 1 in spaces:
            rows, own = rows_of([spaces[node ^ 1].records], N), rows_of([space.records], N)
            _records(space, [*own[1:], rows[0]])
            return True
    return False


def _won_twice(line: Line, growth: Any) -> bool:
    splits = growth.won_splits.splits
    if not line.before or not splits:
        line.before += [split.node for split in splits]
        return False
    splits[0].node = line.before[0]
    return True


def _small_side(line: Line, growth: Any) -> bool:
    """The first cut of the first column, which leaves a few records on its left."""
    del line
    splits = growth.won_splits.splits
    if splits:
        splits[0].candidates[:] = [0]
    return bool(splits)


SPACES, DRAW, WON = "instance_spaces", "sampled_records", "won_splits"
#: Lie → the message, what is changed, the answer that it is after, the check, and the error.
LIES: dict[str, tuple[str, Lie, str, tuple[type, str], str]] = {
    "another draw": (
        DRAW, _another_draw, "candidate_sums", (ExpectedRecords, "check_draw"),
        "a draw that differs from that of the job's seed in 2 records",
    ),
    "a record drawn twice": (
        DRAW, _a_record_twice, "candidate_sums", (ExpectedRecords, "check_draw"),
        "a draw that differs from that of the job's seed in 2 records",
    ),
    "a record of another node": (
        SPACES, _of_another_node, "candidate_sums", (ExpectedRecords, "check_shown"),
        "that are not among its parent's",
    ),
    "a single record": (
        SPACES, _one_record, "candidate_sums", (ExpectedRecords, "check_shown"),
        "1 drawn records, where the job's rules leave",
    ),
    "records of both siblings": (
        SPACES, _overlapping, "candidate_sums", (ExpectedRecords, "check_shown"),
        "that are not its parent's without its sibling's",
    ),
    "a node that was shown": (
        SPACES, _known, "candidate_sums", (ExpectedRecords, "check_shown"), ", which were known",
    ),
    "a node that is not there": (
        SPACES, _nowhere, "candidate_sums", (ExpectedRecords, "check_shown"),
        "records of node 1048576, whose parent was not to be split",
    ),
    "a node that is split already": (
        WON, _won_twice, "children", (OwnTree, "_is_split"), ", which is not to be split",
    ),
    "a winner with a small side": (
        WON, _small_side, "children", (ExpectedRecords, "check_sides"), "drawn records, where the job's rules leave",
    ),
}  # fmt: skip
#: The draw of a bootstrap comes in parts, of which the first cannot be another alone.
TOLD = [
    (lie, job)
    for lie in LIES
    for job in JOBS
    if (lie, job)
    not in {("another draw", "bootstrap"), ("a record drawn twice", "boosting"), ("a record drawn twice", "forest")}
]


async def _told(lie: str, params: TreeParams, folder: Path) -> tuple[str, bool]:
    """The error of a job in which a feature party is lied to, and True if it answered the lie."""
    kind, change, answer, _, _ = LIES[lie]
    line = Line(params)

    def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if line.lied is not None:
            line.answered |= (sender, name_of(parcel), parcel.round, parcel.stage) == (B, *line.lied)
        elif (to, name_of(parcel)) == (B, kind):
            line.at(parcel.round)
            line.lied = (answer, parcel.round, parcel.stage) if change(line, parcel.growth) else None
        return parcel

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(folder, HERE.tables, silence_s=5.0)
        federation.tamper = tamper
        status = await federation.train(spec(params, obfuscation="standard"))
        await federation.close()
    assert line.lied is not None
    return status.error, line.answered


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("lie", "job"), TOLD)
async def test_a_lie_is_named_and_not_answered(
    lie: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sender, step, tree and node, with the remedy; without the check the party answers it."""
    if LIES[lie][1] is _small_side:  # the first candidate is then that of the lowest cut
        monkeypatch.setattr(secrets.SystemRandom, "shuffle", lambda _, __: None)
    error, answered = await _told(lie, JOBS[job], tmp_path / "checked")
    assert LIES[lie][4] in error, error
    assert f"{LABEL_HOLDER} sent, in " in error
    assert f"ask {LABEL_HOLDER} what it runs before any other job with it" in error
    assert not answered
    owner, name = LIES[lie][3]
    monkeypatch.setattr(owner, name, lambda *_, **__: None)
    error, answered = await _told(lie, JOBS[job], tmp_path / "unchecked")
    assert LIES[lie][4] not in error
    assert answered


SAMPLERS: dict[str, TreeParams] = {
    "all records": replace(BOOSTING, subsample=1.0, n_estimators=2),
    "some records": replace(BOOSTING, n_estimators=2, colsample_bytree=0.6, seed=2**63 - 1),
    "records set aside": replace(BOOSTING, early_stopping_rounds=2, validation_share=0.3),
    "largest losses first": replace(BOOSTING, grow_policy="lossguide", max_leaves=6),
    "several outputs": replace(
        BOOSTING, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=2
    ),
    "forest": FOREST,
    "bootstrap": replace(FOREST, bootstrap=True),
    "bins per node": replace(FOREST, binning="per-node", bootstrap=True),
    "forest of numbers": replace(FOREST, criterion="squared_error"),
}
DEFENCES: dict[str, dict[str, Defences]] = {
    "none": {},
    "ID-LMID": {LABEL_HOLDER: Defences(id_lmid=IdLmid(xi=0.5))},
    "ID-LMID of drawn records": {LABEL_HOLDER: Defences(id_lmid=IdLmid(xi=0.5, counts="paper"))},
    "first trees alone": {LABEL_HOLDER: Defences(reduced_leakage=ReducedLeakage(trees=1))},
    "noisy labels, repaired": {LABEL_HOLDER: Defences(label_dp=LabelDp(epsilon=2.0), grafting=True)},
    "merged cells": {B: Defences(min_cell_records=3)},
    "noise on sums": {B: Defences(column_privacy=ColumnPrivacyTable(epsilon=50.0, delta=1e-6, trees=9))},
}
#: Defences that a job cannot have, by the rows of docs/exclusions.md.
WITHOUT = {
    *(("forest of numbers", each) for each in ("ID-LMID", "ID-LMID of drawn records", "noisy labels, repaired")),
    *(("largest losses first", each) for each in ("ID-LMID", "ID-LMID of drawn records", "noise on sums")),
    *((each, "ID-LMID of drawn records") for each in ("bootstrap", "bins per node")),
    *(("bins per node", each) for each in ("noise on sums", "merged cells")),
}
HONEST = [(job, defence) for job in SAMPLERS for defence in DEFENCES if (job, defence) not in WITHOUT]


async def _honest(folder: Path, here: World, job: Any, defences: Mapping[str, Defences]) -> None:
    """Train without a lie; the tables have the labels that the job needs."""
    with ciphers(KeysMade(), transparent=True):
        finished(await Federation(folder, here.tables, defences=dict(defences)).train(job))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("sampler", "defence"), HONEST)
async def test_honest_jobs_pass(sampler: str, defence: str, tmp_path: Path) -> None:
    """Whatever draws the records, and whatever a defence withholds, merges or adds."""
    params = SAMPLERS[sampler]
    kind = "reg:squarederror" if sampler == "forest of numbers" else "binary:logistic"
    several = {"objective": "multi:softprob", "classes": 3} if sampler == "several outputs" else {"objective": kind}
    await _honest(
        tmp_path, world(N, (1, 2, 1), seed=3, **several), spec(params, obfuscation="standard"), DEFENCES[defence]
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("spaces", ["sent", "withheld"])
@pytest.mark.parametrize("sampler", ["some records", "bootstrap"])
async def test_honest_jobs_on_a_lattice_pass(sampler: str, spaces: str, tmp_path: Path) -> None:
    """Where no set of records is sent none is compared."""
    params = replace(SAMPLERS[sampler], n_estimators=1, max_bin=8, instance_spaces=spaces)
    here = world(N, (1, 2, 1), seed=3)
    await _honest(tmp_path, here, spec(params, scheme=LATTICE), {})


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("sampler", ["records set aside", "forest"])
async def test_honest_jobs_with_an_eval_table_pass(sampler: str, tmp_path: Path) -> None:
    """It is watched in the place of records that are set aside, of which there are none then."""
    job = spec(SAMPLERS[sampler], obfuscation="standard")
    job.eval_table = "eval"
    await _honest(tmp_path, evaluated(N, (1, 2, 1), seed=3).here, job, {})


def test_rules_leave_these_records() -> None:
    """Of each objective by its largest h; the factor of records makes them fewer, noise takes the promise away."""
    least = replace(BOOSTING, min_child_weight=1.0)
    assert least.fewest_drawn == (4, 8)
    assert replace(least, scale_pos_weight=2.0).fewest_drawn == (2, 4)
    assert replace(least, max_sample_weight=3.0).fewest_drawn == (2, 3)
    assert replace(least, objective="reg:squarederror", min_child_weight=2.5).fewest_drawn == (3, 5)
    assert replace(least, objective="multi:softprob").fewest_drawn == (2, 4)
    assert replace(least, objective="multi:softprob", multi_strategy="multi_output_tree").fewest_drawn == (1, 2)
    assert replace(least, min_child_weight=0.0).fewest_drawn == (1, 2)
    assert FOREST.fewest_drawn == (4, 8)


@pytest.mark.parametrize(
    ("node", "rows", "fault"),
    [
        (4, [0, 1, 2, 3], None),
        (4, [0, 1, 2, 4], None),
        (5, [4, 5, 6, 7], None),
        (4, [0, 1, 8], "that are not among its parent's"),
        (4, [0, 1, 9], "records of node 4, 2 drawn records, where the job's rules leave 3"),
        (4, [1, 2, 3, 4, 5, 6, 7], "that leave node 5 1 drawn records, where the job's rules leave 2"),
        (6, [8, 9, 10], "whose parent was not to be split"),
        (3, [8, 9, 10], "records of node 3, which were known"),
        (8, [0, 1, 2], "whose parent was not to be split"),
    ],
)
def test_records_of_a_node(node: int, rows: list[int], fault: str | None) -> None:
    """Of ten drawn records and two others; the root's children are known, of which the left one was compared."""
    drawn = np.arange(12) % 12 < 9
    known = {1: np.arange(12), 2: np.arange(8), 3: np.arange(8, 12)}
    expected = ExpectedRecords(LABEL_HOLDER, 7, drawn, FewestDrawn(2, 3), 3)
    known[2] = np.array([0, 1, 2, 3, 4, 5, 6, 9]) if node == 4 and 9 in rows else known[2]
    shown = {node: np.array(rows)}
    if fault is None:
        expected.check_shown(shown, known, {1, 2})
        return
    with pytest.raises(Malformed, match=fault) as raised:
        expected.check_shown(shown, known, {1, 2})
    assert str(raised.value).startswith(f"{LABEL_HOLDER} sent, in build_histograms of tree 7, records of node {node}")


def test_a_node_at_the_greatest_depth_is_not_shown() -> None:
    """Its parent is the last that can be split."""
    expected = ExpectedRecords(LABEL_HOLDER, 0, np.ones(8, dtype=bool), FewestDrawn(1, 2), 1)
    with pytest.raises(Malformed, match="records of node 2, which is as deep as max_depth = 1"):
        expected.check_shown({2: np.arange(4)}, {1: np.arange(8)}, {1})
