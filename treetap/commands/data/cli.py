"""`treetap data`: public data sets that benchmarks read, and sets of images as tables of parties."""

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


@data.command("images")
def data_images(
    name: Annotated[str, typer.Argument(help="Set of images, as fashion_mnist; see `treetap data list`.")],
    out: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    folder: Annotated[
        Path | None, typer.Option("--from", envvar="TREETAP_DATA", help="Folder with one file per data set.")
    ] = None,
    part: Annotated[str, typer.Option(help="train or test.")] = "train",
    rows: Annotated[int | None, typer.Option(min=1, help="The first images alone; by default all.")] = None,
    halves: Annotated[
        bool, typer.Option("--halves", help="Columns left and right, for two parties, in the place of image.")
    ] = False,
) -> None:
    """Write a set of images as a Parquet table of tensors: id, image (or left and right) and label."""
    from treetap.commands.data.images import write_images

    if folder is None:
        raise BadInput("no folder is given: add --from FOLDER or set TREETAP_DATA")
    count = write_images(name, folder, part, rows, out, halves=halves)
    typer.echo(f"{out}: {count} images")
