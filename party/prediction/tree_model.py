"""A published model of trees as its parties score with it, and the names of features that it tells.

Parts of the label holder of every prediction by trees: opened model, trees, records, results, and explanations.

The file of explanations has a row per record, written a few at a time: its id, and `paths`, a list of `tree` and `leaf`
(heap number), each with its `conditions` from the root down: tree by tree the leaves that the record may have reached.
Conditions are few and repeat, so they are kept as a dictionary. A leaf whose value the label holder's own columns
decide for each record, in a local subtree, says so in a last condition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.arrays import Bools, Floats, Ints
from treetap.errors import Malformed
from treetap.models.arrays import Arrays
from treetap.models.durable import writing_whole
from treetap.models.own_split import OwnSplit, valued_trees
from treetap.models.store import HIDES_CONSTANTS
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.prediction.batch import Beside
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.reasons import NumberedColumns
from treetap.party.prediction.records import record_source
from treetap.party.prediction.scores_on_disk import Imputed, ScoreStore
from treetap.party.prediction.steps import NAMES
from treetap.party.runtime.context import Rows, batches, required
from treetap.party.runtime.step_order import ALIGNMENT, Phase, StepId, step
from treetap.protocols.messages import CLASSES_OF_NAMES, LONGEST_NAME, ScoringSizes
from treetap.tables.categories import Category
from treetap.tables.label_columns import IdColumns
from treetap.trees.ensemble import Ensemble, Split, Tree, route
from treetap.trees.paths import (
    Decide,
    GoesLeft,
    candidate_leaves,
    covering,
    expected_guesses,
    paths,
    reached_values,
)
from treetap.wire.v2 import prediction_pb2

log = logging.getLogger(__name__)

#: Records whose candidate leaves are counted at a time.
COUNTED = 4096


class OwnSplits:
    """The splits of a party's own shard, by handle."""

    def __init__(self, opened: OpenedModel, trees: Iterable[Iterable[OwnSplit]]) -> None:
        """`trees`: those of each tree, in order."""
        self._opened = opened
        self._by_handle: dict[int, OwnSplit] = {}
        self._tree_of: dict[int, int] = {}  # handle → tree
        for number, splits in enumerate(trees):
            for split in splits:
                self._by_handle[split.handle], self._tree_of[split.handle] = split, number
        opened.compare(split.feature for split in self._by_handle.values())

    @classmethod
    def of_feature_party(cls, opened: OpenedModel, sizes: ScoringSizes) -> OwnSplits:
        """Those of a feature party's shard, which bounds the messages about it."""
        shard, lengths = opened.shard, [len(way) for tree in opened.shard for way in tree["leaves"]]
        sizes.trees, sizes.splits = len(shard), sum(len(tree["splits"]) for tree in shard)
        sizes.leaves, sizes.depth = len(lengths), max(lengths, default=0)
        return cls(opened, (map(OwnSplit.from_dict, tree["splits"]) for tree in opened.shard))

    def items(self) -> ItemsView[int, OwnSplit]:
        """Handle → split."""
        return self._by_handle.items()

    def split(self, handle: int) -> OwnSplit:
        """The split of a handle; `Malformed` if this party has none."""
        if handle not in self._by_handle:
            raise Malformed(f"{self._opened.party} has no split {handle} in model {self._opened.name}")
        return self._by_handle[handle]

    def trees(self, handles: Iterable[int]) -> int:
        """The number of trees that have these splits; `Malformed` if this party has none of such a handle."""
        return len({self._tree_of[self.split(handle).handle] for handle in handles})

    def goes_left(self, handle: int, rows: Rows) -> Bools:
        """Directions of some records at a split, (n,), true for left: one column is read."""
        split, opened = self.split(handle), self._opened
        values = opened.values.column(rows // opened.ways, split.feature)
        return split.goes_left(opened.in_ways(values, rows, split.feature))

    def directions(self, rows: Rows) -> GoesLeft:
        """Directions of some records at any split: all columns are gathered once, when the first is needed."""
        opened = self._opened
        columns = cache(lambda: opened.values.columns(rows // opened.ways))

        def goes_left(handle: int) -> Bools:
            split = self.split(handle)
            return split.goes_left(opened.in_ways(columns()(split.feature), rows, split.feature))

        return goes_left

    def names(self) -> dict[int, str]:
        """Handle → name of the column that the split is on."""
        return named(self._opened.manifest, self._by_handle.values())

    def phase(self, job: PredictionJob, names: Phase, others: int = 0) -> Phase:
        """The phase `NAMES`: `names`, or where reasons are given the numbers of columns; see `NumberedColumns`."""
        columns = {self._by_handle[handle].feature: name for handle, name in self.names().items()}
        return NumberedColumns(job, self._opened, columns, others) if job.opening.reasons else names


class TreeModel:
    """The label holder's part: the shape of the trees, the values of their leaves, and its own splits.

    Attributes:
        ensemble: the trees with the values that predictions use.
        public: the same shapes with the values of the training, from which follows all that is sent or refused.
        hides_constants: no entry of an encrypted prediction may count as constant.
        own: the own splits, those of local subtrees included.
    """

    def __init__(self, opened: OpenedModel) -> None:
        """Raises DataError: see `valued_trees`."""
        self._party, manifest = opened.party, opened.manifest
        trees = valued_trees(manifest, opened.shard, opened.repaired, opened.party, f"model {opened.name}")
        self.public = Ensemble(
            objective=opened.objective,
            classes=len(opened.classes),
            base_margin=tuple(manifest["base_margin"]),
            trees=trees.public,
            trees_per_round=manifest["trees_per_round"],
            best_round=manifest["best_round"],
            averaged=manifest.get("averaged", False),  # forests alone say it
        )
        same = trees.valued is trees.public
        self.ensemble = self.public if same else replace(self.public, trees=trees.valued)
        # which entries are constant would tell where padded trees end
        self.hides_constants = bool(manifest.get(HIDES_CONSTANTS)) or any(tree.padded for tree in trees.public)
        self.own = OwnSplits(opened, trees.own)
        self._missing_left = {
            (split.owner, split.handle)
            for tree in self.public.trees
            for split in tree.splits
            if split.node in tree.missing_left
        }

    def imputed(self, goes_left: GoesLeft, n: int, away: Collection[str]) -> Floats:
        """The expected share of each record's path that is guessed (n,), as far as the label holder can compute it."""
        return expected_guesses(self.ensemble.used_trees if away else (), n, self._decide(goes_left), away)

    def open_leaves(self, rows: Rows) -> Iterator[Bools]:
        """Of each used tree the leaves that the own columns leave open to some records (n, leaves)."""
        decide = self._decide(self.own.directions(rows))
        for tree in self.ensemble.used_trees:
            yield candidate_leaves(tree, len(rows), decide)

    def count(
        self, rows: Rows, common: Mapping[str, PartnerRecords], figure: Callable[[Decide, int], Floats]
    ) -> Floats:
        """A figure of each of some records (n,) by the directions that are known here, computed part by part.

        `common`: see `OpenedModel`. Of records that none of these parties has there is nothing to hide, and no figure.
        """
        figures = [np.zeros(0)]
        for some, lacking in _by_lacking(rows, common):
            for part in np.split(some, range(COUNTED, len(some), COUNTED)):
                figures.append(figure(self.decide(part, lacking), len(part)))
        return np.concatenate(figures)

    def scores(self, rows: Rows, lacking: Collection[str]) -> Floats:
        """Scores (n, outputs) of records that all other parties lack, which are `lacking`."""
        decide, n = self.decide(rows, lacking), len(rows)

        def goes_left(split: Split, places: Ints) -> Bools:
            return required(decide(split))[places]

        reached = ((tree, route(tree.splits, n, goes_left)) for tree in self.ensemble.used_trees)
        return self.ensemble.summed((reached_values(tree, leaves, goes_left) for tree, leaves in reached), n)

    def decide(self, rows: Rows, lacking: Collection[str]) -> Decide:
        """The directions of some records at the own splits, and at those of parties that lack all of them."""
        own, n = self._decide(self.own.directions(rows)), len(rows)

        def known(split: Split) -> Bools | None:
            if split.owner in lacking:
                return np.full(n, (split.owner, split.handle) in self._missing_left)
            return own(split)

        return known

    def handles_of(self, party: str) -> set[int]:
        """The splits that another party owns."""
        return {split.handle for tree in self.ensemble.trees for split in tree.splits if split.owner == party}

    def _decide(self, goes_left: GoesLeft) -> Decide:
        """The directions of records at the own splits; None at those of others."""
        return lambda split: goes_left(split.handle) if split.owner == self._party else None


def _by_lacking(rows: Rows, common: Mapping[str, PartnerRecords]) -> Iterator[tuple[Rows, set[str]]]:
    """Records by the parties that lack them, without such as none of them has."""
    masks = {party: of_party.lacks[rows] for party, of_party in common.items() if of_party.lacks is not None}
    if not masks:
        yield rows, set()
        return
    patterns, kinds = np.unique(np.stack([*masks.values()]), axis=1, return_inverse=True)
    for kind, pattern in enumerate(patterns.T):
        if not pattern.all():
            yield rows[kinds.ravel() == kind], {party for party, lacks in zip(masks, pattern, strict=True) if lacks}


def named(manifest: dict[str, Any], splits: Iterable[OwnSplit]) -> dict[int, str]:
    """Handle → name of the column that the split is on. A one-hot feature's own name would show the category."""
    columns, categories = manifest["columns"], manifest["categories"]
    source = {
        feature: column for column, category in categories.items() for feature in Category.from_dict(category).features
    }
    return {split.handle: source.get(columns[split.feature], columns[split.feature]) for split in splits}


#: The splits that a party owns, by handle.
HandlesOf = Callable[[str], Collection[int]]


class NamesSent:
    """A feature party's part, the phase `NAMES`: one step, and none without `explain`."""

    def __init__(self, job: PredictionJob, names: Mapping[int, str]) -> None:
        """`names`: the own ones, by handle."""
        self._context, self._to, self._names = job.context, job.opening.recipient, names
        self.sequence: Sequence[StepId] = [("name_features", 0, 0)] if job.opening.explain else []

    @step()
    async def name_features(self) -> None:
        """Send all names, or the answer that they are withheld. The outbox checks the policy again."""
        context, to = self._context, self._to
        refused = [name for name in sorted(CLASSES_OF_NAMES) if not context.policy.may_emit(to, name)]
        if not refused:
            rows = (prediction_pb2.SplitName(handle=handle, feature=name) for handle, name in self._names.items())
            bodies = (prediction_pb2.SplitNames(names=batch) for batch in batches(rows))
            await context.outbox.send(to, "split_names", bodies)
        else:
            rule = ", ".join(f"emits.{name}" for name in refused)
            log.info("job %s: %s does not get the names of features (policy: %s)", context.job, to, rule)
            await context.outbox.send(to, "split_names", [prediction_pb2.SplitNames(withheld=True)])


class NamesTaken:
    """The label holder's part, the phase `NAMES`: one step, and none without `explain`.

    Attributes:
        known: the names that parties have sent in this prediction, by party and handle.
        withheld: the parties that have withheld theirs.
    """

    def __init__(self, job: PredictionJob, handles_of: HandlesOf) -> None:
        """`handles_of`: no split may be named but these."""
        self._job, self._handles_of = job, handles_of
        self.known: dict[str, dict[int, str]] = {}
        self.withheld: list[str] = []
        self.sequence: Sequence[StepId] = [("take_names", 0, 0)] if job.opening.explain else []

    @step()
    async def take_names(self) -> None:
        """Take the names of each feature party that is present, and store them beside the model."""
        for party in self._job.chain:
            handles, names, withheld = self._handles_of(party), dict[int, str](), False
            async for message in self._job.context.mailbox.series(party, "split_names", 0, 0):
                withheld |= message.prediction.split_names.withheld
                for row in message.prediction.split_names.names:
                    if row.handle not in handles or row.handle in names:
                        raise Malformed(f"{party} names a feature of split {row.handle}, not its own or named before")
                    if not row.feature or len(row.feature) > LONGEST_NAME:
                        raise Malformed(
                            f"{party} names the feature of split {row.handle} by {len(row.feature)} characters"
                        )
                    names[row.handle] = row.feature
            if withheld:
                self.withheld.append(party)
            else:
                self.known[party] = names
        self._job.store.keep_names(self._job.opening.model, self.known, self.withheld)


Bytes = npt.NDArray[np.uint8]
#: The condition of a side of a split, as text.
Meaning = Callable[[Split, bool], str]
#: The name under which the leaves that are open to a record are kept with its score.
OPEN_LEAVES = "open_leaves"
#: The last condition of a leaf that a local subtree replaces.
DECIDED_ALONE = "value by the label holder's own columns"
#: Approximate number of paths in memory at a time.
PATHS_AT_ONCE = 200_000
PATHS = pa.list_(
    pa.struct(
        [
            ("tree", pa.int32()),
            ("leaf", pa.int64()),
            ("conditions", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        ]
    )
)


class TreeScoring:
    """The part of a role that scores records by trees, whichever way the scores come about.

    `names`: those of features, which other parties send.
    """

    def __init__(
        self, job: PredictionJob, sizes: ScoringSizes, *, beside: Sequence[Beside] = (), shows_directions: bool = False
    ) -> None:
        """`sizes`: of the prediction; `beside`: writers of further files.

        `shows_directions`: other parties send the directions of records at their splits.

        Raises:
            BadInput: see `OpenedModel`.
        """
        self._context, self._opening = job.context, job.opening
        self._shows_directions = frozenset(job.chain if shows_directions else ())
        self.opened = OpenedModel(job, sizes)
        self.trees = TreeModel(self.opened)
        self.opened.shape = {"trees": len(self.trees.ensemble.used_trees)}
        self.names = NamesTaken(job, self.trees.handles_of)
        sizes.named = sum(len(self.trees.handles_of(party)) for party in job.chain)
        heard = self.trees.own.phase(job, self.names, sizes.named)
        self.phases: Mapping[str, Phase] = {ALIGNMENT: self.opened.alignment, NAMES: heard}
        self.records = record_source(job, self.opened, [self._write_paths, *beside])

    def keep(
        self,
        rows: Rows,
        scores: Floats,
        imputed: Imputed,
        *,
        leaves: Iterable[Bools] | None = None,
        further: Arrays | None = None,
    ) -> None:
        """Keep the scores (n, outputs) of some records, and the imputed share of each (n,).

        `leaves`: of each used tree those that they may have reached (n, leaves); None: all that the own columns leave
        open, f_k(x) of Fed-EINI. `further`: other arrays to keep, by name.
        """
        kept = dict(further or {})
        if self._opening.explain:
            kept[OPEN_LEAVES] = pack_masks(self.trees.open_leaves(rows) if leaves is None else leaves)
        self.records.keep(rows, scores, imputed, kept)

    async def _write_paths(
        self, path: Path, own: IdColumns, known: Rows, scored: ScoreStore, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """Write the decision paths of scored records beside the predictions, if explanations are asked for."""
        if not self._opening.explain:
            return
        shown = known[: self._opening.explain_limit or len(known)]
        target = path.with_name(f"{self._context.job}.explained.parquet")
        trees = self.trees.ensemble.used_trees
        at_once = max(1, PATHS_AT_ONCE // max(1, sum(len(tree.leaves) for tree in trees)))
        ids = (own.at(shown[first : first + at_once]) for first in range(0, len(shown), at_once))
        leaves = (part[OPEN_LEAVES] for part in scored.in_order([OPEN_LEAVES], shown, at_once))
        parts = zip(ids, leaves, strict=True)
        await self._context.offload(lambda: write_paths(target, own.fields, parts, trees, self._meaning), whole=True)
        written.explanations = str(target)
        written.withheld.extend(self.names.withheld)

    def _meaning(self, split: Split, left: bool) -> str:
        """One side of a split as text."""
        if split.owner == self._context.party:
            return self.trees.own.split(split.handle).condition(self.opened.manifest, left=left)
        named = self.names.known.get(split.owner, {})
        return foreign(split, named, left if split.owner in self._shows_directions else None)


def foreign(split: Split, names: Mapping[int, str], left: bool | None) -> str:
    """Another party's split: by name if its owner sent it, else by handle; and by its side where that is known."""
    name = names.get(split.handle)
    what = f"{split.owner}#{split.handle}" if name is None else f"{split.owner}: {name}"
    return what if left is None else f"{what} ({'left' if left else 'right'})"


def write_paths(
    path: Path,
    columns: Sequence[pa.Field],
    parts: Iterable[tuple[Sequence[pa.Array], Bytes]],
    trees: Sequence[Tree],
    meaning: Meaning,
) -> None:
    """Write the open leaves of records, part by part.

    `columns`: those of ids as the party's table has them. `parts`: ids (n,) of each, and their open leaves (n, bytes)
    as `pack_masks` makes them of the trees.
    """
    schema = pa.schema([*columns, ("paths", PATHS)])
    known = _Leaves(trees, meaning)
    with writing_whole(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for ids, leaves in parts:
            writer.write_table(pa.table([*ids, known.lists(known.unpack_masks(leaves))], schema=schema))


class _Leaves:
    """Every leaf of every tree, in order: its tree, its heap number, and its conditions by number."""

    def __init__(self, trees: Sequence[Tree], meaning: Meaning) -> None:
        texts: dict[str, int] = {}
        self._sizes = [len(tree.leaves) for tree in trees]
        self.tree: list[int] = []
        self._leaf: list[int] = []
        ways: list[list[int]] = []
        for tree in trees:
            covered = covering(tree)
            for leaf, way in paths(tree).items():
                self.tree.append(tree.index)
                self._leaf.append(leaf)
                conditions = [meaning(split, left) for split, left in way]
                conditions += [DECIDED_ALONE] if leaf in covered else []
                ways.append([texts.setdefault(text, len(texts)) for text in conditions])
        self._texts = pa.array(list(texts), pa.string())
        self._branches = np.array([number for way in ways for number in way], dtype=np.int32)
        self._lengths = np.array([len(way) for way in ways], dtype=np.int64)
        self._starts = np.array(list(accumulate(map(len, ways), initial=0))[:-1], dtype=np.int64)

    def unpack_masks(self, leaves: Bytes) -> Bytes:
        """The inverse of `pack_masks`: (n, leaves of all trees)."""
        bytes_of = [-(-size // 8) for size in self._sizes]
        parts = np.split(leaves, np.cumsum(bytes_of)[:-1], axis=1)
        masks = (np.unpackbits(part, axis=1, count=size) for part, size in zip(parts, self._sizes, strict=True))
        return np.concatenate(list(masks), axis=1)

    def lists(self, leaves: Bytes) -> pa.ListArray:
        """The paths of some records; `leaves` (records, leaves) marks the open ones."""
        records, places = np.nonzero(leaves)
        lengths = self._lengths[places]
        ends = np.cumsum(lengths)
        branches = np.arange(lengths.sum()) + np.repeat(self._starts[places] - (ends - lengths), lengths)
        texts = pa.DictionaryArray.from_arrays(pa.array(self._branches[branches]), self._texts)
        ways = pa.StructArray.from_arrays(
            [
                pa.array(np.array(self.tree, dtype=np.int32)[places]),
                pa.array(np.array(self._leaf, dtype=np.int64)[places]),
                pa.ListArray.from_arrays(_offsets(ends), texts),
            ],
            names=["tree", "leaf", "conditions"],
        )
        last = np.cumsum(np.bincount(records, minlength=len(leaves)))
        return pa.ListArray.from_arrays(_offsets(last), ways)


def _offsets(ends: npt.NDArray[np.int64]) -> pa.Array:
    """The beginning of each list, and the end of the last."""
    return pa.array(np.concatenate([[0], ends]).astype(np.int32))


def pack_masks(masks: Iterable[Bools]) -> Bytes:
    """Masks (n, leaves) of the used trees, in order, as (n, bytes); a tree begins with a byte."""
    return np.concatenate([np.packbits(mask, axis=1) for mask in masks], axis=1)
