"""A feature party's account of cells in small groups: against all subsets of few records, over jobs, through kills."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from party.defences.checks import check_own
from party.defences.column_account import ColumnAccount
from party.defences.counted_cells import LEFT_SETS, SUMS, WAYS, CellAccount
from party.defences.settings import Defences, IdLmid
from party.policy import Policy
from party.runtime.job_ledger import JobLedger
from party.runtime.ledger import Kind, Occasion, ledger_of
from party.runtime.metrics import PartyMetrics
from tests.boosting.categories import categorical_world
from tests.campaign.cipher import KeysMade, ciphers
from tests.oracle import OracleSplit
from tests.simulator import COORDINATOR, Federation, run
from tests.trainings import jobs_of
from tests.worlds import PARTIES, Tables, World, spec, world
from treetap.errors import DataError, Refused
from treetap.models import durable, line_file
from treetap.tables.record_ids import Ids
from treetap.trees.binning import bin_table
from treetap.trees.candidates import column_goes_left
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.tree_bins import Bins, GlobalBins, NodeBins
from treetap.wire.frame import name_of
from treetap.wire.v2.exchange_pb2 import PeerMessage

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
HOLDER, FEATURE, OTHER = PARTIES
Mask = npt.NDArray[np.bool_]
#: Way → (N, C): the cells that are counted.
Counted = dict[str, Mask]
BOOSTING = BoostingParams(n_estimators=3, max_depth=3, max_bin=5, min_child_weight=0.0)
FOREST = ForestParams(n_estimators=3, max_depth=3, max_bin=5, bootstrap=True)
HERE = world(24, (1, 2, 1), seed=3)


@dataclass
class Sums:
    """As (tree, node): the nodes whose sums the feature party has sent, and the splits whose left sets it has sent."""

    built: list[tuple[int, int]]
    divided: list[tuple[int, int]]


class Watched(Federation):
    """A federation that notes what has reached the label holder from `FEATURE`."""

    def __init__(self, folder: Path, tables: Tables, **more: Any) -> None:
        super().__init__(folder, tables, **more)
        self.sent = Sums([], [])
        self.tamper = self._note

    def _note(self, sender: str, to: str, parcel: PeerMessage) -> PeerMessage:
        if sender == FEATURE and name_of(parcel) == "candidate_sums":
            self.sent.built += [(parcel.round, node) for node in parcel.growth.candidate_sums.nodes]
        if sender == FEATURE and name_of(parcel) == "children":
            self.sent.divided += [(parcel.round, child.node) for child in parcel.growth.children.children]
        return parcel


def _job(params: TreeParams, **changes: Any) -> Any:
    return spec(params, key_bits=512, obfuscation="standard", **changes)


def _train(folder: Path, here: World, params: TreeParams, job: str = "job", **more: Any) -> tuple[Any, Watched]:
    async def main() -> tuple[Any, Watched]:
        federation = Watched(folder, here.tables, **more)
        status = await federation.train(_job(params), job)
        await federation.close()
        return status, federation

    with ciphers(KeysMade(), transparent=True):
        return run(main())


def counted(state: Path, ids: list[str], columns: list[str], table: str = "train") -> Counted:
    """What a feature party has counted of its cells, as its disk has it; nothing without a file."""
    cells = CellAccount(state, HOLDER, table).read()
    places, of_columns = cells.places(Ids.of(ids), columns)
    return {way: np.array([cells.flags(way, c)[places] == 1 for c in of_columns]).T for way in WAYS}


def _ids(here: World) -> list[str]:
    return [f"r{i:05d}" for i in range(len(here.y))]


# --- an independent count: all sets of few records whose sum is a combination of sums that were sent


def _bins(here: World, params: TreeParams, tree: int, values: Any) -> Bins:
    """The bins of the feature party's columns in a tree."""
    kept = params.columns(tree, FEATURE, values.shape[1])
    if isinstance(params, ForestParams) and params.bins_per_node:
        return NodeBins(values, kept, params.drawn(tree, len(values)), params.max_bin)
    columns = here.tables[FEATURE][0]
    categories = {columns[j]: count for (party, j), count in here.categories.items() if party == FEATURE}
    below = params.one_hot_below or 1
    return GlobalBins(bin_table(values, columns, params.max_bin, categories=categories, max_cat_to_onehot=below), kept)


def _left_sets(bins: Bins, node: int, rows: Any, f: int) -> Iterator[Any]:
    """The records of a node that each candidate of a column sums."""
    if isinstance(bins, NodeBins):
        bins.see(node, rows)
    listed = bins.candidates
    for k in range(int(listed.first[f]), int(listed.first[f + 1])):
        codes = bins.column(node, rows, f)
        single = listed.grouped[k]
        n_bins = listed.shapes[f].n_bins
        yield rows[codes == listed.bin[k] if single else column_goes_left(codes, listed.at(k), n_bins)]


def brute_force(here: World, params: TreeParams, sent: Sums) -> Counted:
    """All sets of up to three drawn records whose sums follow from those of one tree and column, and small sides."""
    values, n = here.blocks[1], len(here.y)
    found = {way: np.zeros(values.shape, dtype=bool) for way in WAYS}
    subsets = [set for size in (1, 2, 3) for set in combinations(range(n), size)]
    hot = np.array([[float(i in chosen) for i in range(n)] for chosen in map(frozenset, subsets)])
    for t, tree in enumerate(here.oracle(params)):
        drawn, bins, members = params.drawn(t, n).astype(float), _bins(here, params, t, values), here.members(tree)
        of_drawn = hot[:, drawn == 0].sum(axis=1) == 0
        built = sorted({node for at, node in sent.built if at == t})
        for f, column in enumerate(bins.kept):
            if not bins.candidates.shapes[f].sums:
                continue
            known = []
            for node in built:
                shown = [members[node], *_left_sets(bins, node, members[node], f)]
                # in bins of its own a node without any cut shows nothing
                if type(bins) is GlobalBins or len({drawn[rows].sum() for rows in shown} - {0.0}) > 1:
                    known += shown
            vectors = np.zeros((len(known), n))
            for vector, rows in zip(vectors, known, strict=True):
                vector[rows] = drawn[rows]
            base = np.linalg.svd(vectors, full_matrices=False)
            span = base.Vh[base.S > 1e-9]
            wanted = hot * drawn
            follows = of_drawn & (np.abs(wanted - wanted @ span.T @ span).max(axis=1) < 1e-9)
            found[SUMS][:, column] |= hot[follows].any(axis=0)
        for number, node in sent.divided:
            split = tree.nodes[node] if number == t else None
            if isinstance(split, OracleSplit) and split.owner == FEATURE:
                for child in (2 * node, 2 * node + 1):
                    rows = members[child]
                    few = rows if len(rows) <= 3 else rows[drawn[rows] > 0]
                    if len(few) <= 3:
                        found[LEFT_SETS][few, split.feature] = True
    return found


#: The case of which each kind of categories is one: one against the rest, and to be partitioned.
CATEGORIES = {HOLDER: (0,), FEATURE: (5, 3, 0), OTHER: (0,)}
CASES: dict[str, tuple[Callable[[], World], TreeParams]] = {
    "sampled, missing values": (
        lambda: world(24, (1, 2, 1), missing=0.3, seed=5),
        replace(BOOSTING, subsample=0.7, colsample_bytree=0.6, max_bin=4),
    ),
    "categories": (lambda: categorical_world(26, CATEGORIES, missing=0.2, seed=1), replace(BOOSTING, n_estimators=2)),
    "forest, bins per node": (
        lambda: world(24, (1, 2, 1), seed=6, missing=0.2),
        replace(FOREST, binning="per-node", bootstrap=False),
    ),
    "lossguide": (
        lambda: world(24, (1, 2, 1), seed=7),
        replace(BOOSTING, max_depth=4, max_leaves=6, grow_policy="lossguide"),
    ),
    "boosting": (lambda: world(24, (1, 2, 1), seed=3), BOOSTING),
    "several outputs": (
        lambda: world(24, (1, 2, 1), objective="multi:softprob", classes=3),
        replace(BOOSTING, objective="multi:softprob", n_estimators=1, max_depth=2),
    ),
    "a party that sits out": (lambda: world(24, (1, 2, 1), seed=9), replace(BOOSTING, party_dropout={FEATURE: 0.5})),
    "forest": (lambda: world(24, (1, 2, 1), seed=4), replace(FOREST, max_depth=4)),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(("made", "params"), CASES.values(), ids=CASES)
def test_the_account_is_that_of_all_subsets(made: Callable[[], World], params: TreeParams, tmp_path: Path) -> None:
    """Cell for cell, at a party that wins splits, in jobs whose models are the oracle's."""
    here = made()
    more: dict[str, Any] = {}
    if here.categories:
        more = {"policies": {name: {"category_partitions": True} for name in PARTIES}, "encode": "categorical"}
    status, federation = _train(tmp_path, here, params, **more)
    assert status.state == "finished", status.error
    expected = brute_force(here, params, federation.sent)
    own = counted(federation.state(FEATURE), _ids(here), here.tables[FEATURE][0])
    assert 0 < expected[SUMS].mean() < 1
    for way in WAYS:
        np.testing.assert_array_equal(own[way], expected[way], err_msg=way)


# --- planted groups


def _planted(**columns: list[float]) -> World:
    """Twelve records of whose first column the label holder has one, of class 0 and 1 by turns."""
    n = 12
    ids = [f"r{i:05d}" for i in range(n)]
    y = np.arange(n) % 2
    mine = pa.table({"id": ids, "r0": np.arange(n) % 3 + 0.0, "y": y})
    theirs = pa.table({"id": ids, **{name: pa.array(values, from_pandas=True) for name, values in columns.items()}})
    tables = {HOLDER: (["r0"], {"train": mine}), FEATURE: (list(columns), {"train": theirs})}
    return World(tables, [], y, [], 2)


#: A bin of two records, a last one of one, missing values of three records; and bins of four and eight.
SMALL_BINS = [0.0] * 6 + [1.0, 1.0, 2.0] + [np.nan] * 3
LARGE_BINS = [0.0] * 4 + [1.0] * 8
#: Trees that are one split deep, which is their label holder's: with its own column alone it splits nothing else.
STUMP = BoostingParams(n_estimators=1, max_depth=1, min_child_weight=0.0)


def _counted_of(folder: Path, here: World, params: TreeParams, **more: Any) -> Counted:
    async def main() -> None:
        federation = Federation(folder, here.tables, **more)
        status = await federation.train(_job(params, parties=2))
        assert status.state == "finished", status.error
        await federation.close()

    with ciphers(KeysMade(), transparent=True):
        run(main())
    return counted(folder / FEATURE / "state", _ids(here), here.tables[FEATURE][0])


def test_planted_groups_are_counted_and_no_others(tmp_path: Path) -> None:
    """An inner bin, the last one and the missing values, by sums of the root; of a column of large bins no cell."""
    own = _counted_of(tmp_path, _planted(small=SMALL_BINS, large=LARGE_BINS), STUMP)
    assert np.flatnonzero(own[SUMS][:, 0]).tolist() == [6, 7, 8, 9, 10, 11]
    assert not own[SUMS][:, 1].any()


def test_records_that_id_lmid_sums_as_zeros_make_no_group_larger(tmp_path: Path) -> None:
    """Ciphertexts of all records are sent, and those that the seed does not draw are not in the group."""
    params = replace(STUMP, subsample=0.5)
    drawn = params.drawn(0, 12) > 0
    here = _planted(large=[float(place // 4) for place in range(12)])
    few = [place for place in range(12) if drawn[place // 4 * 4 : place // 4 * 4 + 4].sum() <= 3 and drawn[place]]
    assert 0 < len(few) < 12
    limit = {HOLDER: Defences(id_lmid=IdLmid(xi=10.0))}
    for name, defences in (("none", {}), ("id_lmid", limit)):
        own = _counted_of(tmp_path / name, here, params, defences=defences)
        assert np.flatnonzero(own[SUMS][:, 0]).tolist() == few


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    "params", [replace(BOOSTING, max_bin=8), replace(FOREST, max_bin=8)], ids=["boosting", "forest"]
)
def test_bins_that_are_merged_leave_no_small_group(params: TreeParams, tmp_path: Path) -> None:
    """With four records in a cell at least, the account finds none of three; without, the same job has many."""
    here = world(60, (1, 2, 1), seed=3, missing=0.1)
    shares = []
    for least in (None, 4):
        defences = {FEATURE: Defences(min_cell_records=least)}
        status, federation = _train(tmp_path / str(least), here, params, defences=defences)
        assert status.state == "finished", status.error
        shares.append(counted(federation.state(FEATURE), _ids(here), here.tables[FEATURE][0])[SUMS].mean())
        assert federation.sent.built
    assert shares[0] > 0.1
    assert shares[1] == 0


# --- without a federation


def _account(
    state: Path,
    ids: list[str],
    columns: list[str],
    *,
    job: str = "job",
    most: float | None = None,
    table: str = "train",
    metrics: PartyMetrics | None = None,
) -> ColumnAccount:
    policy, occasion = Policy(max_column_leakage=most), Occasion(table, (HOLDER, OTHER), COORDINATOR, job, 1)
    context: Any = SimpleNamespace(
        party=FEATURE,
        job=job,
        policy=policy,
        metrics=metrics or PartyMetrics(FEATURE),
        ledger=JobLedger(ledger_of(state), occasion, FEATURE, policy),
    )
    account = ColumnAccount(context, state, HOLDER, table, STUMP)
    account.open(Ids.of(ids), columns)
    return account


def _tree(rows: dict[int, list[int]], total: int, summed: list[int] | None = None) -> Any:
    mask = np.ones(total, dtype=bool) if summed is None else np.isin(np.arange(total), summed)
    spaces = {node: np.array(some, dtype=np.int64) for node, some in rows.items()}
    return SimpleNamespace(index=0, rows=spaces, summed=mask, rows_of=spaces.__getitem__)


def _split(node: int, feature: int) -> Any:
    return SimpleNamespace(node=node, feature=feature)


IDS = [f"r{i:05d}" for i in range(8)]


def test_sides_of_few_records(tmp_path: Path) -> None:
    """A side of three at most counts whole; of a larger one three drawn records do; records of an eval table do not."""
    account = _account(tmp_path, IDS, ["a", "b"])
    tree = _tree({2: [0, 1, 8, 9], 3: [2, 3, 4, 5, 6, 7]}, 10, summed=[1, 5, 6, 7])
    account.charge_left_sets(tree, [_split(1, 1)])
    own = counted(tmp_path, IDS, ["a", "b"])
    assert np.flatnonzero(own[LEFT_SETS][:, 1]).tolist() == [0, 1, 5, 6, 7]
    assert not own[LEFT_SETS][:, 0].any()
    assert not own[SUMS].any()


def test_cells_are_added_up_over_jobs_by_ids_and_names(tmp_path: Path) -> None:
    """Another order, further records and columns: a cell that is counted again counts once."""
    first = _account(tmp_path, IDS[:4], ["a", "b"])
    first.charge_left_sets(_tree({2: [0, 1], 3: [2, 3]}, 4), [_split(1, 0)])
    metrics = PartyMetrics(FEATURE)
    second = _account(tmp_path, [IDS[7], *IDS[3:1:-1]], ["c", "a"], job="second", metrics=metrics)
    second.charge_left_sets(_tree({2: [0], 3: [1, 2]}, 3), [_split(1, 1)])
    own = counted(tmp_path, IDS, ["a", "b", "c"])
    assert np.flatnonzero(own[LEFT_SETS][:, 0]).tolist() == [0, 1, 2, 3, 7]
    assert not own[LEFT_SETS][:, 1:].any()
    account = CellAccount(tmp_path, HOLDER, "train")
    kept = account.read()
    assert (kept.cells, kept.count(), kept.count(SUMS)) == (5 * 3, 5, 0)
    assert [(one.occasion.job, one.amount) for one in account.charges()] == [
        ("job", 0), ("job", 4), ("second", 0), ("second", 1)
    ]  # fmt: skip
    for by, share in (("any", 5 / 15), ("sums", 0.0), ("left_sets", 5 / 15)):
        labels = {"peer": HOLDER, "table": "train", "by": by}
        assert metrics.registry.get_sample_value("treetap_column_leakage_share", labels) == pytest.approx(share)
    assert account.jobs() == {"job": {SUMS: 0, LEFT_SETS: 4}, "second": {SUMS: 0, LEFT_SETS: 1}}


def test_jobs_that_train_at_once_lose_no_cell(tmp_path: Path) -> None:
    """Each takes what the other has written."""
    one, other = _account(tmp_path, IDS[:4], ["a"]), _account(tmp_path, IDS[2:], ["b", "a"], job="other")
    one.charge_left_sets(_tree({2: [0], 3: [1, 2, 3]}, 4), [_split(1, 0)])
    other.charge_left_sets(_tree({2: [0, 1, 2, 3], 3: [4, 5]}, 6), [_split(1, 1)])
    one.charge_left_sets(_tree({2: [1], 3: [0, 2, 3]}, 4), [_split(1, 0)])
    own = counted(tmp_path, IDS, ["a", "b"])
    assert np.flatnonzero(own[LEFT_SETS][:, 0]).tolist() == [0, 1, 2, 3, 6, 7]
    assert list(CellAccount(tmp_path, HOLDER, "train").jobs()) == ["job", "other"]


def test_the_limit_holds_among_the_records_of_a_job_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A label holder that has many records counted first cannot read all cells of a few; the log alone has figures."""
    many = _account(tmp_path, IDS, ["a"], most=0.5)
    many.charge_left_sets(_tree({2: [0], 3: [1, 2, 3, 4, 5, 6, 7]}, 8), [_split(1, 0)])
    few = _account(tmp_path, IDS[:4], ["a"], job="few", most=0.5)
    few.charge_left_sets(_tree({2: [1], 3: [0, 2, 3]}, 4, summed=[]), [])
    before = counted(tmp_path, IDS, ["a"])
    with pytest.raises(Refused) as stopped:
        few.charge_left_sets(_tree({2: [1, 2], 3: [0, 3]}, 4), [_split(1, 0)])
    assert str(stopped.value) == (
        f"{FEATURE} has stopped job few: its policy has a limit on what sums and left sets may tell of its columns; "
        f"{FEATURE}'s own log has more"
    )
    assert "4 of the 8 cells of table train would have lain in small groups" in caplog.text
    after = counted(tmp_path, IDS, ["a"])
    assert all((before[way] == after[way]).all() for way in WAYS)


def test_a_limit_that_is_passed_or_has_stopped_a_job_lets_none_begin(tmp_path: Path) -> None:
    """Until it is raised: each stop would tell of the columns anew. Of another table it stops none."""
    _account(tmp_path, IDS, ["a"]).charge_left_sets(_tree({2: [0], 3: [1, 2, 3, 4, 5, 6, 7]}, 8), [_split(1, 0)])
    _account(tmp_path, IDS, ["a"], job="exact", most=0.125)
    with pytest.raises(Refused, match="has stopped job late"):
        _account(tmp_path, IDS, ["a"], job="late", most=0.1)
    raised = _account(tmp_path, IDS, ["a"], job="raised", most=0.25)
    with pytest.raises(Refused, match="has stopped job raised"):
        raised.charge_left_sets(_tree({2: [1, 2], 3: [0, 3, 4, 5, 6, 7]}, 8), [_split(1, 0)])
    with pytest.raises(Refused, match="has stopped job again"):
        _account(tmp_path, IDS, ["a"], job="again", most=0.25)
    _account(tmp_path, IDS, ["a"], job="again", most=0.3)
    _account(tmp_path, IDS, ["a"], job="again")
    _account(tmp_path, IDS, ["a"], job="late", most=0.0, table="other")


def _only_file(state: Path) -> Path:
    """The file of the account."""
    (path,) = (state / "column_leakage").iterdir()
    return path


def _count(state: Path, *records: int, job: str = "job") -> None:
    """Count the cells of some records in a column."""
    others = [place for place in range(8) if place not in records]
    _account(state, IDS, ["a"], job=job).charge_left_sets(_tree({2: [*records], 3: others}, 8), [_split(1, 0)])


def test_later_cells_of_a_job_are_a_line_each_and_count_once_they_are_charged(tmp_path: Path) -> None:
    """One that a crash left without its charge counts for nothing, to the same job and to the next."""
    account = _account(tmp_path, IDS, ["a"])
    sets = [_tree({2: [place], 3: [other for other in range(8) if other != place]}, 8) for place in range(4)]
    account.charge_left_sets(sets[0], [_split(1, 0)])
    path = _only_file(tmp_path)
    account.charge_left_sets(sets[1], [_split(1, 0)])
    assert (path, len(path.read_bytes().splitlines())) == (_only_file(tmp_path), 2)
    kept = CellAccount(tmp_path, HOLDER, "train")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobLedger, "enter", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            account.charge_left_sets(sets[2], [_split(1, 0)])
    assert (len(path.read_bytes().splitlines()), kept.read().count()) == (3, 2)
    account.charge_left_sets(sets[3], [_split(1, 0)])
    assert kept.read().count() == 3
    _account(tmp_path, IDS, ["a"], job="next").charge_left_sets(sets[2], [_split(1, 0)])
    assert kept.read().count() == 4
    assert np.flatnonzero(counted(tmp_path, IDS, ["a"])[LEFT_SETS][:, 0]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("at", [0, 200, -40, None])
def test_a_damaged_file_is_named(at: int | None, tmp_path: Path) -> None:
    """By file and remedy; a lost one too: the account is not begun anew."""
    _count(tmp_path, 0)
    path = _only_file(tmp_path)
    content = bytearray(path.read_bytes())
    if at is None:
        path.unlink()
    else:
        content[at] ^= 1
        path.write_bytes(content)
    fault, mend = "is missing" if at is None else "is damaged or was edited", "bring back-ups of column_leakage/ and"
    with pytest.raises(DataError, match=rf"{path.name}: {fault}: .* {mend} ledger.jsonl of one time back, or give"):
        _account(tmp_path, IDS, ["a"])
    _account(tmp_path, IDS, ["a"], table="renamed")


def test_an_older_file_is_named(tmp_path: Path) -> None:
    """Under its own name, which the ledger does not say any more, and under that of the later one."""
    _count(tmp_path, 0)
    older = _only_file(tmp_path)
    content = older.read_bytes()
    _count(tmp_path, 1, job="second")
    later = _only_file(tmp_path)
    later.unlink()
    older.write_bytes(content)
    with pytest.raises(DataError, match=f"{later.name}: is missing"):
        _account(tmp_path, IDS, ["a"])
    later.write_bytes(content)
    with pytest.raises(DataError, match=f"{later.name}: is damaged or was edited"):
        _account(tmp_path, IDS, ["a"])


@pytest.mark.parametrize("name", [f"{HOLDER}.train.jsonl", f"{HOLDER}.train.{'0' * 32}.jsonl"])
def test_a_file_without_a_charge_is_named(name: str, tmp_path: Path) -> None:
    """The ledger is lost, or the file is of another version; moved away it counts no more, and other tables go on."""
    path = tmp_path / "column_leakage" / name
    path.parent.mkdir()
    path.write_bytes(b"cells")
    with pytest.raises(DataError, match=rf"{name}: .*ledger.jsonl has no charge of it, .* or move it away"):
        _account(tmp_path, IDS, ["a"])
    _account(tmp_path, IDS, ["a"], table="other")
    path.unlink()
    _account(tmp_path, IDS, ["a"])


def test_a_stop_is_a_charge(tmp_path: Path) -> None:
    """With its limit, for the party's people; of a job that the same limit keeps from beginning there is none."""
    account = _account(tmp_path, IDS, ["a"], job="one", most=0.2)
    with pytest.raises(Refused, match="has stopped job one"):
        account.charge_left_sets(_tree({2: [0, 1], 3: [2, 3, 4, 5, 6, 7]}, 8), [_split(1, 0)])
    with pytest.raises(Refused, match="has stopped job two"):
        _account(tmp_path, IDS, ["a"], job="two", most=0.2)
    (stop,) = ledger_of(tmp_path).charges(Kind.STOPPED)
    assert (stop.occasion.job, dict(stop.details)) == ("one", {"label_holder": HOLDER, "limit": 0.2})
    assert not (tmp_path / "column_leakage").exists()


# --- in federations


#: Of few trees: it is trained anew for each write.
SMALL = replace(BOOSTING, n_estimators=2, max_depth=2)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("written", [False, True])
def test_a_kill_at_every_write_loses_and_doubles_nothing(written: bool, tmp_path: Path) -> None:
    """Of the account's file and of its charges: what has reached the label holder is on disk by then.

    A resumed job has the account of an undisturbed one.
    """
    with ciphers(KeysMade(), transparent=True):
        _, whole = _train(tmp_path / "whole", HERE, SMALL)
        last = counted(whole.state(FEATURE), _ids(HERE), HERE.tables[FEATURE][0])
        writes = 0
        while _killed(tmp_path / str(writes), writes, written, last):
            writes += 1
    assert writes > 4


def _killed(folder: Path, at: int, written: bool, last: Counted) -> bool:
    """Kill the feature party at a write of its account, and resume; False if there is no such write."""
    columns, number = HERE.tables[FEATURE][0], 0

    async def main() -> bool:
        federation = Watched(folder, HERE.tables)

        def counting(real: Callable[..., Any]) -> Callable[..., Any]:
            def write(path: Path, content: bytes, **more: Any) -> Any:
                nonlocal number
                own = path.is_relative_to(federation.state(FEATURE)) and (
                    path.parent.name == "column_leakage" or b"cells in small groups" in content.splitlines()[-1]
                )
                number += own
                if not own or number - 1 != at:
                    return real(path, content, **more)
                if written:
                    real(path, content, **more)
                federation.kill(FEATURE, amid_writing=True)
                raise asyncio.CancelledError

            return write

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_file, "write_whole", counting(durable.write_whole))
            patch.setattr(line_file, "append", counting(durable.append))
            status = await federation.train(_job(SMALL))
            killed = number > at
            assert (status.state == "interrupted") == killed
            sent, own = (
                brute_force(HERE, SMALL, federation.sent),
                counted(federation.state(FEATURE), _ids(HERE), columns),
            )
            assert all((own[way] >= sent[way]).all() for way in WAYS)
            if killed:
                federation.start(FEATURE)
                assert (await federation.resume()).state == "finished"
        own = counted(federation.state(FEATURE), _ids(HERE), columns)
        assert all((own[way] == last[way]).all() for way in WAYS)
        (account,) = CellAccount.all(federation.state(FEATURE))
        assert sum(charge.amount for charge in account.charges()) == np.logical_or(*last.values()).sum()
        assert len(list((federation.state(FEATURE) / "column_leakage").iterdir())) == 1
        await federation.close()
        return killed

    return run(main())


def test_the_account_goes_on_over_jobs_and_edits_of_the_file(tmp_path: Path) -> None:
    """The same tables, then an edited file of the table's name, each time by a party that has just started."""
    _train(tmp_path, HERE, BOOSTING, "first")
    first = counted(tmp_path / FEATURE / "state", _ids(HERE), HERE.tables[FEATURE][0])
    _train(tmp_path, HERE, BOOSTING, "again")
    again = counted(tmp_path / FEATURE / "state", _ids(HERE), HERE.tables[FEATURE][0])
    assert all((first[way] == again[way]).all() for way in WAYS)
    other = world(24, (1, 2, 1), seed=11)
    _train(tmp_path, other, BOOSTING, "edited")
    edited = counted(tmp_path / FEATURE / "state", _ids(HERE), HERE.tables[FEATURE][0])
    _train(tmp_path / "alone", other, BOOSTING)
    alone = counted(tmp_path / "alone" / FEATURE / "state", _ids(HERE), HERE.tables[FEATURE][0])
    assert all(((first[way] | alone[way]) == edited[way]).all() for way in WAYS)
    assert (edited[SUMS] != first[SUMS]).any()
    jobs = {account.table: account.jobs() for account in CellAccount.all(tmp_path / FEATURE / "state")}
    assert list(jobs) == ["train"]
    assert [(name, sum(added.values()) > 0) for name, added in jobs["train"].items()] == [
        ("first", True),
        ("again", False),
        ("edited", True),
    ]
    assert CellAccount.all(tmp_path / HOLDER / "state") == []


def test_a_job_stops_before_the_sums_that_would_pass_the_limit(tmp_path: Path) -> None:
    """What the label holder got keeps the limit, all that it would have got does not; a resumed job sends nothing."""
    most, states = 0.5, []

    async def main() -> tuple[Watched, str]:
        federation = Watched(tmp_path, HERE.tables, policies={FEATURE: {"max_column_leakage": most}})
        status = await federation.train(_job(BOOSTING))
        states.append((status.state, list(federation.sent.built)))
        federation.sent.built.clear()
        again = await federation.resume()
        states.append((again.state, list(federation.sent.built)))
        await federation.close()
        assert f"{FEATURE} has stopped job job: its policy has a limit" in again.error
        assert not any(figure in "".join(federation.told_coordinator) for figure in ("0.5", " cells", "share"))
        return federation, status.error

    with ciphers(KeysMade(), transparent=True):
        federation, error = run(main())
    assert f"{FEATURE} has stopped job job: its policy has a limit" in error
    (first, sent), (_, resent) = states
    assert first != "finished"
    assert resent == []
    _, whole = _train(tmp_path / "whole", HERE, BOOSTING)
    planned = list(dict.fromkeys(whole.sent.built))
    assert sent == planned[: len(sent)]
    shares = [
        np.logical_or(*brute_force(HERE, BOOSTING, Sums(planned[:count], whole.sent.divided)).values()).mean()
        for count in (len(sent), len(planned))
    ]
    assert 0 < shares[0] <= most < shares[1]
    kept = CellAccount(federation.state(FEATURE), HOLDER, "train").read()
    assert kept.count() / kept.cells <= most


@pytest.mark.parametrize("protocol", ["pivodl", "splitnn"])
def test_a_protocol_that_counts_no_cells_is_refused_where_the_policy_has_a_limit(protocol: str) -> None:
    """By the names of both."""
    job = spec(jobs_of(protocol).PARAMS)
    with pytest.raises(
        Refused, match=rf"takes no part in this job by its policy: max_column_leakage and protocol '{protocol}'"
    ):
        check_own(FEATURE, Defences(), Policy(max_column_leakage=0.5), None, None, job)
    check_own(FEATURE, Defences(), Policy(), None, None, job)
