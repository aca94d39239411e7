"""A published model of trees as its parties score with it, and the names of features that it tells."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from treetap.arrays import Bools, Floats
from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit, valued_trees
from treetap.models.store import HIDES_CONSTANTS
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.runtime.context import Rows, batches
from treetap.party.runtime.step_order import StepId, step
from treetap.protocols.scoring import CLASSES_OF_NAMES, LONGEST_NAME, ScoringSizes
from treetap.tables.categories import Category
from treetap.trees.ensemble import Ensemble
from treetap.trees.missing_party import expected_guesses
from treetap.trees.paths import Decide, GoesLeft, candidate_leaves
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
        split = self.split(handle)
        return split.goes_left(self._opened.values.column(rows, split.feature))

    def directions(self, rows: Rows) -> GoesLeft:
        """Directions of some records at any split: all columns are gathered once, when the first is needed."""
        columns = cache(lambda: self._opened.values.columns(rows))

        def goes_left(handle: int) -> Bools:
            split = self.split(handle)
            return split.goes_left(columns()(split.feature))

        return goes_left

    def names(self) -> dict[int, str]:
        """Handle → name of the column that the split is on."""
        return named(self._opened.manifest, self._by_handle.values())


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

    def imputed(self, goes_left: GoesLeft, n: int, away: Collection[str]) -> Floats:
        """The expected share of each record's path that is guessed (n,), as far as the label holder can compute it."""
        return expected_guesses(self.ensemble.used_trees if away else (), n, self._decide(goes_left), away)

    def open_leaves(self, rows: Rows) -> Iterator[Bools]:
        """Of each used tree the leaves that the own columns leave open to some records (n, leaves)."""
        decide = self._decide(self.own.directions(rows))
        for tree in self.ensemble.used_trees:
            yield candidate_leaves(tree, len(rows), decide)

    def count(self, rows: Rows, figure: Callable[[GoesLeft, int], Floats]) -> Floats:
        """A figure of each of some records (n,) by their directions, computed part by part."""
        parts = np.split(rows, range(COUNTED, len(rows), COUNTED))
        return np.concatenate([figure(self.own.directions(part), len(part)) for part in parts])

    def handles_of(self, party: str) -> set[int]:
        """The splits that another party owns."""
        return {split.handle for tree in self.ensemble.trees for split in tree.splits if split.owner == party}

    def _decide(self, goes_left: GoesLeft) -> Decide:
        """The directions of records at the own splits; None at those of others."""
        return lambda split: goes_left(split.handle) if split.owner == self._party else None


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
