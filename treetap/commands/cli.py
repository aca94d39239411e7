"""The command line: one command, sub-commands that do one thing.

Exit status: 0 done, 1 something failed, 2 the input or the usage is wrong; of `treetap health`, 2 only for wrong usage.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from treetap import logs
from treetap.commands.audit.cli import attack, audit
from treetap.commands.capacity.cli import capacity
from treetap.commands.certs.cli import certs
from treetap.commands.data.cli import data
from treetap.commands.health.cli import health
from treetap.commands.jobs.cli import align, cancel, predict, prune, resume, status, train
from treetap.commands.jobs.serve import serve
from treetap.commands.labels import labels, leakage
from treetap.commands.model.cli import model
from treetap.commands.options import CA, REVOKED, Json, needs
from treetap.commands.stdout import guarded
from treetap.errors import BadInput, Malformed, TreetapError
from treetap.names import visible
from treetap.process.limits import keep_memory_private

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
app.add_typer(model, name="model")

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


@model.command("xgboost")
def export_to_xgboost(
    name: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Folder of an experiment's run, or of a label holder's published model."),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, such as model.json.")],
    config: Annotated[
        Path | None, typer.Option(help="The label holder's configuration file: MODEL is the name of a model there.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="With --config: the table on which it was trained, by which thresholds are rounded."),
    ] = None,
) -> None:
    """Write a model as XGBoost's JSON: all parts of an experiment's run, or a label holder's that stands alone.

    treetap model xgboost runs/credit/seed-0 --out model.json
    """
    from treetap.commands.experiment.xgboost_export import export_alone, export_run, trained_table
    from treetap.commands.model.view import find, reading

    if config is None and table is not None:
        raise BadInput("--table names a table of the label holder's configuration: add --config, or leave it out")
    with reading(Path(name)):
        if config is None and not (Path(name) / "manifest.json").is_file():
            parties = export_run(Path(name), out)
            typer.echo(f"{out}: the model of {', '.join(parties)}")
            return
        party = export_alone(find(name, config), trained_table(config, table), out)
    more = "" if table else "; thresholds are right for values of 32 bits: --config and --table round them by all"
    typer.echo(f"{out}: the part of {party}, which stands alone{more}")


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
    from coordinator.server import run

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
app.command()(leakage)
app.command()(capacity)


app.command()(train)
app.command()(align)
app.command()(predict)
app.command()(serve)
app.command()(prune)
app.command()(labels)
app.command()(status)
app.command()(cancel)
app.command()(resume)


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
        print(json.dumps(summary, indent=1), flush=True)  # flushed, so that a failure to write is raised here
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
