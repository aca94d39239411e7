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
