"""What every prediction begins with, shard, table and records, and at the label holder where scores go."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from party.alignment.steps import ALIGNMENT, Alignment, alignment_steps
from party.config import PartyConfig
from party.prediction.batch import Listed
from party.prediction.decision_paths import OPEN_LEAVES, foreign, packed, write_paths
from party.prediction.feature_names import Naming, named
from party.prediction.records import Asked
from party.prediction.scores_on_disk import Guessed, Scored
from party.runtime.context import Tools, have
from party.runtime.job_store import Arrays, Store
from party.runtime.messages import Rows
from party.runtime.step_order import OPENING, Next, StepOrder
from party.serving.label_holder import Live
from party.serving.registry import Desk
from party.setup.steps import load_table, table_config
from treetap.errors import DataError, Malformed
from treetap.models.own_split import OwnSplit
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.reading import Floats, Table
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.leaf_entries import GoesLeft
from treetap.trees.paths import Bools, candidate_leaves, condition
from treetap.wire.frame import result
from treetap.wire.timeouts import RETRY_S
from treetap.wire.v2 import control_pb2, prediction_pb2

log = logging.getLogger(__name__)


class Opened(ABC):
    """What both roles do: load the shard and the table it needs, align."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        tools: Tools,
        opening: prediction_pb2.OpenModel,
        role: str,
        first: str | None = None,
    ) -> None:
        """`first`: the step that follows the alignment; None where a later one sees to the order by itself."""
        self._config, self._tools, self._opening = config, tools, opening
        self._store = store
        self.manifest, self._trees = store.model(opening.model, opening.submission)
        if self.manifest["role"] != role:
            was = self.manifest["role"]
            raise DataError(f"{config.name} was {was} of model {opening.model}, not {role}", party=config.name)
        members = [opening.label_holder, *(name for name in opening.feature_parties if name not in opening.away)]
        if opening.away:
            log.warning("job %s: goes on without %s, who does not answer", tools.job, ", ".join(opening.away))
        if opening.away_deadline_s:
            tools.outbox.retry_s = min(RETRY_S, opening.away_deadline_s)
        after = ("take_names" if role == "label_holder" else "name_features") if opening.explain else first
        self._order = StepOrder(
            {
                OPENING: (Next("open_model"),),
                "open_model": (Next(ALIGNMENT),),
                ALIGNMENT: () if after is None else (Next(after),),
            },
            {ALIGNMENT: alignment_steps(members, opening.alignment, tools.party)},
        )
        self._names = Naming(tools, opening, self._order, None if first is None else (first, 0, 0))
        self._alignment = Alignment(tools, members, opening.alignment, self._order)
        self._table: Table | None = None  # the own one, and then of its records those that all parties hold
        self._common: Table | None = None

    @property
    def aligned(self) -> Table:
        """The common records in the common order."""
        if self._common is None:
            self._common, self._table = have(self._table).take(self._alignment.records), None
        return self._common

    def _align(self, table: Table, request: control_pb2.StepRequest) -> None:
        """The own table is there: the steps of the alignment may come."""
        self._table = table
        self._alignment.begin(table.ids, table.rows, table.path, keep=False)
        self._order.done(request)

    async def _load(self) -> Table:
        """The columns of the model from the table of this name; labels are not read."""
        named = table_config(self._config, self._opening.table)
        # models of releases before columns of text could be encoded say of neither: their features are their columns
        columns = self.manifest.get("source_columns", self.manifest["columns"])
        encoded = self.manifest.get("categories", {})
        absent = [name for name in columns if name not in named.columns]
        if absent:
            raise DataError(
                f"model {self._opening.model} needs column {absent[0]!r}, "
                f"which table {self._opening.table!r} of the configuration does not name"
            ).at(self._config.name)
        wanted = TableConfig(path=named.path, id=named.id, columns=columns)
        categories = {name: Category.from_dict(each) for name, each in encoded.items()}
        missing = self.manifest["missing"]
        return await load_table(self._tools, wanted, with_label=False, missing=missing, categories=categories)

    @abstractmethod
    def split(self, handle: int) -> OwnSplit:
        """What a handle of one's own means."""

    def directions(self, rows: Rows) -> GoesLeft:
        """Which of some records go left at an own split."""
        features = self.aligned.features[rows]

        def goes_left(handle: int) -> Bools:
            split = self.split(handle)
            return split.goes_left(features[:, split.feature])

        return goes_left


class Answering(Opened):
    """What a feature party does: its own splits, by handle."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        tools: Tools,
        opening: prediction_pb2.OpenModel,
        first: str | None = None,
    ) -> None:
        """`first`: the step that follows the alignment."""
        super().__init__(config, store, tools, opening, "feature_party", first)
        if self.manifest["label_holder"] != opening.label_holder:
            raise DataError(f"model {opening.model} belongs to label holder {self.manifest['label_holder']}")
        splits = [OwnSplit.from_dict(split) for tree in self._trees for split in tree["splits"]]
        self._splits = {split.handle: split for split in splits}
        self._names.give(named(self.manifest, splits))

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load shard and table."""
        self._order.check(("open_model", request.round, request.stage))
        self._align(await self._load(), request)
        return result(prediction_pb2.OpenedModel())

    def split(self, handle: int) -> OwnSplit:
        """What a handle means; `Malformed` where this party never gave it."""
        if handle not in self._splits:
            raise Malformed(f"{self._tools.party} has no split {handle} in model {self._opening.model}")
        return self._splits[handle]


class Scoring(Opened):
    """What a label holder does: which records, what becomes of their scores.

    A protocol takes the records of a `block`, says how far it is (`advance`), hands their scores over (`keep`), and
    then lets the `next_block` come. Whether the records stand in a table or in requests of clients is not its business.
    """

    begins: ClassVar[str]  #: the first step of every block

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        tools: Tools,
        opening: prediction_pb2.OpenModel,
        desk: Desk,
        first: str,
    ) -> None:
        """`desk`: where clients of served models ask; `first`: the step that follows the alignment."""
        then = "await_requests" if opening.serve and first == self.begins else first
        super().__init__(config, store, tools, opening, "label_holder", then)
        manifest = self.manifest
        self.parties = list(opening.feature_parties)
        if sorted(manifest["feature_parties"]) != sorted(self.parties):
            raise DataError(f"model {opening.model} was trained with {', '.join(manifest['feature_parties'])}")
        self.ensemble = Ensemble(
            objective=manifest["objective"],
            classes=len(manifest["classes"]),
            base_margin=tuple(manifest["base_margin"]),
            trees=tuple(Tree.from_dict(tree["tree"]) for tree in self._trees),
            trees_per_round=manifest["trees_per_round"],
            best_round=manifest["best_round"],
            averaged=manifest.get("averaged", False),  # models of releases before forests say nothing
        )
        own = [OwnSplit.from_dict(split) for tree in self._trees for split in tree["own"]]
        self.own = {split.handle: split for split in own}
        self._names.take(self.ensemble, lambda told, withheld: store.keep_names(opening.model, told, withheld))
        self.heard: frozenset[str] = frozenset()  #: parties that tell which way records go at their splits
        self.size = max(1, opening.block)  #: most records of a block; a protocol may lower it before the first one
        classes: list[str] = manifest["classes"]
        self.asked: Asked = (
            Live(config, tools, desk, opening, self._order, self._aligned, self.ensemble, classes, self._start)
            if opening.serve
            else Listed(
                config, store, tools, opening, self._order, self._aligned, self.ensemble, classes, self._explain
            )
        )

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load shard and table, find what is asked for; say how many trees there are to walk."""
        self._order.check(("open_model", request.round, request.stage))
        table = await self._load()
        opened = await self.asked.open(table)
        opened.trees = len(self.ensemble.used_trees)
        self._align(table, request)
        return result(opened)

    def split(self, handle: int) -> OwnSplit:
        """What a handle of one's own means."""
        return self.own[handle]

    @property
    def wanted(self) -> Rows:
        """Places in the aligned order of all records that may come."""
        return self.asked.wanted

    def block(self, number: int) -> tuple[Rows, int]:
        """The places of the records of a block, ascending, and how many blocks there are."""
        return self.asked.block(number, self.size)

    def advance(self, records: int) -> None:
        """So many records of the block are done, for those who watch."""
        self.asked.advance(records)

    def keep(
        self,
        rows: Rows,
        scores: Floats,
        guessed: Guessed | None = None,
        *,
        leaves: Iterable[Bools] | None = None,
        further: Arrays | None = None,
    ) -> None:
        """The scores (n, outputs) of the records at these places, and how much of the way of each was guessed (n,).

        `leaves`: of each used tree those that they may have reached (n, leaves); if it is not said, all that the own
        columns leave open, f_k(x) of Fed-EINI. `further`: what else is kept of them, by name.
        """
        kept = dict(further or {})
        if self._opening.explain:
            kept[OPEN_LEAVES] = packed(self._candidates(rows) if leaves is None else leaves)
        share = np.zeros(len(rows)) if guessed is None else guessed
        self.asked.keep(rows, scores, share, kept)

    def next_block(self, number: int) -> None:
        """Block `number` may come, or what comes after the last one."""
        self._order.then(self.asked.before_block(number, self.begins, self.size))

    def _aligned(self) -> Table:
        return self.aligned

    def _start(self) -> tuple[str, int]:
        """With which step a block begins, and how many records it may have."""
        return self.begins, self.size

    def _candidates(self, rows: Rows) -> Iterator[Bools]:
        """Of each used tree the leaves that the own columns leave open to the records at these places (n, leaves)."""
        goes_left, party = self.directions(rows), self._tools.party
        for tree in self.ensemble.used_trees:
            yield candidate_leaves(tree, len(rows), lambda s: goes_left(s.handle) if s.owner == party else None)

    async def _explain(
        self, path: Path, known: list[str], scored: Scored, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """Write beside the predictions what explains them, as far as that was asked for."""
        opening = self._opening
        if not opening.explain:
            return
        columns, party, told = self.manifest["columns"], self._tools.party, self._names.told

        def meaning(split: Split, left: bool) -> str:
            if split.owner == party:
                own = self.own[split.handle]
                return condition(columns[own.feature], own.threshold, own.missing_left, left)
            return foreign(split, told.get(split.owner, {}), left if split.owner in self.heard else None)

        limit = opening.explain_limit or len(known)
        shown = known[:limit]
        target = path.with_name(f"{self._tools.job}.explained.parquet")
        leaves = scored.rows(OPEN_LEAVES, shown)
        await self._tools.offload(lambda: write_paths(target, shown, leaves, self.ensemble.used_trees, meaning))
        written.explanations = str(target)
        written.withheld.extend(self._names.withheld)
