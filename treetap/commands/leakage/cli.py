"""`treetap leakage`: the label holder reads what the sets of records that others know say about its labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def leakage(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of a job that trains or has trained.")],
    config: Annotated[Path, typer.Option(metavar="FILE", help="The label holder's own configuration file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all trees as JSON on standard output and nothing else.")
    ] = False,
) -> None:
    """Show what each feature party's sets of records say about the labels, after each tree: also while a job trains.

    Bound: the largest bound on the information of one set (Eq. 6 of ID-LMID), in nats; per node, not joint. Signature:
    the information of all sets together, as it is measured, by chance (100 random orders of the labels), and their
    difference as a share of the label's entropy. The figures are computed from labels: they are for the label holder.

    treetap leakage credit --config bank.toml
    """
    from treetap.commands.leakage.account import account, print_account

    kept = account(job, config)
    if as_json:
        print(json.dumps(kept.plain(), indent=1, allow_nan=False), flush=True)
    else:
        print_account(kept)


def register(app: typer.Typer) -> None:
    """Register the sub-command."""
    app.command()(leakage)
