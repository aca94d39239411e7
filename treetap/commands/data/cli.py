"""`treetap data`: public data sets that benchmarks read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from treetap.errors import BadInput

data = typer.Typer(help="Public data sets that benchmarks read.", no_args_is_help=True)

DataFolder = Annotated[
    Path | None, typer.Option("--out", envvar="TREETAP_DATA", help="Folder with one file per data set.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output and nothing else.")]


@data.command("list")
def data_list(out: DataFolder = None, as_json: Json = False) -> None:
    """List the data sets: those in the folder, and how to get the others."""
    from treetap.commands.data.download import listing, print_listing

    rows = listing(out)
    print(json.dumps({"sets": rows}, indent=1), flush=True) if as_json else print_listing(rows)


@data.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="Name of the set, see `treetap data list`.")], out: DataFolder = None
) -> None:
    """Download a set from its public source, compare it with the list of known sets, keep it as Parquet."""
    from treetap.commands.data.download import fetch, find

    source = find(name)
    if out is None:
        raise BadInput("no folder is given: add --out FOLDER or set TREETAP_DATA")
    new = fetch(source, out)
    typer.echo(f"{out / source.file}: {'fetched' if new else 'already there'}, content digest {source.digest}")
