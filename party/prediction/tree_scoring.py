"""Parts of the label holder of every prediction by trees: opened model, trees, records, results, and explanations.

The file of explanations has a row per record, written a few at a time: its id, and `paths`, a list of `tree` and `leaf`
(heap number), each with its `conditions` from the root down: tree by tree the leaves that the record may have reached.
Conditions are few and repeat, so they are kept as a dictionary. A leaf whose value the label holder's own columns
decide for each record, in a local subtree, says so in a last condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.arrays import Bools
from treetap.models.arrays import Arrays
from treetap.models.durable import writing_whole
from treetap.party.prediction.batch import Beside
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.records import record_source
from treetap.party.prediction.scores_on_disk import Imputed, ScoreStore
from treetap.party.prediction.steps import NAMES
from treetap.party.prediction.tree_model import NamesTaken, TreeModel
from treetap.party.runtime.context import Rows
from treetap.party.runtime.step_order import ALIGNMENT, Phase
from treetap.protocols.scoring import ScoringSizes
from treetap.tables.label_columns import IdColumns
from treetap.tables.reading import Floats
from treetap.trees.ensemble import Split, Tree
from treetap.trees.paths import covering, paths
from treetap.wire.v2 import prediction_pb2

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
        self.phases: Mapping[str, Phase] = {ALIGNMENT: self.opened.alignment, NAMES: self.names}
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
