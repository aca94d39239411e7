"""Commands on a party's own state folder: accounts (`ledger`, `labels`, `leakage`), models (`model`), rows (`send`)."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treetap.commands.options import Json, argument, from_dataclasses, option, print_json, reading
from treetap.errors import BadInput

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
        plain = [{"at": charge.at, **charge.plain()} for charge in charges]
        document = {"party": party.name, "charges": plain, "sums": sums, "left": left}
        print_json(document, allow_nan=False)
        return
    from treetap import terminal

    rows = [[f"{cell:g}" if isinstance(cell, float) else cell for cell in row.values()] for row in sums]
    terminal.print_table(("table", "partner", "kind", "charges", "sum", "last one"), rows)
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
        print_json(ledger)
        return
    from treetap import terminal

    draws = ({**draw, "stored": "yes" if draw["stored"] else "no"} for draw in ledger["draws"])
    terminal.print_table(_SHOWN.values(), ([draw[key] for key in _SHOWN] for draw in draws))
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
    """Show what others can read of this party's labels, columns or ids: also while a job trains.

    At every party, the previews of alignments (treetap align), and how many common records each of them told.

    At the label holder of a job, after each tree, what each feature party's sets of records say about the labels.
    Bound: the largest bound on the information of one set (Eq. 6 of ID-LMID), in nats; per node, not joint. Signature:
    the information of all sets together, as it is measured, by chance (100 random orders of the labels), and their
    difference as a share of the label's entropy. The figures are computed from labels: they are for the label holder.

    At a feature party of an additive model, by tree, the share of its cells that left sets place in their bins.

    treetap leakage credit --config bank.toml
    treetap leakage --config bank.toml
    """
    from treetap.commands.leakage import show

    show(job, config, as_json=as_json)


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


model = typer.Typer(help="Published models in a party's own state folder.", no_args_is_help=True)

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of a published model; with --config, the name of one.")
]
Config = Annotated[Path | None, typer.Option(help="The party's configuration file, whose state folder has the model.")]


@model.command("show")
def show_model(
    name: Model,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON and nothing else.")] = False,
) -> None:
    """Parties, parameters, metrics, importances, and how many trees there are; --json has the metrics of each round."""
    from treetap.commands.model.view import describe, find, print_model

    described = describe(find(name, config))
    if as_json:
        print(json.dumps(described, indent=1, allow_nan=False), flush=True)
    else:
        print_model(described)


@model.command("export")
def export_model(
    name: Model,
    out: Annotated[Path, typer.Option(help="Folder for model.json and model.html.")],
    config: Config = None,
    names: Annotated[
        bool, typer.Option("--names", help="Publish the names of the label holder's features too.")
    ] = False,
) -> None:
    """Write the publishable part of the label holder's model, as JSON and as a page that loads nothing."""
    from treetap.commands.model.view import export, find

    for path in export(find(name, config), out, names=names):
        typer.echo(path)


@dataclass(frozen=True, kw_only=True)
class Sending:
    """What is sent, and where to."""

    file: Path = argument("Predictions or another table in Parquet, or an audit.json.", metavar="FILE")
    uri: str = option("", "The environment variable that holds the database's URI.", metavar="'$NAME'")
    table: str = option("", "Of a database: NAME, or SCHEMA.NAME.")
    deadline_s: float = option(0, "Of a database: seconds for all; 0: 300.", min=0)
    path: str = option("", "The object that gets the file.", metavar="s3://BUCKET/KEY")
    endpoint_override: str = option("", "The address of an object store other than Amazon's.", metavar="URL")
    existing: str = option("", "Table or object that is there: refuse (default), append (rows to a table's), replace.")


@from_dataclasses
def send(asked: Sending) -> None:
    """Send predictions, or an audit's verdicts, to PostgreSQL, Flight SQL or an object store: all rows or none.

    treetap send march.parquet --uri '$SCORES_DB' --table risk.scores --existing append

    treetap send runs/exp/audit.json --path s3://risk/verdicts.parquet
    """
    from pydantic import ValidationError

    from treetap.strict import WHOLE, faults_of
    from treetap.tables import sending

    keys = {name: value for name, value in asdict(asked).items() if value}
    file = keys.pop("file")
    try:
        target = sending.Target.model_validate(keys)
    except ValidationError as fault:
        raise BadInput(faults_of(fault, sending.Target)[0].removeprefix(f"{WHOLE}: ")) from None
    typer.echo(f"{target.title}: {sending.send(file, target)} rows")
