"""The settings of a table that a new party's file proposes: read from the table itself, to be edited by a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput, DataError, did_you_mean, quoted
from treetap.strict import faults_of
from treetap.tables.asked_columns import OF_PARTY
from treetap.tables.auto_encoding import Cells, Rules, Settled, declared_in, settle
from treetap.tables.cells import is_tensor, plain_column
from treetap.tables.config import AUTO
from treetap.tables.opening import columns_of, read_columns, source_of
from treetap.tables.source import Source
from treetap.tables.source_keys import SourceKeys

#: Names that columns of ids and of labels often have, in lower-case letters.
USUAL_IDS, USUAL_LABELS = ("id",), ("label", "target", "y", "class", "outcome")
#: Different values of a last column that may be a label without a usual name.
CLASSES = 2
#: What helps where a table is read only with settings, which do not exist yet.
_NO_SETTINGS = (
    "no file has settings yet: save the table so that it needs none, in UTF-8 (or with treetap new party name its "
    "--encoding), each quote closed, with decimal points"
)


@dataclass(frozen=True)
class ProposedTable:
    """The lines of a party's file on a table.

    Attributes:
        path: absolute.
        label: None: the party has none, as far as can be seen.
        columns: features, in the order of the table.
        encodings: lines about text and dates, as `encode` and `date_format`, and the `encoding` that was named.
        left_out: column → the reason why its cells need a person's word.
    """

    path: Path
    id: str
    label: str | None
    columns: list[str]
    encodings: list[str]
    left_out: dict[str, str]


class SeenTable:
    """A table that has been read, to propose settings for it.

    A column that no person has named is the id if it identifies each record and is called so, or is the first one, or
    the only one that does; it may be the label if it is called so, or is the last one and has two different values.

    Attributes:
        names: its columns, in their order.
        id: the column of ids.
        label: the column that may be the label, if there is one.
    """

    def __init__(self, path: Path, id: str | None = None, encoding: str | None = None) -> None:
        """Read the table at a path. `id`, `encoding`: the column of ids, and how text is written, if a person says so.

        Raises:
            BadInput: it cannot be read, lacks that column, or none or several columns can be the id.
        """
        self.path, self._encoding = path.absolute(), encoding
        try:
            self._source = source_of(SourceKeys(path=self.path, encoding=encoding))
        except ValidationError as fault:
            raise BadInput(f"--{faults_of(fault, SourceKeys)[0]}") from None
        try:
            self.names = columns_of(self._source)
            self.check("--id", id)
            self._table = read_columns(self._source, self.names, ())
        except DataError as fault:
            if OF_PARTY.place not in str(fault):
                raise
            raise BadInput(f"{fault}; {_NO_SETTINGS}") from None
        self.id = id or _id(path, self._table)
        self.label = _label(self._table, [name for name in self.names if name != self.id])

    def check(self, key: str, name: str | None) -> None:
        """Raise `BadInput` if a column that an option names is not there."""
        if name is not None and name not in self.names:
            raise BadInput(f"{key} {name}: {self.path} has no such column{did_you_mean(name, self.names)}")

    def proposed(self, label: str | None) -> ProposedTable:
        """Settings with this label, or None."""
        names = [name for name in self.names if name not in (self.id, label)]
        columns, settled, left_out = _encoded(self._source, self._table, names)
        settled = settled.of_feature_parties() if label is None else settled
        own = [] if self._encoding is None else [f"encoding = {quoted(self._encoding)}"]
        return ProposedTable(self.path, self.id, label, columns, [*own, *settled.lines()], left_out)


def _id(path: Path, table: pa.Table) -> str:
    names: list[str] = table.column_names
    unique = [name for name in names if _identifies(table.column(name))]
    called = [name for name in unique if name.lower() in USUAL_IDS or name.lower().endswith(("_id", "-id"))]
    named = called or [name for name in unique if name == names[0]] or unique
    if len(named) == 1:
        return named[0]
    if not unique:
        raise BadInput(f"{path}: no column has another value in each record: name the column of ids by --id")
    raise BadInput(f"{path}: columns {', '.join(map(repr, named))} could each be the ids: name one by --id")


def _identifies(column: pa.ChunkedArray) -> bool:
    """True for text or whole numbers of which each record has another one."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    return not column.null_count and pc.count_distinct(column).as_py() == len(column)


def _label(table: pa.Table, names: Sequence[str]) -> str | None:
    called = [name for name in names if name.lower() in USUAL_LABELS]
    if called:
        return called[0]
    if not names or is_tensor(table.column(names[-1]).type):
        return None
    last = table.column(names[-1])
    kind = last.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    return names[-1] if pc.count_distinct(last).as_py() == CLASSES else None


def _encoded(source: Source, table: pa.Table, names: Sequence[str]) -> tuple[list[str], Settled, dict[str, str]]:
    """The columns that can be features, the encodings of their text and dates, and those that a person must see.

    Encodings are those that an experiment takes for the label holder of the usual job, whose trees split categories by
    sets.
    """
    usual = JobTable().params()
    writing = OF_PARTY._replace(shows=True)  # to the table's owner, in the party's own file
    rules = Rules(AUTO, None, usual.missing, usual.splits_categories, declared_in(source), writing)
    cells, left_out = dict[str, Cells](), dict[str, str]()
    for name in names:
        try:
            if is_tensor(table.column(name).type):
                continue
            own = Cells(source, plain_column(source, f"column {name!r}", table.column(name)), table.num_rows)
            settle(source, {name: own}, rules)
            cells[name] = own
        except DataError as doubt:
            left_out[name] = str(doubt)
    return [name for name in names if name not in left_out], settle(source, cells, rules), left_out
