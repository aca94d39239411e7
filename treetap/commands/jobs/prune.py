"""`treetap prune`: have the coordinator's journal forget jobs that are over."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from treetap.commands.jobs.operator_options import DEFAULT_OPERATOR, OperatorFile, operating


def prune(
    jobs: Annotated[list[str] | None, typer.Argument(help="Jobs to forget; without them, all that are old.")] = None,
    older_than: Annotated[float, typer.Option(min=0, help="Days since the end of a job that is not named.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Name the jobs and delete nothing.")] = False,
    operator: OperatorFile = DEFAULT_OPERATOR,
    as_json: Annotated[bool, typer.Option("--json", help="Print the names as JSON and nothing else.")] = False,
) -> None:
    """Delete the coordinator's record of jobs that are over. Models, predictions and transcripts stay with the parties.

    Without names: predictions that are finished, and jobs of all kinds that are cancelled or have failed for their
    input. A finished training is pruned by name only; after that no prediction with its model is possible.
    """
    with operating(operator) as client:
        gone = client.prune(jobs or [], older_than, dry_run=dry_run)
    if as_json:
        print(json.dumps({"jobs": gone}, indent=1), flush=True)
        return
    for job in gone:
        typer.echo(job)
