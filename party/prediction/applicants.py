"""Records with fields of their own that clients ask about: those that the label holder's table lacks.

Their fields are the label holder's columns of the model, encoded by the model's own description of these. What a table
may have is refused here: a category that the training had not, a text for a number, a column that is not named.

A new record has a place behind the common ones for as long as it is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import DataError, did_you_mean, visible
from treetap.party.prediction.opened_model import BesideValues, OpenedModel
from treetap.party.runtime.context import Rows
from treetap.tables.categories import Category, encoded
from treetap.tables.label_columns import offsets_of
from treetap.tables.labels import class_name
from treetap.tables.reading import Floats
from treetap.wire.v2 import serving_pb2

#: Places of refused records, from here downwards.
_REFUSED = -3


class Applicants:
    """The new records that a served model is asked about.

    Attributes:
        block: those of the block at hand, by number: the id as the table would have it, and the features (d,).
        lacking: of those that were looked up the feature parties that lack them, by number.
        answers: of those of them that get no score what is said in its place.
    """

    def __init__(self, opened: OpenedModel, named: Callable[[str], str], known: Callable[[str], bool]) -> None:
        """`named`: the id that the table has, of one as a client wrote it. `known`: true if the table has it."""
        self._opened, self._named, self._known = opened, named, known
        self._waiting: dict[int, tuple[str, Floats]] = {}
        self._next = 0
        self.block: dict[int, tuple[str, Floats]] = {}
        self.lacking: dict[int, dict[str, None]] = {}
        self.answers: dict[int, serving_pb2.RecordPrediction] = {}

    @property
    def waiting(self) -> Collection[int]:
        """All that are asked about, by number."""
        return self._waiting.keys()

    def begin(self) -> None:
        """Have the values of new records too, once those of the common ones are there."""
        self._next = len(self._opened.alignment.records)
        self._opened.values, self._opened.new = BesideValues(self._opened.values, self._next, self.block), self.block

    def take(self, records: Rows) -> None:
        """Begin a block of these records."""
        self.block.clear()
        self.block.update((record, self._waiting[record]) for record in records.tolist() if record in self._waiting)

    @contextmanager
    def entered(
        self, records: Sequence[serving_pb2.NewRecord], values: Sequence[Floats | str]
    ) -> Iterator[tuple[list[int], dict[int, serving_pb2.RecordPrediction]]]:
        """The place of each record while the block runs; of one that is refused a negative one, with its answer.

        `values`: see `encode`.
        """
        asked = {name for name, _ in self._waiting.values()}
        places, refused = list[int](), dict[int, serving_pb2.RecordPrediction]()
        for number, (record, made) in enumerate(zip(records, values, strict=True)):
            name = self._named(record.id)
            fault = self._fault(name, asked) or (made if isinstance(made, str) else "")
            if isinstance(made, str) or fault:
                places.append(_REFUSED - number)
                refused[places[-1]] = serving_pb2.RecordPrediction(status=serving_pb2.INVALID, fault=fault)
                continue
            asked.add(name)
            places.append(self._next)
            self._waiting[self._next] = name, made
            self._next += 1
        try:
            yield places, refused
        finally:
            for place in places:
                for held in (self._waiting, self.lacking, self.answers):
                    held.pop(place, None)

    def _fault(self, name: str, asked: set[str]) -> str:
        if self._known(name):
            return "id: the table has it: ask about it by ids, and write what has changed into the table"
        return ("id: is asked about already: ask again after that" if name in asked else "") if name else "id: is empty"


def encode(
    manifest: Mapping[str, Any], record: serving_pb2.NewRecord, missing: Sequence[str | float] = ()
) -> Floats | str:
    """The features (d,) of a record by the model's description of its columns, or what is wrong with its fields.

    `missing`: the texts and numbers that mean a missing value, as the served table's settings list them. Behind the
    features is the record's offset, if the model's scores begin with one.
    """
    try:
        return _encoded(manifest, {field.column: field for field in record.fields}, len(record.fields), missing)
    except DataError as fault:
        return str(fault).replace("row 1, ", "", 1)


def _encoded(
    manifest: Mapping[str, Any],
    given: Mapping[str, serving_pb2.OwnField],
    fields: int,
    missing: Sequence[str | float],
) -> Floats:
    here, begins = Path("fields"), manifest.get("offsets", {})
    columns = [*manifest["source_columns"], *begins.values()]
    if strange := [name for name in given if name not in columns]:
        known = did_you_mean(strange[0], columns)
        raise DataError(f"{here}: column {visible(strange[0])!r} is none of the model's{known}")
    if fields > len(given):
        raise DataError(f"{here}: a column is there twice")
    cells, listed = dict[str, Any](), set(map(class_name, missing))
    for name in columns:
        if name not in given:
            raise DataError(f"{here}: column {name!r} is missing; write null where a record has no value")
        kind = given[name].WhichOneof("value")
        cell = getattr(given[name], kind) if kind else None
        cells[name] = None if class_name(cell).strip() in listed and name not in begins.values() else cell
    own = features_of(here, manifest, cells)
    if not begins:
        return own
    parts = {name: pa.chunked_array([pa.array([cells[name]])]) for name in begins.values()}
    return np.concatenate([own, offsets_of(here, begins, parts).values])


def features_of(here: Path, manifest: Mapping[str, Any], cells: Mapping[str, Any]) -> Floats:
    """The features (d,) of one record by the model's description of its columns; `cells`: its value of each, or None.

    Raises:
        DataError: a value is none of its column; `here` says where it stands.
    """
    categories = manifest["categories"]
    for name, cell in cells.items():
        if isinstance(cell, str) and name not in categories:
            raise DataError(f"{here}: column {name!r} holds a text, and a number is wanted")
    trained = {name: Category.from_dict(category) for name, category in categories.items()}
    arrays = {name: pa.chunked_array([pa.array([cell])]) for name, cell in cells.items()}
    made = encoded(here, arrays, 1, None, trained, manifest["missing"])
    if unknown := [name for name, seen in made.seen.items() if seen.unknown]:
        raise DataError(f"{here}: column {unknown[0]!r} has a category that the training had not")
    return made.values[0, [made.names.index(name) for name in manifest["columns"]]]
