"""The tables of a configuration: where each lies, its id column, the columns that may be used."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from treetap.strict import Strict

#: Encodings of columns of text.
Encoding = Literal["ordinal", "one-hot"]


class TableConfig(Strict):
    """One table of this party: CSV or Parquet, an id column and the columns that may be used."""

    path: Path
    id: str
    columns: list[str] = []
    label: str | None = None
    encode: Encoding | None = None

    @model_validator(mode="after")
    def _sound(self) -> TableConfig:
        if len(set(self.columns)) != len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise ValueError(f"columns names {twice!r} twice")
        for special in (self.id, self.label):
            if special in self.columns:
                raise ValueError(f"column {special!r} is the id or the label and cannot be a feature too")
        if self.label == self.id:
            raise ValueError(f"column {self.id!r} cannot be both the id and the label")
        return self
