"""Multi-interactive inference (the SecureBoost baseline): one round per level over all trees of a block of records.

label holder (Asker)                              feature party (Router)
open_model                                        open_model
the steps of the alignment                        the same
ask_directions(b, l)                              answer_directions(b, l)
take_directions(b, l), then l+1 or block b+1
write_predictions
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from party.alignment import Alignment
from party.categories import Category
from party.config import PartyConfig, TableConfig
from party.parcels import Rows, batches, chunks_of, rows_of
from party.session import Step, Tools, done, have
from party.setup import load_table, table_config
from party.steps import Order
from party.store import Store, write_whole
from party.table import Floats, Table, read_ids
from party.vault import OwnSplit
from treetap.errors import DataError, Malformed, OutOfOrder
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.metrics import REGRESSIONS
from treetap.wire import records
from treetap.wire.v1 import control_pb2, interactive_pb2, types_pb2

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
#: Most answers (bits) in one parcel.
ANSWERS_PER_PARCEL = 4 * 1024 * 1024


class _Opened:
    """What both roles do: load the shard and the table it needs, align."""

    def __init__(
        self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel, role: str
    ) -> None:
        self._config, self._tools, self._opening = config, tools, opening
        self._store = store
        self.manifest, self._trees = store.model(opening.model, opening.submission)
        if self.manifest["role"] != role:
            raise DataError(f"{config.name} was {self.manifest['role']} of model {opening.model}, not {role}")
        self._order = Order(("open_model", 0, 0))
        members = [opening.label_holder, *opening.feature_parties]
        then = ("ask_directions", 0, 0) if role == "label_holder" else None
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


class Router(_Opened):
    """A feature party: says which way records go at its own splits."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening, "feature_party")
        if self.manifest["label_holder"] != opening.label_holder:
            raise DataError(f"model {opening.model} belongs to label holder {self.manifest['label_holder']}")
        splits = [OwnSplit.from_dict(split) for tree in self._trees for split in tree["splits"]]
        self._splits = {split.handle: split for split in splits}
        self._answered = (-1, 0)  # the last block and level
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            "answer_directions": self.answer_directions,
        }

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load shard and table."""
        self._order.check(("open_model", request.tree, request.level))
        self._alignment.begin(await self._load(), keep=False)
        return control_pb2.StepResult(opened_model=interactive_pb2.OpenedModel())

    async def answer_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """One bit for each record of each query, in the order of the queries."""
        block, level = request.tree, request.level
        self._alignment.check(("answer_directions", block, level))
        table = self._alignment.aligned
        if (block, level) <= self._answered:
            raise OutOfOrder(f"answer_directions of block {block}, level {level} came after that of {self._answered}")
        asker = self._opening.label_holder
        queries = await _take_queries(self._tools.mailbox.series(asker, "route_queries", block, level), len(table.ids))
        answers = [self._directions(table.features, handle, rows) for handle, rows in queries]
        bits = np.concatenate([np.zeros(0, dtype=bool), *answers])
        bodies = [
            interactive_pb2.RouteAnswers(count=len(part), left=records.pack_bits(part))
            for part in np.split(bits, range(ANSWERS_PER_PARCEL, len(bits), ANSWERS_PER_PARCEL))
        ]
        await self._tools.outbox.send(asker, "route_answers", bodies, tree=block, level=level)
        self._answered = (block, level)
        return done()

    async def close(self) -> None:
        """Nothing is held elsewhere."""

    def _directions(self, features: Floats, handle: int, rows: Rows) -> Bools:
        if handle not in self._splits:
            raise Malformed(f"{self._tools.party} has no split {handle} in model {self._opening.model}")
        split = self._splits[handle]
        return split.goes_left(features[rows, split.feature])


class Asker(_Opened):
    """The label holder: leads records from the roots to the leaves and writes the predictions."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening, "label_holder")
        manifest = self.manifest
        parties = list(opening.feature_parties)
        if sorted(manifest["feature_parties"]) != sorted(parties):
            raise DataError(f"model {opening.model} was trained with {', '.join(manifest['feature_parties'])}")
        self._ensemble = Ensemble(
            objective=manifest["objective"],
            classes=len(manifest["classes"]),
            base_margin=tuple(manifest["base_margin"]),
            trees=tuple(Tree.from_dict(tree["tree"]) for tree in self._trees),
            trees_per_round=manifest["trees_per_round"],
            best_round=manifest["best_round"],
            averaged=manifest.get("averaged", False),  # models of releases before forests say nothing
        )
        self._nodes = [{split.node: split for split in tree.splits} for tree in self._ensemble.used_trees]
        own = [OwnSplit.from_dict(split) for tree in self._trees for split in tree["own"]]
        self._own = {split.handle: split for split in own}
        self._parties = parties
        self._asked_for: list[str] = []
        self._wanted: Rows | None = None  # places in the aligned order of the records to predict
        self._scores: list[Floats] = []
        self._standing: _Standing | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            "ask_directions": self.ask_directions,
            "take_directions": self.take_directions,
            "write_predictions": self.write_predictions,
        }

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load shard, table and the file of ids; say how many blocks there will be."""
        self._order.check(("open_model", request.tree, request.level))
        table = await self._load()
        self._asked_for = self._ids_asked_for(table)
        self._alignment.begin(table, keep=False)
        return control_pb2.StepResult(opened_model=interactive_pb2.OpenedModel())

    async def ask_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Follow the own splits, then ask each owner about the records that stand at its splits."""
        block, level = request.tree, request.level
        self._order.check(("ask_directions", block, level))
        table = self._alignment.aligned
        if self._wanted is None:
            self._wanted = self._places(table)
            self._tools.meter.total = len(self._wanted)
        wanted, size = self._wanted, max(1, self._opening.block)
        blocks = max(1, -(-len(wanted) // size))
        if level == 0:
            self._standing = _Standing(wanted[block * size : (block + 1) * size], len(self._nodes))
        standing = have(self._standing)
        standing.queries = self._follow_own(standing, table.features)
        asked = [party for party in self._parties if party in standing.queries]
        for party in asked:
            items = (
                interactive_pb2.RouteQuery(handle=self._nodes[tree][node].handle, records=chunk)
                for tree, node, places in standing.queries[party]
                for chunk in chunks_of(standing.rows[places], len(table.ids))
            )
            bodies = (interactive_pb2.RouteQueries(queries=batch) for batch in batches(items))
            await self._tools.outbox.send(party, "route_queries", bodies, tree=block, level=level)
        if asked:
            self._order.then(("take_directions", block, level))
        else:
            self._scores.append(self._score(standing))
            self._tools.meter.done += len(standing.rows)
            last = block + 1 == blocks
            self._order.then(("write_predictions", 0, 0) if last else ("ask_directions", block + 1, 0))
        return control_pb2.StepResult(asked_directions=interactive_pb2.AskedDirections(asked=asked, blocks=blocks))

    async def take_directions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Move the records down as the owners said."""
        block, level = request.tree, request.level
        self._order.check(("take_directions", block, level))
        standing = have(self._standing)
        for party, queries in standing.queries.items():
            parts: list[Bools] = []
            async for parcel in self._tools.mailbox.series(party, "route_answers", block, level):
                parts.append(records.unpack_bits(parcel.route_answers.left, parcel.route_answers.count))
            bits = np.concatenate([np.zeros(0, dtype=bool), *parts])
            if len(bits) != sum(len(places) for _, _, places in queries):
                raise Malformed(f"{party} answered {len(bits)} records, it was asked about others")
            start = 0
            for tree, node, places in queries:
                standing.move(tree, node, places, bits[start : start + len(places)])
                start += len(places)
        self._tools.mailbox.forget(block)
        self._order.then(("ask_directions", block, level + 1))
        return done()

    async def write_predictions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """One Parquet file: id, raw score(s), and probability, class or value."""
        self._order.check(("write_predictions", request.tree, request.level))
        path = self._store.predictions / f"{self._tools.job}.parquet"
        table, wanted = self._alignment.aligned, have(self._wanted)
        scored = {table.ids[row]: scores for row, scores in zip(wanted, np.concatenate(self._scores), strict=True)}
        ids, ensemble, classes = self._asked_for, self._ensemble, self.manifest["classes"]
        await self._tools.offload(lambda: _write(path, ids, scored, ensemble, classes))
        self._order.then()
        written = interactive_pb2.WrittenPredictions(path=str(path), records=len(ids))
        return control_pb2.StepResult(written_predictions=written)

    async def close(self) -> None:
        """Nothing is held elsewhere."""

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

    def _places(self, table: Table) -> Rows:
        """Where the records to predict stand in the aligned order; those that some party lacks stand nowhere."""
        place = {value: row for row, value in enumerate(table.ids)}
        found = [place[value] for value in self._asked_for if value in place]
        if not found:
            raise DataError(f"{self._config.name}: none of the records to predict is common to all parties")
        return np.array(sorted(found), dtype=np.int64)

    def _follow_own(self, standing: _Standing, features: Floats) -> dict[str, list[tuple[int, int, Rows]]]:
        """Move records through own splits; returns per owner (tree, node, places) of those at others' splits."""
        waiting: dict[str, list[tuple[int, int, Rows]]] = {}
        for tree, nodes in enumerate(self._nodes):
            for node, places in standing.groups(tree):
                stack = [(node, places)]
                while stack:
                    at, group = stack.pop()
                    split: Split | None = nodes.get(at)
                    if split is None or not len(group):
                        continue
                    if split.owner != self._config.name:
                        waiting.setdefault(split.owner, []).append((tree, at, group))
                        continue
                    own = self._own[split.handle]
                    left = own.goes_left(features[standing.rows[group], own.feature])
                    standing.move(tree, at, group, left)
                    stack += [(2 * at, group[left]), (2 * at + 1, group[~left])]
        return waiting

    def _score(self, standing: _Standing) -> Floats:
        reached = (standing.at[tree].astype(np.int64) for tree in range(len(self._nodes)))
        return self._ensemble.scores(reached, len(standing.rows))


class _Standing:
    """Where each record of a block stands in each tree: `at` (trees, n) heap numbers, `rows` (n,) positions."""

    def __init__(self, rows: Rows, trees: int) -> None:
        self.rows = rows
        self.at = np.ones((trees, len(rows)), dtype=np.int32)
        self.queries: dict[str, list[tuple[int, int, Rows]]] = {}

    def groups(self, tree: int) -> Iterator[tuple[int, Rows]]:
        """The nodes of a tree where records stand, with their places in the block."""
        for node in np.unique(self.at[tree]):
            yield int(node), np.flatnonzero(self.at[tree] == node)

    def move(self, tree: int, node: int, places: Rows, left: Bools) -> None:
        """Send records down."""
        self.at[tree, places] = np.where(left, 2 * node, 2 * node + 1)


async def _take_queries(parcels: Any, total: int) -> list[tuple[int, Rows]]:
    """(handle, rows) in the order of asking; the chunks of one query follow each other."""
    found: list[tuple[int, list[types_pb2.RecordChunk]]] = []
    async for parcel in parcels:
        for query in parcel.route_queries.queries:
            if query.records.start == 0:
                found.append((query.handle, []))
            if not found or found[-1][0] != query.handle:
                raise Malformed("a query whose records do not begin at 0")
            found[-1][1].append(query.records)
    return [(handle, rows_of(chunks, total)) for handle, chunks in found]


def _write(path: Path, ids: list[str], scored: Mapping[str, Floats], ensemble: Ensemble, classes: list[str]) -> None:
    """Write the predictions, a row per id; empty cells where a record is not common to all parties."""
    known = [value for value in ids if value in scored]
    scores = np.array([scored[value] for value in known])
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
    table = pa.table(columns)
    if len(known) < len(ids):
        table = pa.table({"id": ids}).join(table, "id").sort_by("id")
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd")
    write_whole(path, content.getvalue())
