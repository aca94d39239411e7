"""The encodings of the caller's columns, taken before any table is written: a message names parameters, not files."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from treetap.lab.api.errors import checked
from treetap.lab.api.party_tables import PartyTables
from treetap.tables.asked_columns import OF_ESTIMATOR
from treetap.tables.auto_encoding import Cells, Rules, Settled, settle
from treetap.tables.categories import are_plain, different_texts, merges
from treetap.tables.cells import plain_column
from treetap.tables.config import OTHERS, auto_for_others
from treetap.tables.numbers import is_text

log = logging.getLogger(__name__)
#: Entry of the metadata of a party's table: keys of its description.
_KEYS = b"keys"


def settled(
    data: PartyTables,
    encode: str | Mapping[str, str] | None,
    date_format: str | Mapping[str, str] | None,
    *,
    missing: float,
    categorical: bool,
    has_ids: bool,
) -> PartyTables:
    """The tables with the encodings of their columns: those of `encode`, and for others what `AUTO` takes.

    `encode` None: text is refused. `categorical`: trees may split columns by sets of their categories. `has_ids`: a
    column has the ids already.

    Raises:
        InvalidInput: columns need a word: names all of them, and what to write.
    """
    writing = OF_ESTIMATOR._replace(id=None) if has_ids else OF_ESTIMATOR
    given = encode if encode is None else auto_for_others(encode)
    names = [name for own in data.columns.values() for name in own]
    # one message names the columns of all parties, unless two of them have one name
    groups = [list(data.tables)] if len(set(names)) == len(names) else [[party] for party in data.tables]
    tables = dict(data.tables)
    for parties in groups:
        place, cells, declared = Path(f"the columns of {' and '.join(parties)}"), dict[str, Cells](), set[str]()
        for name, column in ((name, tables[party].column(name)) for party in parties for name in data.columns[party]):
            declared |= {name} if pa.types.is_dictionary(column.type) else set()
            with checked():
                cells[name] = Cells(place, plain_column(place, f"column {name!r}", column), len(column))
        with checked():
            own = settle(place, cells, Rules(given, date_format, missing, categorical, frozenset(declared), writing))
        for line in own.lines(OF_ESTIMATOR):
            log.info('%s: encode = "auto" stands for %s', place, line)
        named = own.encode if isinstance(own.encode, Mapping) else {}
        texts = {name: it.column for name, it in cells.items() if is_text(it.column.type) and name not in named}
        numbers = {name: column for name, column in texts.items() if are_plain(place, different_texts(column))}
        for sentence in merges(place, numbers, {}):
            warnings.warn(f"{place}: {sentence}", UserWarning, stacklevel=2)
        for party in parties:
            keys = _described(own, data.columns[party])
            tables[party] = tables[party].replace_schema_metadata({_KEYS: json.dumps(keys)})
    return replace(data, tables=tables)


def _described(own: Settled, columns: Sequence[str]) -> dict[str, Any]:
    """The keys of a party's table that say the encodings of its columns."""
    encode = own.encode
    if isinstance(encode, Mapping):
        encode = {name: encoding for name, encoding in encode.items() if name in (OTHERS, *columns)}
    dated = {name: form for name, form in own.date_formats.items() if name in columns}
    return {key: value for key, value in (("encode", encode), ("date_format", dated)) if value}


def encoded_as(records: pa.Table, trained: pa.Table) -> pa.Table:
    """A party's further records whose columns are encoded as those of its table of the training."""
    return records.replace_schema_metadata(trained.schema.metadata)


def keys_of(records: pa.Table, date_format: str | Mapping[str, str] | None = None) -> dict[str, Any]:
    """The keys of a table's description that say how its columns are encoded.

    A table to predict is encoded as the training's was; `date_format`: of its dates in text.
    """
    if held := (records.schema.metadata or {}).get(_KEYS):
        return dict(json.loads(held))
    own = date_format
    if isinstance(own, Mapping):
        own = {name: form for name, form in own.items() if name in records.column_names}
    return {"date_format": own} if own else {}
