"""The report of a screening, as its label holder's people read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from treetap import terminal
from treetap.commands.options import print_json
from treetap.errors import DataError
from treetap.models.store import REPORT, read_manifest


def print_report(folder: Path, *, as_json: bool) -> None:
    """Print the report of a screening that lies in a folder of the label holder's models.

    Raises:
        DataError: there is none, or it is not the one that was written.
    """
    if REPORT not in read_manifest(folder)["files"]:
        raise DataError(
            f"{folder}: has no report of a screening; one lies in the folder models/JOB of its label holder's state"
        )
    report: dict[str, Any] = json.loads((folder / REPORT).read_bytes())
    if as_json:
        print_json(report)
        return
    own, parties = report["own"], report["parties"]
    headers = ("party", "column", "IV", "gain alone", "beyond", "redundancy", "missing", "p")
    terminal.print_table(headers, (_row(party["party"], column) for party in parties for column in party["columns"]))
    terminal.out.print(
        f"your own score: AUC {own['auc']:.3f} out of fold, {own['good']} good and {own['bad']} bad records"
    )
    for party in parties:
        terminal.out.print(terminal.text(party["said"]), soft_wrap=True)
    terminal.out.print("gains: nats of log loss in 1,000 records, less what noise gains; p: of so much by chance")
    for party in parties:
        bins = sum(len(column["bins"]) for column in party["columns"])
        told = f"you know how many records of each class are in {bins} bins of {len(party['columns'])} columns"
        terminal.out.print(
            terminal.text(f"told: of {party['party']}, {told}; {party['party']} knows which records are common"),
            soft_wrap=True,
        )


def _row(party: str, column: dict[str, Any]) -> tuple[str, ...]:
    redundancy = column["redundancy"]
    return (
        party,
        column["name"] or str(column["number"]),
        f"{column['iv']:.3f}",
        f"{1000 * column['gain_alone']:.2f}",
        f"{1000 * column['gain_beyond']:.2f}",
        "" if redundancy is None else f"{redundancy:.2f}",
        f"{column['missing_share']:.1%}",
        f"{column['p_value']:.2g}",
    )
