"""What every prediction begins with, shard, table and records, and at the label holder where scores go."""

from __future__ import annotations

import logging
from typing import ClassVar

import numpy as np

from party.alignment import Alignment
from party.asked import Asked
from party.categories import Category
from party.config import PartyConfig, TableConfig
from party.listed import Listed
from party.parcels import Rows
from party.scored import Guessed
from party.serving.live import Live
from party.session import Tools
from party.setup import load_table, table_config
from party.steps import Order
from party.store import Store
from party.table import Floats, Table
from party.vault import OwnSplit
from treetap.errors import DataError, Malformed
from treetap.trees.ensemble import Ensemble, Tree
from treetap.wire.patience import RETRY_S
from treetap.wire.v1 import control_pb2, interactive_pb2

log = logging.getLogger(__name__)


class Opened:
    """What both roles do: load the shard and the table it needs, align."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        tools: Tools,
        opening: interactive_pb2.OpenModel,
        role: str,
        first: str | None = None,
    ) -> None:
        """`first`: the step that follows the alignment; None where a later one sees to the order by itself."""
        self._config, self._tools, self._opening = config, tools, opening
        self._store = store
        self.manifest, self._trees = store.model(opening.model, opening.submission)
        if self.manifest["role"] != role:
            raise DataError(f"{config.name} was {self.manifest['role']} of model {opening.model}, not {role}")
        self._order = Order(("open_model", 0, 0))
        members = [opening.label_holder, *(name for name in opening.feature_parties if name not in opening.away)]
        if opening.away:
            log.warning("job %s: goes on without %s, who does not answer", tools.job, ", ".join(opening.away))
        if opening.away_deadline_s:
            tools.outbox.retry_s = min(RETRY_S, opening.away_deadline_s)
        then = None if first is None else (first, 0, 0)
        self._alignment = Alignment(tools, members, opening.alignment, self._order, then)

    async def _load(self) -> Table:
        """The columns of the model from the table of this name; labels are not read."""
        named = table_config(self._config, self._opening.table)
        # models of releases before columns of text could be encoded say of neither: their features are their columns
        columns = self.manifest.get("source_columns", self.manifest["columns"])
        encoded = self.manifest.get("categories", {})
        absent = [name for name in columns if name not in named.columns]
        if absent:
            raise DataError(
                f"{self._config.name}: model {self._opening.model} needs column {absent[0]!r}, "
                f"which table {self._opening.table!r} of the configuration does not name"
            )
        wanted = TableConfig(path=named.path, id=named.id, columns=columns)
        categories = {name: Category.from_dict(each) for name, each in encoded.items()}
        missing = self.manifest["missing"]
        return await load_table(self._tools, wanted, with_label=False, missing=missing, categories=categories)


class Answering(Opened):
    """What a feature party does: its own splits, by handle."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        tools: Tools,
        opening: interactive_pb2.OpenModel,
        first: str | None = None,
    ) -> None:
        """`first`: the step that follows the alignment."""
        super().__init__(config, store, tools, opening, "feature_party", first)
        if self.manifest["label_holder"] != opening.label_holder:
            raise DataError(f"model {opening.model} belongs to label holder {self.manifest['label_holder']}")
        splits = [OwnSplit.from_dict(split) for tree in self._trees for split in tree["splits"]]
        self._splits = {split.handle: split for split in splits}

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load shard and table."""
        self._order.check(("open_model", request.tree, request.level))
        self._alignment.begin(await self._load(), keep=False)
        return control_pb2.StepResult(opened_model=interactive_pb2.OpenedModel())

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
        opening: interactive_pb2.OpenModel,
        first: str,
    ) -> None:
        """`first`: the step that follows the alignment."""
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
        self.size = max(1, opening.block)  #: most records of a block; a protocol may lower it before the first one
        classes: list[str] = manifest["classes"]
        self.asked: Asked = (
            Live(config, tools, opening, self._order, self._aligned, self.ensemble, classes, self._start)
            if opening.serve
            else Listed(config, store, tools, opening, self._order, self._aligned, self.ensemble, classes)
        )

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load shard and table, find what is asked for; say how many trees there are to walk."""
        self._order.check(("open_model", request.tree, request.level))
        table = await self._load()
        opened = await self.asked.open(table)
        opened.trees = len(self.ensemble.used_trees)
        self._alignment.begin(table, keep=False)
        return control_pb2.StepResult(opened_model=opened)

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

    def keep(self, rows: Rows, scores: Floats, guessed: Guessed | None = None) -> None:
        """The scores (n, outputs) of the records at these places, and how much of the way of each was guessed (n,)."""
        self.asked.keep(rows, scores, np.zeros(len(rows)) if guessed is None else guessed)

    def next_block(self, number: int) -> None:
        """Block `number` may come, or what comes after the last one."""
        self._order.then(self.asked.before_block(number, self.begins, self.size))

    def _aligned(self) -> Table:
        return self._alignment.aligned

    def _start(self) -> tuple[str, int]:
        """With which step a block begins, and how many records it may have."""
        return self.begins, self.size
