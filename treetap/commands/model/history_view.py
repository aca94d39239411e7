"""The metrics of a model after each round of its training, in a terminal and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from treetap import terminal
from treetap.commands.model.schema import check_history
from treetap.commands.model.view import reading
from treetap.errors import BadInput
from treetap.models.durable import write_whole
from treetap.models.history import Metrics, csv_of, names_in, read_history
from treetap.models.store import read_manifest
from treetap.terminal import text

Rounds = Sequence[Metrics]


def history_of(folder: Path) -> Rounds:
    """The metrics after each round, by name; `BadInput` where the model in the folder has none."""
    with reading(folder):
        found, role = check_history(read_history(folder), folder), read_manifest(folder)["role"]
    if not any(found):
        whose = "; the label holder's part has them" if role == "feature_party" else ""
        raise BadInput(f"{folder}: has no metrics of rounds{whose}")
    return found


def write_csv(rounds: Rounds, path: Path) -> None:
    """Write the history as CSV: see `csv_of`."""
    try:
        write_whole(path, csv_of(rounds).encode(), mode=0o644)
    except OSError as failure:
        raise BadInput(f"--csv {path}: cannot be written: {failure.strerror}") from None


def print_history(rounds: Rounds) -> None:
    """Print a row per round."""
    names = names_in(rounds)
    table = terminal.table("round", *names)
    for number, row in enumerate(rounds):
        values = (row.get(name) for name in names)
        table.add_row(str(number), *(text("" if value is None else f"{value:.6f}") for value in values))
    terminal.out.print(table)
