"""Files of tables from a few cells, and what is read from them, or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables.categories import Category
from treetap.tables.cells import Shape
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table


def text_file(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    """A file of this text."""
    path = folder / name
    path.write_text(text, encoding=encoding)
    return path


def parquet_file(folder: Path, columns: Mapping[str, Any] | pa.Table, name: str = "t.parquet", **written: Any) -> Path:
    """A file of these columns."""
    path = folder / name
    pq.write_table(pa.table(columns), path, **written)
    return path


def read(
    path: Any,
    *columns: str,
    label: str | None = None,
    missing: float | None = None,
    like: Table | None = None,
    shapes: Mapping[str, Shape] | None = None,
    streams: bool = False,
    categorical: bool = False,
    **keys: Any,
) -> Table:
    """These columns by these settings, for a model that was trained on `like`, if given, as its document has it."""
    config = TableConfig.model_validate({"path": path, "id": "id", "columns": list(columns), "label": label, **keys})
    known, empty = None, list[str]()
    if like is not None:
        described = json.loads(json.dumps(like.described()))
        known = {name: Category.from_dict(each) for name, each in described["categories"].items()}
        empty = described["empty_columns"]
    return read_table(
        config,
        with_label=label is not None,
        missing=missing,
        categories=known,
        shapes=shapes,
        empty=empty,
        streams=streams,
        categorical=categorical,
    )


def refusal(path: Any, *columns: str, match: str | None = None, **keys: Any) -> str:
    """Why that is refused, which begins with the file's name."""
    with pytest.raises(DataError, match=match) as caught:
        read(path, *columns, **keys)
    assert not isinstance(path, Path) or str(caught.value).startswith(str(path))
    return str(caught.value)
