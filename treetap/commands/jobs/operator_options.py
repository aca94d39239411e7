"""Common parts of an operator's commands: the coordinator to call, and errors that are wrong input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap import logs
from treetap.errors import BadInput, Conflict, Incompatible, UnknownJob
from treetap.protocols.registry import PREDICTION, prediction

if TYPE_CHECKING:
    from treetap.commands.jobs.client import Operator

OperatorFile = Annotated[
    Path,
    typer.Option("--operator", envvar="TREETAP_OPERATOR", help="The coordinator to call, and the certificate to use."),
]

Protocol = Annotated[
    str,
    typer.Option(
        help="; ".join(f"{name}: {prediction(name).summary}" for name in PREDICTION)
        + ". By default the first that predicts with the model."
    ),
]
AwayDeadline = Annotated[float, typer.Option(help="Seconds until a party counts as away, 3 to 3600; 0: 30.")]


@contextmanager
def operating(path: Path) -> Iterator[Operator]:
    """Calls to the coordinator; a job that does not exist, or is in another state, or does not fit is `BadInput`."""
    logs.quiet_grpc()
    from treetap.commands.jobs.client import Operator, read

    try:
        yield Operator(read(path))
    except (UnknownJob, Conflict, Incompatible) as error:
        raise BadInput(str(error)) from None
