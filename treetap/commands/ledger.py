"""`treetap ledger`: a party reads what its data were charged for, by table, partner and kind, and what is left.

For the party's own people, such as a data-protection officer. No other process gets it.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treetap.commands.options import Json, reading

if TYPE_CHECKING:
    from treetap.party.runtime.ledger import Charge

#: The columns of the CSV file, a row for each charge.
COLUMNS = ("at", "kind", "amount", "table", "parties", "coordinator", "job", "attempt", "details")


def ledger(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The party's own configuration file.")],
    as_json: Json = False,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Also write every charge to a CSV file.")
    ] = None,
) -> None:
    """Show what this party's data were charged for over all jobs, and what its limits leave.

    A line is the sum of one kind of charges for one table and one partner. Amounts: attempts at trainings and
    predictions, previews, common records, ε of noisy labels and of noised leaf weights, ρ of noised sums, labels as
    they are that measures were computed from, ids that were forgotten. --json has each charge, too.

    treetap ledger --config bank.toml --csv ledger.csv
    """
    from treetap.models.durable import write_whole
    from treetap.party.approvals.overview import spent
    from treetap.party.config import read
    from treetap.party.runtime.ledger import ledger_of

    party = read(config)
    with reading(party.state):
        charges = ledger_of(party.state).charges()
        left = spent(party, charges)
    if csv_file is not None:
        write_whole(csv_file, _csv(charges).encode(), 0o644)
    sums = _sums(charges)
    if as_json:
        rows = [{"at": charge.at, **charge.plain()} for charge in charges]
        document = {"party": party.name, "charges": rows, "sums": sums, "left": left}
        print(json.dumps(document, indent=1, allow_nan=False), flush=True)
        return
    from treetap import terminal

    table = terminal.table("table", "partner", "kind", "charges", "sum", "last one")
    for row in sums:
        table.add_row(*(terminal.text(f"{cell:g}" if isinstance(cell, float) else str(cell)) for cell in row.values()))
    terminal.out.print(table)
    for row in left:
        unit = "ε " if row["limit"] in ("label_budget", "column_budget") else ""  # others are numbers of a day
        rest = "no limit" if row["left"] is None else f"{row['left']:.10g} left"
        words = f"{party.name}: {row['of']}: {unit}{row['spent']:.10g} spent, {rest} ({row['limit']})"
        terminal.out.print(terminal.text(words), soft_wrap=True)


def _sums(charges: list[Charge]) -> list[dict[str, Any]]:
    """The charges by table, partner and kind: how many there are, the sum of their amounts, and the last one's time.

    What a preview told is no charge of its own.
    """
    from treetap.party.runtime.ledger import Kind

    sums: dict[tuple[str, str, str], list[Charge]] = {}
    for charge in (one for one in charges if one.kind is not Kind.ANSWER):
        for partner in charge.partners or ("",):
            sums.setdefault((charge.occasion.table, partner, str(charge.kind)), []).append(charge)
    return [
        {
            **dict(zip(("table", "partner", "kind"), key, strict=True)),
            "charges": len(those),
            "sum": float(sum(charge.amount for charge in those)),
            "last": those[-1].at,
        }
        for key, those in sorted(sums.items())
    ]


def _csv(charges: list[Charge]) -> str:
    """The charges as CSV, details as JSON."""
    content = io.StringIO()
    rows = csv.DictWriter(content, COLUMNS, extrasaction="ignore")
    rows.writeheader()
    for charge in charges:
        plain = charge.plain()
        parties = " ".join(charge.occasion.parties)
        details = json.dumps(plain["details"], sort_keys=True)
        rows.writerow({**plain, "at": charge.at, "parties": parties, "details": details})
    return content.getvalue()
