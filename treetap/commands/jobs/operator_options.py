"""What commands of an operator have in common: whom they ask, and what a wrong question is."""

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
    typer.Option("--operator", envvar="TREETAP_OPERATOR", help="Whom to ask and with which certificate."),
]

Protocol = Annotated[
    str,
    typer.Option(
        help="; ".join(f"{name}: {prediction(name).summary}" for name in PREDICTION)
        + f". By default {next(iter(PREDICTION))}."
    ),
]
AwayDeadline = Annotated[float, typer.Option(help="Seconds until it counts as away, 3 to 3600; 0: 30.")]


@contextmanager
def operating(path: Path) -> Iterator[Operator]:
    """Calls to the coordinator; asking for what is not there, or not in that state, or without what fits, is wrong."""
    logs.quiet_grpc()
    from treetap.commands.jobs.client import Operator, read

    try:
        yield Operator(read(path))
    except (UnknownJob, Conflict, Incompatible) as error:
        raise BadInput(str(error)) from None
