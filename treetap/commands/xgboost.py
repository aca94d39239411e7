"""`treetap model` with the command that takes an experiment's run too: `xgboost`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treetap.commands.model.cli import model
from treetap.errors import BadInput

__all__ = ["model"]


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
    from treetap.commands.model.view import find, reading

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
