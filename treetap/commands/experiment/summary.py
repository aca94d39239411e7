"""Figures over the runs of an experiment: mean and standard deviation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """Mean, None where a value is undefined; standard deviation of a sample, None for one value."""

    mean: float | None
    sd: float | None = None

    def written(self, digits: int = 4) -> str:
        """For a reader."""
        if self.mean is None:
            return "undefined"
        return f"{self.mean:.{digits}f}" + ("" if self.sd is None else f" ± {self.sd:.{digits}f}")


def spread(values: Iterable[float | None]) -> Spread:
    """Mean and standard deviation (n − 1 in the denominator); a value that is undefined or infinite leaves both so."""
    every = list(values)
    known = [value for value in every if value is not None and math.isfinite(value)]
    if len(known) < len(every) or not known:
        return Spread(None)
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def metric_rows(run: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """All rows of a run's metrics, those of repaired models included."""
    metrics: dict[str, dict[str, float | None]] = run["metrics"]
    variants: dict[str, dict[str, float | None]] = run.get("defences", {}).get("variants", {})
    return metrics | {f"{name}, test": measured for name, measured in variants.items()}


#: Measures in the order of all tables; others follow as they come.
_ORDER = ("auc", "ks", "accuracy", "logloss", "rmse")


def measures(rows: Iterable[Iterable[str]]) -> list[str]:
    """The names of measures of some rows, each once."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [name for name in _ORDER if name in names] + [name for name in names if name not in _ORDER]


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics by row and seconds by phase over all runs; each is of the runs that have it, `runs` says how many."""
    rows = [metric_rows(run) for run in runs]
    names = {row: measures(each.get(row, {}) for each in rows) for row in _keys(rows)}
    return {
        "runs": len(runs),
        "metrics": {
            row: {name: _figures(each[row].get(name) for each in rows if row in each) for name in named}
            for row, named in names.items()
        },
        "seconds": {
            phase: _figures(run["seconds"][phase] for run in runs if phase in run["seconds"])
            for phase in _keys([run["seconds"] for run in runs])
        },
    }


def _figures(values: Iterable[float | None]) -> dict[str, Any]:
    every = list(values)
    found = spread(every)
    return {"mean": found.mean, "sd": found.sd, "runs": len(every)}


def _keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))
