"""Sets by which a training is measured after each round, `eval_set` of `fit`, by XGBoost's rule: the last one stops it.

The last set is the job's eval table. A loopback federation's caller has all shards, so that the others are measured
afterwards by the joint model, which gives the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from treetap.lab.api.errors import InvalidInput
from treetap.lab.api.fitted import Fitted
from treetap.lab.api.loopback import ID, OwnTable
from treetap.tables.record_ids import Ids

#: The mark before ids of records of an eval set: a record may be there and in the training.
_MARK = "eval "
#: The word before the names of the last set's measures in a history.
_EVAL = "eval_"


@dataclass(frozen=True)
class EvalSet:
    """A set: tables by party, with labels and weights at the label holder."""

    tables: Mapping[str, OwnTable]
    label_holder: str

    def rows(self, fitted: Fitted) -> list[dict[str, float | None]]:
        """Its measures after each round of a training."""
        own = self.tables[self.label_holder]
        table = own.records
        ids = table.column(ID).to_pylist()
        labels = dict(zip(ids, table.column(own.keys["label"]).to_pylist(), strict=True))
        weight = own.keys.get("weight")
        weights = None if weight is None else dict(zip(ids, table.column(weight).to_pylist(), strict=True))
        return fitted.measured(self.tables, labels, weights)


def marked(table: pa.Table) -> pa.Table:
    """The same records under ids that no record of the training has."""
    ids = Ids.of_column(table.column(ID)).marked(_MARK)
    return table.set_column(table.column_names.index(ID), ID, ids.array)


def pairs_of(eval_set: Any, weights: Any) -> list[tuple[Any, Any, Any]]:
    """The sets as (records, labels, weights or None), none where there are none.

    Raises:
        InvalidInput: they are no pairs, or there are not as many weights.
    """
    if eval_set is None:
        if weights is not None:
            raise InvalidInput("sample_weight_eval_set: there is no eval_set; give it too")
        return []
    sets: list[Any] = list(eval_set) if isinstance(eval_set, Sequence) and not isinstance(eval_set, str) else [None]
    if not sets or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in sets):
        raise InvalidInput("eval_set: must be a list of pairs, [(X, y)], of which the last one may stop the training")
    given = [None] * len(sets) if weights is None else list(weights)
    if len(given) != len(sets):
        raise InvalidInput(f"sample_weight_eval_set has {len(given)} entries, and eval_set {len(sets)}: one for each")
    return [(records, labels, weight) for (records, labels), weight in zip(sets, given, strict=True)]


def add_history(fitted: Fitted, sets: Sequence[EvalSet]) -> None:
    """Give the history of a training the measures of all sets; of several each has its number, from 0."""
    if len(sets) < 2:
        return
    last = f"{_EVAL}{len(sets) - 1}_"
    history = [
        {last + name.removeprefix(_EVAL) if name.startswith(_EVAL) else name: value for name, value in row.items()}
        for row in fitted.history
    ]
    for number, further in enumerate(sets[:-1]):
        for row, measured in zip(history, further.rows(fitted), strict=True):
            row.update({f"{_EVAL}{number}_{name}": value for name, value in measured.items()})
    fitted.history = history


def results(history: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, list[float | None]]]:
    """The measures of eval sets as XGBoost's `evals_result` has them: set → measure → a value for each round."""
    sets: dict[str, dict[str, list[float | None]]] = {}
    for row in history:
        for name, value in row.items():
            if name.startswith(_EVAL):
                number, _, measure = name.removeprefix(_EVAL).partition("_")
                place, of = (number, measure) if number.isdigit() else ("0", name.removeprefix(_EVAL))
                sets.setdefault(f"validation_{place}", {}).setdefault(of, []).append(value)
    return dict(sorted(sets.items(), key=lambda item: int(item[0].rpartition("_")[2])))
