"""Options that an operator's commands share, and the coordinator to call: errors that are wrong input are so named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
_PROTOCOLS = "; ".join(f"{name}: {prediction(name).summary}" for name in PREDICTION)
DEFAULT_OPERATOR = Path("operator.toml")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a prediction and of a served model, under the names of the request's fields and protocols' options.

    An option that is empty or 0 is left to the protocol, or to the training job.
    """

    model: Annotated[str, typer.Argument(help="Name of the finished training job.")]
    table: Annotated[str, typer.Option(help="Name of each party's table of the records.")] = "predict"
    job: Annotated[str, typer.Option("--name", help="Name of the new job; without it, one is made up.")] = ""
    protocol: Annotated[str, typer.Option(help=f"{_PROTOCOLS}. By default the first that predicts with the model.")] = (
        ""
    )
    form: Annotated[str, typer.Option(help="Of interactive: batched (default) or per-tree, as it was published.")] = ""
    scheme: Annotated[
        str, typer.Option(help="Of eini: paillier or okamoto-uchiyama; without it the training job's.")
    ] = ""
    key_bits: Annotated[int, typer.Option(min=0, help="Of eini: length of the key; 0: the training job's.")] = 0
    obfuscation: Annotated[
        str, typer.Option(help="Of eini: short-exponent, half-length or standard; without it the training job's.")
    ] = ""
    block: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Records per block, or per round; 0: the protocol's own.")
    ] = 0
    away_policy: Annotated[
        str,
        typer.Option(
            "--away",
            help="When a feature party does not answer: fail (default), retry: wait for it, or degrade: go on without "
            "it (served, until it is back: splitnn alone).",
        ),
    ] = ""
    away_deadline_s: Annotated[
        float, typer.Option("--away-deadline", help="Seconds until a party counts as away, 3 to 3600; 0: 30.")
    ] = 0


@contextmanager
def operating(path: Path) -> Iterator[Operator]:
    """Calls to the coordinator; a job that does not exist, or is in another state, or does not fit is `BadInput`."""
    logs.quiet_grpc()
    from treetap.commands.jobs.client import Operator, read

    try:
        yield Operator(read(path))
    except (UnknownJob, Conflict, Incompatible) as error:
        raise BadInput(str(error)) from None
