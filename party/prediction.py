"""What every prediction begins and ends with: shard, table and records; one file of scores at the label holder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from party.alignment import Alignment
from party.categories import Category
from party.config import PartyConfig, TableConfig
from party.explain.names import Naming, named
from party.explain.paths import OPEN_LEAVES, foreign, packed, write_paths
from party.parcels import Rows
from party.scored import Guessed, Scored
from party.session import Tools
from party.setup import fingerprint, load_table, table_config
from party.steps import Order
from party.store import Arrays, Store, write_whole
from party.table import Floats, Table, read_ids
from party.vault import OwnSplit
from treetap.errors import DataError, Malformed
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.entries import GoesLeft
from treetap.trees.leaves import Bools, candidate_leaves, condition
from treetap.trees.metrics import REGRESSIONS
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
        self._names = Naming(tools, opening, self._order, then)
        self._alignment = Alignment(tools, members, opening.alignment, self._order, self._names.first)

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
        self._names.give(named(self.manifest, splits))

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

    A protocol keeps the scores of its blocks, which are on disk until the predictions are written: another attempt goes
    on with the records that have none.
    """

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        tools: Tools,
        opening: interactive_pb2.OpenModel,
        first: str,
    ) -> None:
        """`first`: the step that follows the alignment."""
        super().__init__(config, store, tools, opening, "label_holder", first)
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
        self._scored = Scored(tools.store, opening.prediction)
        self.before = 0  #: records that earlier attempts have scored
        self.heard: frozenset[str] = frozenset()  #: parties that tell which way records go at their splits
        self._asked_for: list[str] = []
        self._wanted: Rows | None = None

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load shard, table and the file of ids; say how many trees there are to walk."""
        self._order.check(("open_model", request.tree, request.level))
        table = await self._load()
        self._asked_for = self._ids_asked_for(table)
        self._scored.open(await self._tools.offload(lambda: fingerprint(table)), table.path)
        self._alignment.begin(table, keep=False)
        return control_pb2.StepResult(opened_model=interactive_pb2.OpenedModel(trees=len(self.ensemble.used_trees)))

    async def write_predictions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """One Parquet file: id, raw score(s), and probability, class or value."""
        self._order.check(("write_predictions", request.tree, request.level))
        path = self._store.predictions / f"{self._tools.job}.parquet"
        ids, ensemble, classes = self._asked_for, self.ensemble, self.manifest["classes"]
        known = self._scored.known(ids)
        found = known, self._scored.rows("scores", known), self._scored.rows("guessed", known)
        degraded = self._opening.away_policy == "degrade"
        written = interactive_pb2.WrittenPredictions(path=str(path), records=len(ids))
        await self._explain(path, known, written)
        await self._tools.offload(lambda: _write(path, ids, found, ensemble, classes, degraded=degraded))
        self._scored.discard()
        self._order.then()
        return control_pb2.StepResult(written_predictions=written)

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
        ids, kept = self._alignment.aligned.ids, dict(further or {})
        if self._opening.explain:
            kept[OPEN_LEAVES] = packed(self._candidates(rows) if leaves is None else leaves)
        share = np.zeros(len(rows)) if guessed is None else guessed
        self._scored.add([ids[row] for row in rows], scores, share, kept)

    def _candidates(self, rows: Rows) -> Iterator[Bools]:
        """Of each used tree the leaves that the own columns leave open to the records at these places (n, leaves)."""
        goes_left, party = self.directions(rows), self._tools.party
        for tree in self.ensemble.used_trees:
            yield candidate_leaves(tree, len(rows), lambda s: goes_left(s.handle) if s.owner == party else None)

    def directions(self, rows: Rows) -> GoesLeft:
        """Which of some records go left at an own split."""
        features = self._alignment.aligned.features[rows]

        def goes_left(handle: int) -> Bools:
            split = self.own[handle]
            return split.goes_left(features[:, split.feature])

        return goes_left

    async def _explain(self, path: Path, known: list[str], written: interactive_pb2.WrittenPredictions) -> None:
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
        leaves = self._scored.rows(OPEN_LEAVES, shown)
        await self._tools.offload(lambda: write_paths(target, shown, leaves, self.ensemble.used_trees, meaning))
        written.explanations = str(target)
        written.withheld.extend(self._names.withheld)

    @property
    def wanted(self) -> Rows:
        """Places in the aligned order of the records to predict that have no score yet, ascending."""
        if self._wanted is None:
            self._wanted, self.before = self._places(self._alignment.aligned)
            self._tools.meter.done, self._tools.meter.total = self.before, self.before + len(self._wanted)
        return self._wanted

    def block(self, number: int, size: int) -> tuple[Rows, int]:
        """The places of one block of at most `size` records, and how many blocks there are."""
        return self.wanted[number * size : (number + 1) * size], -(-len(self.wanted) // size)

    def _ids_asked_for(self, table: Table) -> list[str]:
        """The ids to predict, sorted: all of the own table, or those of the file of ids."""
        if not self._opening.records_file:
            return table.ids
        base = self._config.data
        if base is None:
            raise DataError(f"{self._config.name}: a file of records needs `data = FOLDER` in the configuration")
        path = (base / self._opening.records_file).resolve()
        if not path.is_relative_to(base.resolve()):
            raise DataError(f"{self._config.name}: {self._opening.records_file} is not below the data folder {base}")
        own = set(table.ids)
        ids = read_ids(path)
        unknown = [number for number, value in enumerate(ids, start=1) if value not in own]
        if unknown:
            raise DataError(f"{path}: id number {unknown[0]} is not in table {self._opening.table!r} ({table.path})")
        if not ids:
            raise DataError(f"{path}: names no record")
        return sorted(ids)

    def _places(self, table: Table) -> tuple[Rows, int]:
        """Where the records to predict stand in the aligned order, and how many more have a score already.

        Those that some party lacks stand nowhere. One block at least is left to score, so that no protocol has to do
        with none.
        """
        place = {value: row for row, value in enumerate(table.ids)}
        if not any(value in place for value in self._asked_for):
            raise DataError(f"{self._config.name}: none of the records to predict is common to all parties")
        while True:
            scored = self._scored.ids()
            found = [place[value] for value in self._asked_for if value in place and value not in scored]
            if found:
                return np.array(sorted(found), dtype=np.int64), len(scored)
            self._scored.drop_last()


def _write(
    path: Path,
    ids: list[str],
    found: tuple[list[str], Floats, Guessed],
    ensemble: Ensemble,
    classes: list[str],
    *,
    degraded: bool,
) -> None:
    """Write the predictions, a row per id; empty cells where a record is not common to all parties.

    `degraded`: also how much of the way of each record was guessed.
    """
    known, scores, guessed = found
    outcome = ensemble.outcome(scores)
    columns: dict[str, Any] = {"id": known}
    if ensemble.objective in REGRESSIONS:
        columns |= {"prediction": outcome, "score": scores[:, 0]}
    elif ensemble.objective == "binary:logistic":
        columns |= {
            "prediction": [classes[int(p > 0.5)] for p in outcome],
            "probability": outcome,
            "score": scores[:, 0],
        }
    else:
        columns["prediction"] = [classes[k] for k in outcome.argmax(axis=1)]
        columns |= {f"probability_{name}": outcome[:, k] for k, name in enumerate(classes)}
        columns |= {f"score_{name}": scores[:, k] for k, name in enumerate(classes)}
    if degraded:
        columns["guessed"] = guessed
    table = pa.table(columns)
    if len(known) < len(ids):
        table = pa.table({"id": ids}).join(table, "id").sort_by("id")
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd")
    write_whole(path, content.getvalue())
