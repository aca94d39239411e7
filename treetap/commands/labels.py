"""Accounts of a party.

`treetap labels`: the noisy labels that it has drawn, their cost, and what left by labels as they are.
`treetap leakage`: what the sets of records that others know say about its labels, and what previews told of its ids.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from treetap.commands.options import reading

#: The keys of a draw that a table shows, and its headings.
_SHOWN = {
    "at": "drawn at",
    "table": "table",
    "column": "label",
    "records": "records",
    "classes": "classes",
    "epsilon": "epsilon",
    "stages": "stages",
    "mechanism": "mechanism",
    "stored": "kept",
}


def labels(
    config: Annotated[Path, typer.Option(help="The party's own configuration file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Show what a party's labels were used for: noisy ones drawn, ε left, measures released by clean ones."""
    ledger = _ledger(config)
    if as_json:
        print(json.dumps(ledger, indent=1), flush=True)
        return
    from treetap import terminal

    table = terminal.table(*_SHOWN.values())
    for draw in ledger["draws"]:
        cells = {**draw, "stored": "yes" if draw["stored"] else "no"}
        table.add_row(*(terminal.text(str(cells[key])) for key in _SHOWN))
    terminal.out.print(table)
    budget = ledger["budget"]
    limit = "its policy has no label_budget" if budget is None else f"{ledger['left']:g} of {budget:g} left"
    terminal.out.print(f"{ledger['party']}: ε {ledger['spent']:g} spent, {limit}", soft_wrap=True)
    for release in ledger["releases"]:
        measures, counted = ", ".join(release["measures"]), f"{release['records']} labels as they are"
        text = f"{release['at']}: {release['job']} released {measures} by {counted}, of table {release['table']}"
        terminal.out.print(terminal.text(text), soft_wrap=True)


def leakage(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The party's own configuration file.")],
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Name of a job that trains or has trained, or of a preview; without it, all previews.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the account as JSON on standard output and nothing else.")
    ] = False,
) -> None:
    """Show what others can read of this party's labels, or of its ids: also while a job trains.

    At every party, the previews of alignments (treetap align), and how many common records each of them told.

    At the label holder of a job, after each tree, what each feature party's sets of records say about the labels.
    Bound: the largest bound on the information of one set (Eq. 6 of ID-LMID), in nats; per node, not joint. Signature:
    the information of all sets together, as it is measured, by chance (100 random orders of the labels), and their
    difference as a share of the label's entropy. The figures are computed from labels: they are for the label holder.

    treetap leakage credit --config bank.toml
    treetap leakage --config bank.toml
    """
    from treetap.commands.leakage import account, print_account

    kept = account(job, config)
    if as_json:
        print(json.dumps(kept.plain(), indent=1, allow_nan=False), flush=True)
    else:
        print_account(kept)


def _ledger(config: Path) -> dict[str, Any]:
    """The ledger as JSON types. Raises `BadInput` if a file is wrong, damaged or cannot be read."""
    from treetap.party.config import read
    from treetap.party.defences.budgets import LabelBudget
    from treetap.party.runtime.ledger import Kind

    party = read(config)
    budget = LabelBudget(party.state, party.policy.labels.label_budget)
    ledger = budget.ledger
    with reading(ledger.path):
        charged = zip(budget.charges(), ledger.charges(Kind.NOISY_LABELS), strict=True)
        draws = [
            {
                "at": charge.at,
                "table": charge.occasion.table,
                **asdict(draw),
                "stored": budget.labels_of(number).is_file(),
            }
            for number, (draw, charge) in enumerate(charged)
        ]
        releases = [
            {
                "at": charge.at,
                "job": charge.occasion.job,
                "table": charge.occasion.table,
                "records": int(charge.amount),
                **charge.details,
            }
            for charge in ledger.charges(Kind.CLEAN_LABELS)
        ]
        spent, left = budget.spent(), budget.left()
    return {
        "party": party.name,
        "budget": budget.budget,
        "spent": float(spent),
        "left": None if left is None else float(left),
        "draws": draws,
        "releases": releases,
    }
