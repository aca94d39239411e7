"""`treetap model`: a party looks at its own part of a published model, and the label holder exports a card of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from treetap.commands.options import reading
from treetap.errors import BadInput

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
    from treetap.commands.model.card import export
    from treetap.commands.model.view import find

    for path in export(find(name, config), out, names=names):
        typer.echo(path)


@model.command("xgboost")
def export_to_xgboost(
    name: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Folder of an experiment's run, or of a label holder's published model."),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, such as model.json.")],
    config: Annotated[
        Path | None, typer.Option(help="The label holder's configuration file: MODEL is the name of a model there.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="With --config: the table on which it was trained, by which thresholds are rounded."),
    ] = None,
) -> None:
    """Write a model as XGBoost's JSON: all parts of an experiment's run, or a label holder's that stands alone.

    treetap model xgboost runs/credit/seed-0 --out model.json
    """
    from treetap.commands.experiment.xgboost_export import export_alone, export_run, trained_table
    from treetap.commands.model.view import find

    if config is None and table is not None:
        raise BadInput("--table names a table of the label holder's configuration: add --config, or leave it out")
    with reading(Path(name)):
        if config is None and not (Path(name) / "manifest.json").is_file():
            parties = export_run(Path(name), out)
            typer.echo(f"{out}: the model of {', '.join(parties)}")
            return
        party = export_alone(find(name, config), trained_table(config, table), out)
    more = "" if table else "; thresholds are right for values of 32 bits: --config and --table round them by all"
    typer.echo(f"{out}: the part of {party}, which stands alone{more}")
