"""Options that an operator's commands share, and the coordinator to call: errors that are wrong input are so named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap import logs
from treetap.commands.options import argument, option
from treetap.errors import BadInput, Conflict, Incompatible, UnknownJob
from treetap.protocols.registry import PREDICTION, prediction

if TYPE_CHECKING:
    from treetap.commands.jobs.client import Operator

OperatorFile = Annotated[
    Path,
    typer.Option("--operator", envvar="TREETAP_OPERATOR", help="The coordinator to call, and the certificate to use."),
]
Days = Annotated[
    float,
    typer.Option(min=0.01, max=366, help="Days in which every party has to open the job, by the operator's signature."),
]
DEFAULT_DAYS = 7.0
_PROTOCOLS = "; ".join(f"{name}: {prediction(name).summary}" for name in PREDICTION)
DEFAULT_OPERATOR = Path("operator.toml")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a prediction and of a served model, under the names of the request's fields and protocols' options.

    An option that is empty or 0 is left to the protocol, or to the training job.
    """

    model: str = argument("Name of the finished training job.")
    table: str = option("predict", "Name of each party's table of the records.")
    job: str = option("", "Name of the new job; without it, one is made up.", "--name")
    protocol: str = option("", f"{_PROTOCOLS}. By default the first that predicts with the model.")
    form: str = option("", "Of interactive: batched (default) or per-tree, as it was published.")
    key_bits: int = option(
        0, "Of eini: length of the key, as key_bits of a job; 0: the training job's, or 2048.", min=0
    )
    obfuscation: str = option("", "Of eini: short-exponent, half-length or standard; without it the training job's.")
    block: int = option(
        0,
        "Records per block, or per round, at most; 0: 65,536, by eini 1,024, by masked and splitnn 16,384, by "
        "eini-lattice as many as fit.",
        min=0,
        max=2**32 - 1,
    )
    away_policy: str = option(
        "",
        "When a feature party does not answer: fail (default), retry: wait for it, or degrade: go on without "
        "it (served, until it is back: splitnn alone).",
        "--away",
    )
    away_deadline_s: float = option(0, "Seconds until a party counts as away, 3 to 3600; 0: 30.", "--away-deadline")


@contextmanager
def operating(path: Path, days: float = DEFAULT_DAYS) -> Iterator[Operator]:
    """Calls to the coordinator; a job that does not exist, or is in another state, or does not fit is `BadInput`."""
    logs.quiet_grpc()
    from treetap.commands.jobs.client import Operator, read

    try:
        yield Operator(read(path), days)
    except (UnknownJob, Conflict, Incompatible) as error:
        raise BadInput(str(error)) from None
