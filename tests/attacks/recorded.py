"""Federations that keep transcripts, and what a party must be able to know of the oracle's trees."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.oracle import OracleSplit, OracleTree
from tests.simulator import Federation, finished, run
from tests.worlds import Tables, World, spec
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.files import AuditedParty, LabelTable
from treetap.attacks.view.known_trees import Ints, TreeView
from treetap.attacks.view.view import View
from treetap.trees.params import BoostingParams, TreeParams
from treetap.wire.own_rows import OwnRows, keep, kept
from treetap.wire.transcript import TranscriptReader, open_message
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.setup_pb2 import JobSpec
from treetap.wire.v2.transcript_pb2 import OwnAlignment, TranscriptRecord

Records = list[TranscriptRecord]
#: What becomes of the records of a transcript.
Change = Callable[[Records], Iterable[TranscriptRecord]]
#: node → (records, source)
Nodes = dict[int, tuple[list[int], str]]
#: short keys make fast tests; nothing here depends on their strength
KEY_BITS = 512


def federated(folder: Path, tables: Tables, job: JobSpec, record: Any = "received", **more: Any) -> dict[str, Path]:
    """Train in memory with recording on; the parties' states. `more`: of the federation."""

    async def main() -> dict[str, Path]:
        federation = Federation(folder, tables, record=record, **more)
        finished(await federation.train(job))
        return federation.states

    return run(main())


def train(folder: Path, here: World, params: TreeParams, record: Any = "received", **changes: Any) -> dict[str, Path]:
    """The same of trees, with short keys."""
    job = spec(params, len(here.blocks), key_bits=KEY_BITS, obfuscation="standard", **changes)
    return federated(folder, here.tables, job, record)


def laid_out(folder: Path, states: dict[str, Path], tables: Tables) -> None:
    """The parties' states under their names, and beside each the party's table: what an auditor may be given."""
    for name, state in states.items():
        shutil.copytree(state, folder / name)
        pq.write_table(tables[name][1]["train"], folder / f"{name}.parquet")


def transcript(states: dict[str, Path], party: str, job: str = "job") -> Path:
    """Where a party's transcript of a job lies."""
    return states[party] / "transcripts" / job


def audit_file_of(folder: Path, here: World, states: dict[str, Path], parties: Iterable[str]) -> AuditFile:
    """The file of an audit of these parties, after the labels and the parties' tables are written into the folder."""
    ids = [f"r{i:05d}" for i in range(len(here.y))]
    pq.write_table(pa.table({"id": ids, "y": here.y}), folder / "labels.parquet")
    audited = []
    for name in parties:
        columns, tables = here.tables[name]
        path = folder / f"{name}.parquet"
        pq.write_table(tables["train"], path)
        audited.append(AuditedParty(name=name, transcript=transcript(states, name), table=path, columns=list(columns)))
    label = LabelTable(path=folder / "labels.parquet", column="y")
    return AuditFile(label=label, party=audited, attacks=["uni", "cl"])


def knowable(here: World, tree: OracleTree, party: str, params: BoostingParams) -> Nodes:
    """What the protocol lets a feature party know: by its own splits, by relay of what may be split, by difference."""
    records = here.members(tree)
    nodes: Nodes = {1: (records[1].tolist(), "root")}
    for node, split in tree.nodes.items():
        if not isinstance(split, OracleSplit):
            continue
        children = (2 * node, 2 * node + 1)
        relayed = {child for child in children if may_be_split(tree, child, params)}
        for child in children:
            if split.owner == party:
                nodes[child] = (records[child].tolist(), "own")
            elif relayed:
                nodes[child] = (records[child].tolist(), "received" if child in relayed else "difference")
    return nodes


def may_be_split(tree: OracleTree, node: int, params: BoostingParams) -> bool:
    """Depth and weight allow a split; of classes with h ≤ ¼ and a least weight of 1 that takes many records."""
    return node.bit_length() - 1 < params.max_depth and tree.nodes[node].cover >= 2 * params.min_child_weight


def known(tree: TreeView) -> Nodes:
    """The same of a view."""
    return {u: (node.records.tolist(), node.source) for u, node in tree.nodes.items()}


def knowledge(view: View) -> list[Nodes]:
    """All complete trees of a view."""
    return [known(tree) for tree in view.trees]


def rewritten(source: Path, target: Path, change: Change) -> Path:
    """A transcript with a sound chain of its own, whose records are those of `source` after a change."""
    with TranscriptWriter(target) as writer:
        for r in change(list(TranscriptReader(source))):
            writer.append(r.kind, r.peer, r.step, r.job, r.attempt, r.round, r.stage, open_message(r))
    for rows in source.glob("*.own"):
        shutil.copy(rows, target)
    return target


def changed(step: str, content: Callable[[Any], object] | None = None, which: int = 0, /, **fields: Any) -> Change:
    """A change of one record of a step: of its message, then of its own fields."""

    def change(records: Records) -> Records:
        _edit([record for record in records if record.step == step][which], content, fields)
        return records

    return change


def repeated(step: str, content: Callable[[Any], object] | None = None, /, **fields: Any) -> Change:
    """The first record of a step, and behind it the same one with a change."""

    def change(records: Records) -> Iterable[TranscriptRecord]:
        place = next(number for number, record in enumerate(records) if record.step == step)
        again = TranscriptRecord.FromString(records[place].SerializeToString())
        _edit(again, content, fields)
        return [*records[: place + 1], again, *records[place + 1 :]]

    return change


def without(step: str, which: int = 0) -> Change:
    """All records but one of a step."""

    def change(records: Records) -> Records:
        left_out = [record for record in records if record.step == step][which]
        return [record for record in records if record is not left_out]

    return change


def filled(**values: Any) -> Callable[[Any], None]:
    """A change of a message: values by dotted name, with __ for a dot."""

    def change(message: Any) -> None:
        for path, value in values.items():
            *above, name = path.split("__")
            setattr(reduce(getattr, above, message), name, value)

    return change


def _edit(record: TranscriptRecord, content: Callable[[Any], object] | None, fields: dict[str, Any]) -> None:
    if content is not None:
        message = open_message(record)
        content(message)
        record.message = message.SerializeToString()
    for name, value in fields.items():
        setattr(record, name, value)


def with_rows(source: Path, target: Path, change: Callable[[Ints], None]) -> Path:
    """A transcript as `source`, with a sound chain of its own, whose own rows (N,) are changed."""
    target.mkdir()

    def aligned(entry: OwnAlignment) -> None:
        rows = kept(source, entry).rows
        change(rows)
        entry.CopyFrom(keep(target, OwnRows.of(rows, map(str, rows))))

    return rewritten(source, target, changed("own_alignment", aligned))
