"""A party's own columns in the common order of the records, as numbers; and, for the scorer alone, their labels.

Files are read as parties read them, except that every column of text becomes one column of 0 and 1 per value,
regardless of its owner's encoding. Messages name file, column and row, never the content of a cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.attacks.view.view import View
from treetap.errors import DataError, did_you_mean
from treetap.models.keyed_ids import hashes
from treetap.tables.auto_encoding import date_columns
from treetap.tables.categories import Category, most_categories, one_hot_names
from treetap.tables.config import DAYS, OTHERS, TableConfig
from treetap.tables.features import Held
from treetap.tables.labels import Labels, read_classes
from treetap.tables.opening import columns_of
from treetap.tables.reading import Table, read_table
from treetap.trees.metrics import auc
from treetap.wire.own_rows import FORGOTTEN

#: Most different values of a text column.
_MOST_VALUES = 256


def load_own_table(path: Path, view: View, id_column: str = "id", columns: Sequence[str] | None = None) -> Table:
    """Load the party's table (CSV or Parquet) for the attacker, in the common order of the records.

    `columns`: the columns to use, by default all but the id column. A column of text becomes one column of 0 and 1 per
    value, `column=value`, with 0 in all of them where the cell is missing.

    Raises:
        DataError: the file cannot be read, lacks a column, or is not the one that the party trained on: by its number
            of rows, its ids where the transcript holds their digest, and the records that each own split sent left.
    """
    if view.rows is None:
        raise DataError(f"{view.path}: does not say which rows of {view.party}'s table the records are")
    have = columns_of(path)
    for name in sorted({node.split.feature_name for tree in view.trees for node in tree.nodes.values() if node.split}):
        if not any(name == column or name.startswith(f"{column}=") for column in have):  # text columns: column=value
            raise DataError(
                f"{path}: lacks column {name!r}, at which {view.party} split: this is another party's table"
            )
    table = read_numbers(path, id_column, columns, view.missing)
    own = in_common_order(path, table, view, view.rows)
    if view.own_digest is not None and table.ids.digest != view.own_digest:
        raise DataError(f"{path}: column {id_column!r} holds other ids than {view.party}'s table in job {view.job!r}")
    # Check that every own split at a numeric column sends the same records left as in training.
    texts = {name for name, category in own.categories.items() if not category.of_dates}
    places = {name: j for j, name in enumerate(own.columns) if name not in texts}
    for tree in (*view.trees, *view.unfinished):
        for u, node in tree.nodes.items():
            split = node.split
            # splits of text cannot be followed: the auditor's table numbers texts in its own way
            if split is None or split.categories or split.feature_name not in places:
                continue
            values = own.features[node.records, places[split.feature_name]]
            left = node.records[np.where(np.isnan(values), split.missing_left, values < split.threshold)]
            if not np.array_equal(left, tree.nodes[2 * u].records):
                raise DataError(
                    f"{own.path}: column {split.feature_name!r} is not what {view.party} trained on: the split of node "
                    f"{u} of tree {tree.index} sends other records left"
                )
    return one_hot(own)


def in_common_order(path: Path, table: Table, view: View, rows: Ints) -> Table:
    """The records that took part in the job, by ids where these are known, else by these rows (N,).

    Raises:
        DataError: the table lacks some, or some were forgotten.
    """
    if gone := int((rows == FORGOTTEN).sum()):
        raise DataError(
            f"{view.path}: {gone} of the {len(rows)} common records were forgotten, and an audit of this protocol "
            "needs the rows of all: audit a job before you forget its records"
        )
    if (places := _by_ids(path, table, view)) is not None:  # rows move when others are deleted
        return table.take(places)
    if len(table.ids) <= int(rows.max(initial=-1)):
        raise DataError(
            f"{path}: has {len(table.ids)} rows, but row {int(rows.max()) + 1} of {view.party}'s table took part in "
            f"job {view.job!r}: this is another table, or another version of it"
        )
    return table.take(np.argsort(table.rows)[rows])


def _by_ids(path: Path, table: Table, view: View) -> Ints | None:
    """The places of the records in a table, by their ids; None where these are not known, or of other columns."""
    if view.ids is None:
        return None
    own, known = hashes(table.ids, view.ids.key), view.ids.hashes
    order = np.argsort(own)
    places = order.take(np.searchsorted(own[order], known), mode="clip")
    if (absent := int((own[places] != known).sum())) == len(known):
        return None
    if absent:
        raise DataError(f"{path}: lacks {absent} of the ids that took part in job {view.job!r}: it is another version")
    return np.asarray(places)


def model_table(manifest: Mapping[str, Any], path: Path, id_column: str) -> Table:
    """A party's table with the columns of its published model, encoded as those of the training.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    columns = manifest.get("source_columns", manifest["columns"])
    encoded = {name: Category.from_dict(category) for name, category in manifest.get("categories", {}).items()}
    config = TableConfig(path=path, id=id_column, columns=columns)
    return read_table(config, with_label=False, missing=manifest["missing"], categories=encoded)


def load_labels(path: Path, label: str, own: Table, id_column: str = "id") -> Labels:
    """Load the class labels of the records of `own`, by id, from a table with at least these ids; for scoring alone.

    Raises:
        DataError: the file cannot be read; lacks an id; or the label column is missing or holds no classes.
    """
    table, places = _labelled(path, label, own, id_column)
    absent = int((places < 0).sum())
    if absent:
        raise DataError(
            f"{path}: column {id_column!r} lacks {absent} of the {len(places)} ids of {own.path}: labels are needed "
            "of the records of the training, under the same ids"
        )
    return _classes(table.take(places), label)


def load_known_labels(path: Path, label: str, own: Table, id_column: str = "id") -> tuple[Ints, Labels]:
    """Load the class labels of those records of `own` that a table has, by id: their places (n,), and labels (n,).

    Raises:
        DataError: the file cannot be read; has none of the ids; or the label column is missing or holds no classes.
    """
    table, places = _labelled(path, label, own, id_column)
    known = np.flatnonzero(places >= 0)
    if not len(known):
        raise DataError(f"{path}: column {id_column!r} has none of the ids of {own.path}")
    return known, _classes(table.take(places[known]), label)


def auc_by_membership(path: Path, label: str, own: Table, id_column: str = "id") -> float | None:
    """How well being in `own` ranks the classes of all records of a table, either way round; None unless it has two.

    Raises as `load_known_labels`.
    """
    table, places = _labelled(path, label, own, id_column)
    labels = _classes(table, label)
    if len(labels.classes) != 2:
        return None
    ranked = auc(np.isin(np.arange(len(table.ids)), places), labels.values)
    return max(ranked, 1 - ranked)


def _labelled(path: Path, label: str, own: Table, id_column: str) -> tuple[Table, Ints]:
    """A table of labels, and for each record of `own` its place there, -1 where it is not there."""
    check_names(path, columns_of(path), [id_column, label])
    table = read_table(TableConfig(path=path, id=id_column, label=label), with_label=True, missing=None)
    return table, table.ids.places_of(own.ids)


def _classes(table: Table, label: str) -> Labels:
    """The classes in a label column; `DataError` where there are too many for classes."""
    labels = read_classes(table, label)
    if len(labels.classes) > most_categories(len(table.ids)):
        raise DataError(
            f"{table.path}: label column {label!r}: holds {len(labels.classes)} different values; a class label has few"
        )
    return labels


def read_numbers(
    path: Path, id_column: str, columns: Sequence[str] | None, missing: float | None, **keys: Any
) -> Table:
    """A table whose columns, by default all but the id, are numbers: of text one for each text, of dates days.

    `keys`: further ones of a party's table.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    have = columns_of(path)
    wanted = [name for name in have if name != id_column] if columns is None else list(columns)
    check_names(path, have, [id_column, *wanted])
    encode = {OTHERS: "ordinal", **dict.fromkeys(date_columns(path, wanted), DAYS)}
    config = TableConfig(path=path, id=id_column, columns=wanted, encode=encode, **keys)
    return read_table(config, with_label=False, missing=missing)


def check_names(path: Path, have: list[str], wanted: list[str]) -> None:
    """Check that each column is in the table once; the error shows the auditor, who holds the table, its columns."""
    for name in wanted:
        if have.count(name) != 1 or wanted.count(name) != 1:
            what = "has no" if name not in have else "needs just one"
            meant = did_you_mean(name, have) if name not in have else ""
            raise DataError(f"{path}: {what} column {name!r}; it has: {', '.join(have)}{meant}")


def one_hot(table: Table) -> Table:
    """The table with a column of 0 and 1 for each category instead of category numbers."""
    names: list[str] = []
    blocks = [np.empty((len(table.ids), 0))]
    categories: dict[str, Category] = {}
    for j, name in enumerate(table.columns):
        column: Floats = table.features[:, [j]]
        category = table.categories.get(name)
        if category is None or category.of_dates:
            names.append(name)
            blocks.append(column)
            categories |= {} if category is None else {name: category}
            continue
        values = category.values
        if len(values) > _MOST_VALUES:
            raise DataError(f"{table.path}: column {name!r} holds {len(values)} different texts; leave it out")
        categories[name] = Category("one-hot", values, one_hot_names(name, values))
        names += categories[name].features
        blocks.append((column == np.arange(len(values))).astype(np.float64))
    return replace(table, columns=names, values=Held(np.hstack(blocks)), categories=categories)
