"""`treetap model`: a party looks at its own part of a published model, and the label holder exports a card of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

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
    from party.config import read
    from treetap.commands.model.card import export
    from treetap.commands.model.view import find

    seal = None if config is None else read(config).seal
    for path in export(find(name, config), out, names=names, seal=seal):
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
