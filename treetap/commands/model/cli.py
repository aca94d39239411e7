"""`treetap model`: a party looks at its own part of a published model, and the label holder exports a card of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from treetap.commands.options import CA, REVOKED, Json

model = typer.Typer(help="Published models in a party's own state folder.", no_args_is_help=True)

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of a published model; with --config, the name of one.")
]
Config = Annotated[Path | None, typer.Option(help="The party's configuration file, whose state folder has the model.")]


@model.command("show")
def show_model(
    name: Model,
    config: Config = None,
    tree: Annotated[int | None, typer.Option(help="Number of the only tree to show, from 0.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON and nothing else.")] = False,
) -> None:
    """Importances and trees: own splits by name and threshold, others by handle, or by name if its owner sent it."""
    from treetap.commands.model.view import describe, find, print_model, select

    described = select(describe(find(name, config)), tree)
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
    from treetap.commands.model.card import export
    from treetap.commands.model.view import find

    for path in export(find(name, config), out, names=names):
        typer.echo(path)


@model.command("history")
def show_history(
    name: Model,
    config: Config = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it to this CSV file instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON and nothing else.")] = False,
) -> None:
    """The metrics after each round of the training: a tree, the trees of all classes, or an epoch.

    treetap model history credit --config bank.toml --csv history.csv
    """
    from treetap.commands.model.view import find, history_of, print_history, write_csv

    rounds = history_of(find(name, config))
    if csv is not None:
        write_csv(rounds, csv)
    if as_json:
        print(json.dumps(rounds, indent=1, allow_nan=False), flush=True)
    elif csv is None:
        print_history(rounds)


@model.command("open-leaves")
def open_leaf_table(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a published model.")],
    config: Annotated[Path, typer.Option(help="The label holder's configuration file.")],
    auditor: Annotated[str, typer.Option("--for", metavar="AUDITOR", help="A name in `auditors` of the policy.")],
    out: Annotated[Path, typer.Option(help="The file to write: it has all leaf weights.")],
) -> None:
    """Open the label holder's leaf table to an auditor: its key and weights, signed, and entered in the ledger.

    treetap model open-leaves credit --config bank.toml --for auditor --out leaves.json
    """
    from treetap.commands.model.leaves import open_leaves

    made = open_leaves(name, config, auditor, out)
    typer.echo(f"{out}: opens the commitment {made} to {auditor}")


@model.command("check-leaves")
def check_leaf_table(
    file: Annotated[Path, typer.Argument(help="The file that open-leaves has written.")],
    against: Annotated[
        str,
        typer.Option(metavar="COMMITMENT", help="As `model show` of a feature party has it, or that model's folder."),
    ],
    ca: Annotated[Path | None, typer.Option(help=CA)] = None,
    revoked: Annotated[Path | None, typer.Option(help=REVOKED)] = None,
    as_json: Json = False,
) -> None:
    """Compare an opened leaf table with the commitment that a feature party keeps, and look for crafted leaves.

    Exit status 2 if it is another table, 1 if its leaves are none of a training.

    treetap model check-leaves leaves.json --against 6f1c…
    """
    from treetap.commands.model.leaves import check_leaves, print_checked, report

    checked = check_leaves(file, against, ca, revoked)
    if as_json:
        print(json.dumps(report(checked), indent=1, allow_nan=False), flush=True)
    else:
        print_checked(checked)
    if checked.figures.crafted:
        raise typer.Exit(1)
