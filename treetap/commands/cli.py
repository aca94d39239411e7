"""The command line: one command, sub-commands that do one thing.

Exit status: 0 done, 1 something failed, 2 the input or the usage is wrong; of `treetap health`, 2 only for wrong usage.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from treetap import logs
from treetap.commands.audit.cli import attack, audit
from treetap.commands.capacity.cli import capacity
from treetap.commands.certs.cli import certs
from treetap.commands.data.cli import data
from treetap.commands.experiment import export_cli
from treetap.commands.health.cli import health
from treetap.commands.jobs.operator_options import DEFAULT_OPERATOR, ModelOptions, OperatorFile, operating
from treetap.commands.jobs.prune import prune
from treetap.commands.jobs.serve import resumed, serve
from treetap.commands.labels import labels
from treetap.commands.leakage import cli as leakage
from treetap.commands.model.cli import model
from treetap.commands.options import CA, REVOKED, Json, from_dataclasses, needs, option
from treetap.commands.stdout import guarded
from treetap.errors import BadInput, Malformed, TreetapError
from treetap.names import visible
from treetap.process.limits import keep_memory_private

if TYPE_CHECKING:
    from treetap.commands.jobs.client import Operator

app = typer.Typer(
    name="treetap",
    help="Vertical federated decision trees over real sockets, with an account of what each party learns.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(certs, name="certs")
app.add_typer(data, name="data")
app.command(rich_help_panel="Audit")(audit)
app.command(rich_help_panel="Audit")(attack)
export_cli.register(model)
app.add_typer(model, name="model")

Detach = Annotated[bool, typer.Option(help="Submit the job and do not wait.")]
JobName = Annotated[str, typer.Argument(help="Name of the job.")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option(help="text, or json: one object a line.")]
UntilStdinCloses = Annotated[
    bool, typer.Option(help="Stop when standard input closes: the process then ends with the one that started it.")
]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"treetap {version('treetap')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options before a sub-command."""
    del version  # its callback answers
    keep_memory_private()  # before a command reads a key
    logs.pin_libraries()  # before one imports them


@app.command()
def demo(
    as_json: Json = False,
    workdir: Annotated[Path | None, typer.Option(help="Keep everything here; without it, a temporary folder.")] = None,
    key_bits: Annotated[int, typer.Option(help="Paillier key: 1024 (quick look), 2048 or 3072.")] = 2048,
    audit_report: Annotated[Path | None, typer.Option(help="Also write the audit's HTML report here.")] = None,
    protocol: Annotated[
        str, typer.Option(help="boosting, splitnn: one party has all labels. pivodl: each of four has some.")
    ] = "boosting",
) -> None:
    """A whole federation on this machine: one process per party, mutual TLS, breast cancer data split by columns.

    Trains, predicts, and shows the gain in accuracy, the costs, the bytes that each party received, and how much of the
    label each other party can infer.
    """
    logs.quiet_grpc()
    with needs("demo"):
        from treetap.commands.demo import run

    run(as_json=as_json, workdir=workdir, key_bits=key_bits, audit_report=audit_report, protocol=protocol)


@app.command()
def experiment(
    file: Annotated[Path, typer.Argument(metavar="EXP.toml", help="Data, parties and job; see docs/experiment.md.")],
    as_json: Json = False,
    workdir: Annotated[
        Path | None, typer.Option(help="Keep results, tables, states and logs here; without it in runs/EXP.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the runs that this folder lacks.")] = None,
    discard: Annotated[bool, typer.Option("--discard", help="Keep no file.")] = False,
    keep_keys: Annotated[
        bool, typer.Option("--keep-keys", help="Keep the private keys of the authority and the processes too.")
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Also write each run's model as XGBoost's JSON, models/RUN.json.")
    ] = False,
) -> None:
    """Split one table between parties and run the federation on it, once per seed and fold; keep the results."""
    logs.quiet_grpc()
    from treetap.commands.experiment.command import run_file

    run_file(
        file,
        as_json=as_json,
        workdir=workdir,
        resume=resume,
        discard=discard,
        keep_keys=keep_keys,
        export=export,
    )


@app.command()
def frontier(
    file: Annotated[
        Path,
        typer.Argument(metavar="FRONTIER.toml", help="An experiment file with a table frontier; docs/frontier.md."),
    ],
    as_json: Json = False,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Points, frontier.json and frontier.html; without it FRONTIER-frontier in this folder."),
    ] = None,
) -> None:
    """Train with defences of the label at several strengths; draw AUC against what attacks still find.

    The table frontier names the values, as id_lmid = [0.1, 0.5, 1] or label_dp = [0.5, 1, 2]; each is one training for
    every seed of the table data. A finished training is kept: after Ctrl-C the same command goes on with the others.

    trainer = "centralised" trains the same trees on the joined table, without sockets and encryption: minutes for a
    sweep that takes a federation hours.
    """
    logs.quiet_grpc()
    with needs("audit"):
        from treetap.commands.frontier.run import run_file

    run_file(file, as_json=as_json, workdir=workdir)


@app.command()
def party(
    config: Annotated[Path, typer.Option(help="The party's own configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve one party until SIGTERM. Prints one JSON line with its address when it is ready."""
    logs.configure(log_level, log_format)  # first: gRPC keeps the standard error that it finds
    from party.server.main import run

    run(config, until_stdin_closes=until_stdin_closes)


@app.command()
def coordinator(
    config: Annotated[Path, typer.Option(help="The coordinator's configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve the coordinator until SIGTERM. It runs jobs and holds no data."""
    logs.configure(log_level, log_format)  # first: gRPC keeps the standard error that it finds
    from coordinator.server.main import run

    run(config, until_stdin_closes=until_stdin_closes)


@app.command()
def doctor(
    config: Annotated[Path, typer.Option(help="A party's, a coordinator's or an operator's configuration file.")],
    as_json: Json = False,
) -> None:
    """Check certificates, addresses, clocks, versions, tables and folders. Exit status 2 if there is a fault."""
    logs.quiet_grpc()
    from treetap.commands.doctor.configuration import run

    run(config, as_json=as_json)


app.command()(health)
leakage.register(app)
app.command()(capacity)


@app.command()
def train(
    file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job.")],
    operator: OperatorFile = DEFAULT_OPERATOR,
    detach: Detach = False,
    as_json: Json = False,
) -> None:
    """Submit a training job to the coordinator and watch it. Ctrl-C stops the watching, not the job."""
    from treetap.commands.jobs.job_file import JobFile
    from treetap.protocols.registry import training
    from treetap.strict import load
    from treetap.wire.v2 import jobs_pb2

    job = load(file, JobFile)
    if not as_json:
        for sentence in training(job.job.protocol).noise.statement(job.job.params()):
            typer.echo(sentence)
    with operating(operator) as client:
        name = client.submit(jobs_pb2.SubmitRequest(job=job.name or "", spec=job.to_spec()))
        _follow(client, name, detach=detach, as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(ModelOptions):
    """Options of a prediction that is written to a file."""

    records_file: str = option(
        "", "File of ids at the label holder or recipient, below its data folder; without it all records.", "--records"
    )
    recipient: str = option("", "Of masked: the party that gets the scores; without it the training's first party.")
    prediction_weights: str = option(
        "", "Of masked: exact (default), or noised: leaf weights as the training released them."
    )
    explain: bool = option(
        False,
        "Also write the candidate paths, with names where the owner's policy emits FEATURE_NAME to the label holder.",
        "--explain",
    )
    explain_limit: int = option(0, "Of --explain: number of records, from the first on; 0: all.", min=0, max=2**63 - 1)
    attributions: bool = option(
        False,
        "Of eini: also Shapley values; every feature party's policy must emit EXPLANATION to the label holder.",
        "--attributions",
    )
    evaluate: bool = option(
        False,
        "Also compare with the labels of the label holder's or recipient's table; measures come back if its "
        "policy lets METRIC go to the coordinator.",
        "--evaluate",
    )
    format: str = option("", "Of the predictions' file: parquet (default) or csv.")


@app.command()
@from_dataclasses
def predict(
    asked: PredictionOptions, operator: OperatorFile = DEFAULT_OPERATOR, detach: Detach = False, as_json: Json = False
) -> None:
    """Predict with a trained model. The label holder, or recipient, writes a file in its own state folder."""
    from treetap.protocols.prediction import predict_request

    request = predict_request(**asdict(asked))
    with operating(operator) as client:
        _follow(client, client.predict(request), detach=detach, as_json=as_json)


app.command()(serve)
app.command()(prune)
app.command()(labels)


@app.command()
def status(
    job: Annotated[str, typer.Argument(help="Name of a job; without it, all.")] = "",
    operator: OperatorFile = DEFAULT_OPERATOR,
    as_json: Json = False,
) -> None:
    """Show the status of one job or of all."""

    from treetap.commands.jobs import progress_view

    with operating(operator) as client:
        statuses = client.status(job)
    if as_json:
        _print_json({"jobs": [progress_view.status_dict(status) for status in statuses]})
    else:
        progress_view.print_statuses(statuses)


@app.command()
def cancel(job: JobName, operator: OperatorFile = DEFAULT_OPERATOR, as_json: Json = False) -> None:
    """Stop a job and have every party delete its progress."""

    from treetap.commands.jobs import progress_view

    with operating(operator) as client:
        ended = client.cancel(job)
    if as_json:
        _print_json(progress_view.status_dict(ended))
    else:
        progress_view.print_statuses([ended])


@app.command()
def resume(
    job: JobName,
    operator: OperatorFile = DEFAULT_OPERATOR,
    detach: Annotated[bool, typer.Option(help="Do not wait.")] = False,
    as_json: Json = False,
) -> None:
    """Resume an interrupted job: stored trees are kept, and the result is the same model.

    Of a served job, prints its addresses; Ctrl-C stops the watching, not the serving.
    """
    with operating(operator) as client:
        client.resume(job)
        if not detach and client.status(job)[0].kind == "serve":
            resumed(client, job, as_json=as_json)
        else:
            _follow(client, job, detach=detach, as_json=as_json)


@app.command()
def protocol(
    name: Annotated[str, typer.Argument(help="Name of a protocol; without it, the list of all.")] = "",
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it, to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Show a protocol: the steps of each party, what may follow each, and the messages.

    Of a message: the step that sends it, from whom to whom, how often, what it has at most, and its disclosure classes.

    treetap protocol boosting --svg boosting.svg
    """
    from treetap.commands.protocol import show

    show(name, svg, as_json=as_json)


@app.command()
def transcript(
    file: Annotated[Path, typer.Argument(help="A transcript's folder or one of its files.")],
    ca: Annotated[Path | None, typer.Option(help=CA)] = None,
    revoked: Annotated[Path | None, typer.Option(help=REVOKED)] = None,
    as_json: Json = False,
) -> None:
    """Count a party's messages and bytes by peer, step and disclosure class; verify its chain and signatures."""
    from treetap.wire.transcript import summarise

    try:
        summary = summarise(file, ca, revoked)
    except Malformed as damage:  # of a file that the person named, not of a message
        raise BadInput(str(damage)) from None
    if as_json:
        _print_json(summary)
        return
    from treetap import terminal

    table = terminal.table("kind", "peer", "step", "class", "messages", "bytes")
    for row in summary["rows"]:
        cells = [row["kind"], row["peer"], row["step"], row["class"], str(row["messages"]), terminal.size(row["bytes"])]
        table.add_row(*map(terminal.text, cells))
    terminal.out.print(table)
    terminal.out.print(
        f"{summary['records']} records, hash chain intact" + (", last record torn" if summary["torn"] else "")
    )
    terminal.out.print(summary["signed"]["says"], markup=False, highlight=False, soft_wrap=True)


def _follow(client: Operator, job: str, *, detach: bool, as_json: bool) -> None:
    """Watch a job to its end and turn its state into output and exit status."""
    from treetap import terminal
    from treetap.commands.jobs import progress_view

    if detach:
        _print_json({"job": job}) if as_json else typer.echo(job)
        return
    if not as_json:
        terminal.err.print(f"job {job}")
    with progress_view.live(job) as update:
        ended = client.watch(job, update)
    if as_json:
        _print_json(progress_view.status_dict(ended))
    else:
        progress_view.print_statuses([ended], errors=False)  # an error is this command's message
    if ended.state != "finished":
        _fail(ended.error or ended.state, bad_input=ended.bad_input)


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=1), flush=True)  # flushed, so that a failure to write is raised here


def _fail(message: str, *, bad_input: bool) -> NoReturn:
    if logs.in_json():
        logging.getLogger("treetap").critical("%s", message)
    else:
        print(f"treetap: {visible(message, keep=chr(10))}", file=sys.stderr)
    raise SystemExit(2 if bad_input else 1)


#: What Rich, which prints help and is loaded for it alone, takes for a tag, and the backslashes before it.
_TAG = re.compile(r"(\\*)(\[[a-z#/@][^\[]*?\])")


def in_plain_text(of: typer.Typer) -> Any:
    """The command of an app whose help is printed as it is written: a table's name in brackets is text, no markup."""
    command = typer.main.get_command(of)
    below = [command]
    for one in below:
        below += getattr(one, "commands", {}).values()
        for part in (one, *one.params):
            for name in ("help", "short_help", "epilog"):
                if isinstance(text := getattr(part, name, None), str):
                    setattr(part, name, _TAG.sub(r"\1\1\\\2", text))
    return command


def main() -> None:
    """The entry point: errors raised on purpose become one message and an exit status, never a traceback."""
    try:
        with guarded():
            in_plain_text(app)()
    except TreetapError as error:
        _fail(str(error), bad_input=isinstance(error, BadInput))
