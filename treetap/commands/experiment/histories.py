"""The metrics of all runs after each round, as one table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from treetap.commands.experiment.planned import planned
from treetap.models.history import names_in


def histories_csv(runs: Sequence[Mapping[str, Any]]) -> str:
    """`seed`, with cross-validation `fold`, `round` from 0, and a column for each metric; empty where it is none."""
    keys = list(dict.fromkeys(key for run in runs for key in planned(run).keys))
    names, content = names_in([row for run in runs for row in run["history"]]), io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow([*keys, "round", *names])
    for run in runs:
        for number, row in enumerate(run["history"]):
            values = ("" if row.get(name) is None else repr(row[name]) for name in names)
            writer.writerow([*(run.get(key, "") for key in keys), number, *values])
    return content.getvalue()
