"""`treetap ledger`: a party reads what its data were charged for, by table, partner and kind, and what is left.

For the party's own people, such as a data-protection officer. No other process gets it.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treetap.commands.options import Json
from treetap.wire.reachable import ALL

if TYPE_CHECKING:
    from party.config import PartyConfig
    from party.defences.counted_cells import CellAccount
    from party.runtime.ledger import Charge

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
    they are that measures were computed from, cells told in small groups to a label holder, stops by
    max_column_leakage, trees of leaf tables opened to an auditor. --json has each charge, too.

    treetap ledger --config bank.toml --csv ledger.csv
    """
    from party.config import read
    from treetap.commands.model.view import reading
    from treetap.models.durable import write_whole

    party = read(config)
    with reading(party.state):
        charges, left = charges_and_limits(party)
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
        terminal.out.print(terminal.text(f"{party.name}: {_words(row)}"), soft_wrap=True)


def charges_and_limits(party: PartyConfig) -> tuple[list[Charge], list[dict[str, Any]]]:
    """All charges, and a row for each limit: `limit`, `of`, `most`, `spent`, `left`. Raises `DataError` on damage."""
    from party.defences.column_budget import ColumnBudget
    from party.defences.counted_cells import CellAccount
    from party.defences.label_budget import LabelBudget
    from party.runtime.ledger import ledger_of
    from treetap.privacy.column_privacy import ColumnPrivacy

    charges = ledger_of(party.state).charges()
    labels = LabelBudget(party.state, party.policy.label_budget)
    spent, rest = labels.spent(), labels.left()
    left: list[dict[str, Any]] = []
    if spent or rest is not None:
        own = {"spent": float(spent), "left": None if rest is None else float(rest)}
        left.append({"limit": "label_budget", "of": "labels", "most": labels.budget, **own})
    columns, privacy = ColumnBudget(party.state, party.policy.column_budget), party.defences.column_privacy
    noise = None if privacy is None else ColumnPrivacy(privacy.epsilon, privacy.delta, privacy.trees)
    for name in sorted({charge.occasion.table for charge in columns.charges()}):
        most = columns.budget if columns.budget is not None or noise is None else noise.epsilon
        account = {key: value for key, value in columns.account(name, noise).items() if key != "table"}
        left.append({"limit": "column_budget", "of": f"columns of table {name}", "most": most, **account})
    left += map(partial(_of_cells, party.policy.max_column_leakage), CellAccount.all(party.state))
    return charges, left + [row for row in _of_partners(party, charges) if row["spent"] or row["named"]]


def _of_cells(most: float | None, account: CellAccount) -> dict[str, Any]:
    """The row of `max_column_leakage` for an account: shares of all its cells."""
    records, columns = account.size()
    spent = account.read().count() / max(records * columns, 1)
    left = None if most is None else max(most - spent, 0.0)
    of = f"cells of table {account.table} to {account.label_holder}"
    return {"limit": "max_column_leakage", "of": of, "most": most, "spent": spent, "left": left}


def _of_partners(party: PartyConfig, charges: list[Charge]) -> Iterator[dict[str, Any]]:
    """A row for each limit on a partner; `named`: the partner has limits of its own."""
    from party.prediction.query_counts import counts_of
    from party.runtime.job_ledger import DAILY, JobLedger
    from party.runtime.ledger import Occasion, ledger_of

    policy, now = party.policy, time.time()
    met = {partner for charge in charges for partner in charge.occasion.partners} | {*policy.partners} - {ALL}
    parties = tuple(sorted(met - {*policy.coordinators}))
    for job in (Occasion("", parties, "", "", 0), *(Occasion("", (), name, "", 0) for name in policy.coordinators)):
        kept = JobLedger(ledger_of(party.state), job, party.name, policy)
        rows = [
            (DAILY[kind], partner, most, sum(one.amount for one in kept.of_day(kind, partner, now)))
            for kind in DAILY
            for partner, most in kept.daily(kind)
        ]
        rows += [
            ("queries_per_record", partner, most, counts_of(party.state, partner).most())
            for partner, most in kept.queries_per_record()
        ]
        for limit, partner, most, spent in rows:
            named = partner in policy.partners
            left = max(most - spent, 0)
            yield {"limit": limit, "of": partner, "most": most, "spent": spent, "left": left, "named": named}


def _words(row: dict[str, Any]) -> str:
    """A row of a limit as a sentence: ε of labels and columns, a share of cells, numbers of a day for partners."""
    unit = "ε " if row["limit"] in ("label_budget", "column_budget") else ""
    left = "no limit" if row["left"] is None else f"{row['left']:.10g} left"
    return f"{row['of']}: {unit}{row['spent']:.10g} spent, {left} ({row['limit']})"


def _sums(charges: list[Charge]) -> list[dict[str, Any]]:
    """The charges by table, partner and kind: how many there are, the sum of their amounts, and the last one's time.

    What a preview told is no charge of its own.
    """
    from party.runtime.ledger import Kind

    sums: dict[tuple[str, str, str], list[Charge]] = {}
    for charge in (one for one in charges if one.kind is not Kind.ANSWER):
        told = charge.details.get("label_holder")  # of cells, which no other partner is told
        for partner in charge.occasion.partners if told is None else (told,):
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
