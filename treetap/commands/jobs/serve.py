"""`treetap serve`: have the label holder answer clients with a trained model, until it is cancelled.

Options that an operator's commands share are here too, and the coordinator to call.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from treetap import terminal
from treetap.commands.options import answering, argument, from_dataclasses, option
from treetap.errors import BadInput, Incompatible, Interrupted, TreetapError
from treetap.protocols.registry import PREDICTION, prediction

if TYPE_CHECKING:
    from treetap.commands.jobs.client import OnStatus, Operator
    from treetap.wire.v2 import jobs_pb2


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
    with answering():
        from treetap.commands.jobs.client import Operator, OperatorConfig

        if path == DEFAULT_OPERATOR and not path.exists():
            raise BadInput(f"{path}: there is no such file here; name one by --operator or TREETAP_OPERATOR")
        yield Operator(OperatorConfig.from_file(path), days)


#: Seconds of waiting for a coordinator that is unreachable, and between two attempts.
AWAY_S, AGAIN_S = 600.0, 2.0
#: Exit status of a command that Ctrl-C ended.
INTERRUPTED = 130


@from_dataclasses
def serve(
    asked: ModelOptions,
    operator: OperatorFile = DEFAULT_OPERATOR,
    days: Days = DEFAULT_DAYS,
    look_up: Annotated[
        bool, typer.Option(help="Also answer about records that the label holder's table lacks: docs/serving.md.")
    ] = False,
    reasons: Annotated[bool, typer.Option("--reasons", help="Clients may ask for the reasons of scores.")] = False,
    detach: Annotated[bool, typer.Option(help="Exit when it serves; treetap cancel JOB ends it.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Once it serves, print job and address as JSON and nothing else.")
    ] = False,
) -> None:
    """Serve a trained model: clients query the label holder, over gRPC or HTTP, about records by their ids.

    Waits until it serves and prints its address; Ctrl-C ends it. Its clients are named in the label holder's own
    configuration, table [serve]: docs/serving.md.
    """
    with operating(operator, days) as client:
        from treetap.commands.ending import ENDED, as_ctrl_c
        from treetap.protocols.prediction import predict_request

        job = client.predict(predict_request(**asdict(asked), serve=True, look_up=look_up, reasons=reasons))
        with as_ctrl_c(signal.SIGTERM, signal.SIGHUP) as came:
            try:
                status = _watch(client, job, detach=detach, as_json=as_json)
            except BrokenPipeError:  # standard output is closed; the model is served all the same
                raise
            except (*ENDED, OSError):  # OSError: the terminal on which the line is drawn was closed
                heard = bool(came)
                try:
                    _end(client, job)
                except ENDED:
                    if heard or not came:  # else the signal of a closed terminal, after its error: now they are ignored
                        raise
                    _end(client, job)
                return
    if status.state != "running":
        _fail(status)


def resumed(client: Operator, job: str, *, as_json: bool) -> None:
    """Print the addresses of a resumed served job and watch it; Ctrl-C leaves it running."""
    try:
        status = _watch(client, job, detach=False, as_json=as_json)
    except KeyboardInterrupt:
        terminal.err.print(f"{job} serves on; treetap cancel {job} ends it")
        raise typer.Exit(INTERRUPTED) from None
    _fail(status)


def _watch(client: Operator, job: str, *, detach: bool, as_json: bool) -> jobs_pb2.JobStatus:
    """Wait until it serves, print its addresses, and unless `detach` is given show its progress until it ends."""

    from treetap.commands.jobs import progress_view

    with progress_view.live(job) as update:
        status = _stay(client, job, update, progress_view.serves)
    if status.state != "running":
        return status
    _print_where(status, as_json=as_json)
    if detach:
        return status
    with progress_view.serving() as update:
        return _stay(client, job, update)


def _stay(
    client: Operator, job: str, update: OnStatus, until: Callable[[jobs_pb2.JobStatus], bool] | None = None
) -> jobs_pb2.JobStatus:
    """Watch as `Operator.watch` does, also while the coordinator is unreachable: serving resumes with it.

    Raises:
        Interrupted: it has been away for too long.
    """
    left_at: float | None = None

    def seen(status: jobs_pb2.JobStatus) -> None:
        nonlocal left_at
        left_at = None
        update(status)

    while True:
        try:
            return client.watch(job, seen, until)
        except Incompatible:
            raise
        except Interrupted as failure:
            now = time.monotonic()
            if left_at is None:
                left_at = now
                line = f"{job}: the coordinator is away; {job} serves on by itself when it is back"
                terminal.err.print(line)
            if now - left_at > AWAY_S:
                raise Interrupted(
                    f"the coordinator has been away for {AWAY_S:g} s ({failure}); when it is back {job} serves on by "
                    f"itself: treetap status {job}; treetap cancel {job} ends it"
                ) from None
            time.sleep(AGAIN_S)


def _end(client: Operator, job: str) -> None:
    """Cancel it and print its counts; one interrupt suffices."""
    from treetap.commands.jobs import progress_view

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        status = client.cancel(job)
    except Interrupted as failure:
        raise Interrupted(
            f"{failure}; {job} is not ended: it serves on by itself when the coordinator is back, and treetap cancel "
            f"{job} ends it"
        ) from None
    with suppress(OSError):  # a terminal that was closed
        said = status.error, *progress_view.served_in_all(status)
        terminal.err.print(*(f"{job}: {line}" for line in said), sep="\n")


def _fail(status: jobs_pb2.JobStatus) -> NoReturn:
    """Raise the error of a job that does not serve any more."""
    raise (BadInput if status.bad_input else TreetapError)(status.error or f"job {status.job} is {status.state}")


def _print_where(status: jobs_pb2.JobStatus, *, as_json: bool) -> None:
    served = status.serving
    if as_json:
        print(json.dumps({"job": status.job, "grpc": served.grpc}), flush=True)
        return
    typer.echo(f"{status.job} serves; clients ask by gRPC at:\n    {served.grpc}")
