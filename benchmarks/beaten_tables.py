"""What the kinds of questions of `beaten.py` share: tables, and the rows that are found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
HOLDER, PARTY = "label-holder", "feature-party"
LOANS = Path(__file__).parents[1] / "examples" / "loans" / "loans.csv"


class TableFile(NamedTuple):
    """A table: its file, below TREETAP_DATA unless it is whole (None: comes with scikit-learn), label and ids.

    `own`: columns that the label holder has where the other party's are attacked; None: the first half.
    """

    file: str | Path | None
    label: str
    ids: tuple[str, ...] = ()
    own: int | None = None


SETS = {
    "breast_cancer": TableFile(None, "target", own=2),
    "credit_default": TableFile("credit_default.parquet", "default.payment.next.month", ("ID",), 5),
    "bank": TableFile("bank_marketing.parquet", "y"),
    "loans": TableFile(LOANS, "defaulted", ("customer",)),
    "obesity": TableFile("obesity.parquet", "NObeyesdad"),
    "fars": TableFile("fars.parquet", "target"),
}


class Table(NamedTuple):
    """Columns (N, d), texts by number, of which `numbers` (d,) are numbers without a missing cell; classes (N,)."""

    columns: Floats
    numbers: npt.NDArray[np.bool_]
    labels: Ints

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.labels.max()) + 1

    @property
    def objective(self) -> dict[str, Any]:
        """What boosting is told of several classes."""
        return {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"} if self.classes > 2 else {}


class Best(NamedTuple):
    """The best attack of some and its figure; `every`: those of all."""

    name: str
    figure: float
    every: dict[str, float]

    @classmethod
    def of(cls, figures: dict[str, float]) -> Best:
        """The best of attacks by name."""
        name = max(figures, key=figures.__getitem__)
        return cls(name, figures[name], figures)


class Row(NamedTuple):
    """What one question found. `allowed`: how much better, in its `measure`, an easy attack may be."""

    way: str
    holder: str
    question: str
    measure: str
    allowed: float
    easy: Best
    audit: Best


def absent(name: str) -> str | None:
    """The reason why a table is not at hand; None where it is."""
    file = SETS[name].file
    if file is None or isinstance(file, Path):
        return None
    if "TREETAP_DATA" not in os.environ:
        return f"set TREETAP_DATA to the folder with {file}"
    return None if (Path(os.environ["TREETAP_DATA"]) / file).is_file() else f"TREETAP_DATA has no {file}"


def table_of(name: str, records: int) -> Table:
    """A table, of a larger one as many records, drawn."""
    it = SETS[name]
    if it.file is None:
        from sklearn.datasets import load_breast_cancer

        columns, labels = load_breast_cancer(return_X_y=True)
        return Table(columns, np.ones(columns.shape[1], dtype=bool), labels.astype(np.int64))
    if isinstance(it.file, Path):
        table = pacsv.read_csv(it.file)
    else:
        table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / it.file)
    kept = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:records])
    names = [column for column in table.column_names if column not in (it.label, *it.ids)]
    columns = np.stack([numbered(table.column(column)) for column in names], axis=1)[kept]
    numbers = np.array([is_number(table.column(column)) for column in names]) & np.isfinite(columns).all(axis=0)
    return Table(columns, numbers, np.unique(numbered(table.column(it.label))[kept], return_inverse=True)[1])


def is_number(column: pa.ChunkedArray) -> bool:
    """True if a column has numbers, not texts or dates."""
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def numbered(column: pa.ChunkedArray) -> Floats:
    """A column (N,) as numbers, NaN where missing; anything else by the order of its texts."""
    if is_number(column):
        return np.asarray(column.cast(pa.float64()).to_numpy())
    return np.unique([str(value) for value in column.to_pylist()], return_inverse=True)[1].astype(np.float64)
