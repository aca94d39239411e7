"""`treetap serve`: have the label holder answer clients with a trained model, until told to stop."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap.errors import BadInput, TreetapError
from treetap.operating import OperatorFile, operating

if TYPE_CHECKING:
    from treetap.wire.v1 import jobs_pb2


def serve(
    model: Annotated[str, typer.Argument(help="Name of the finished training job.")],
    table: Annotated[str, typer.Option(help="Name under which each party keeps the records to serve.")] = "predict",
    protocol: Annotated[str, typer.Option(help="As in treetap predict.")] = "",
    form: Annotated[str, typer.Option(help="Of interactive: batched (default) or per-tree.")] = "",
    key_bits: Annotated[int, typer.Option(min=0, help="Of eini: length of the key; 0: the training job's.")] = 0,
    block: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Records per round; 0: the protocol's own.")] = 0,
    away: Annotated[
        str, typer.Option(help="When a feature party does not answer: fail (default), or retry: wait for it.")
    ] = "",
    away_deadline: Annotated[float, typer.Option(help="Seconds until it counts as away; 0: 30.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the serving job; without it, one is made up.")] = "",
    operator: OperatorFile = Path("operator.toml"),
    detach: Annotated[bool, typer.Option(help="Leave when it serves; treetap cancel JOB ends it.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Once it serves, print job and addresses as JSON and nothing else.")
    ] = False,
) -> None:
    """Serve a trained model: clients ask the label holder, over gRPC or HTTP, about records by their ids.

    Waits until it serves and says where; Ctrl-C ends it. Who may ask is in the label holder's own configuration,
    table [serve]: docs/serving.md.
    """
    with operating(operator) as client:
        from treetap import show
        from treetap.wire.v1 import jobs_pb2

        request = jobs_pb2.PredictRequest(job=name, model=model, table=table, block=block, serve=True)
        request.protocol, request.form, request.key_bits = protocol, form, key_bits
        request.away_policy, request.away_deadline_s = away, away_deadline
        job = client.predict(request)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: whoever ends this ends the serving
        try:
            with show.live(job) as update:
                status = client.watch(job, update, until=_serves)
            if status.state == "running":
                _print_where(status, as_json=as_json)
                if detach:
                    return
                with show.live(job) as update:
                    status = client.watch(job, update)
        except KeyboardInterrupt:
            client.cancel(job)
            show.err.print(f"{job}: ended", markup=False, highlight=False)
            return
    raise (BadInput if status.bad_input else TreetapError)(status.error or f"job {job} is {status.state}")


def register(app: typer.Typer) -> None:
    """The command."""
    app.command()(serve)


def _serves(status: jobs_pb2.JobStatus) -> bool:
    """Whether clients are answered: the label holder has waited for requests once."""
    return status.phase == "serve" and status.HasField("serving")


def _print_where(status: jobs_pb2.JobStatus, *, as_json: bool) -> None:
    told = status.serving
    if as_json:
        print(json.dumps({"job": status.job, "grpc": told.grpc or None, "http": told.http or None}), flush=True)
        return
    typer.echo(f"job {status.job} serves")
    for way, address in (("gRPC", told.grpc), ("HTTP", told.http)):
        if address:
            typer.echo(f"{way}: {address}")
