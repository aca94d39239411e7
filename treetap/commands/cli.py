"""The command line: one command, sub-commands that do one thing.

Exit status: 0 done, 1 something failed, 2 the input or the usage is wrong; of `treetap health`, 2 only for wrong usage.

Standard output that fails with one message, as on a full disk.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from treetap import logs
from treetap.commands.lazy import JOBS, OPERATE, PARTY, PRIVACY, LazyGroup, Row, in_plain_text
from treetap.commands.options import CA, REVOKED, Json, LogFormat, LogLevel, UntilStdinCloses, print_json
from treetap.errors import BadInput, Malformed, TreetapError, visible
from treetap.process.limits import hold_hangup, import_numpy, keep_memory_private, while_importing


class Output(io.TextIOWrapper):
    """Text on a file descriptor; `TreetapError` where it cannot be written.

    A reader that has closed the pipe, as `head` does, stays a BrokenPipeError: no message is needed.
    """

    failure: TreetapError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as failure:
            raise self._give_up(failure) from None

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as failure:
            raise self._give_up(failure) from None

    def drop(self) -> None:
        """Discard buffered text: Python would try to write it again at exit, in vain and with a traceback."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)

    def _give_up(self, failure: OSError) -> TreetapError:
        self.drop()
        self.failure = TreetapError(f"standard output cannot be written: {failure.strerror}")
        return self.failure


@contextmanager
def guarded() -> Iterator[None]:
    """Make standard output an `Output` within the block and flush it at the end; a closed one stays closed."""
    plain = sys.stdout
    if type(plain) is not io.TextIOWrapper:  # a test or a notebook has put something of its own there
        yield
        return
    look = (plain.encoding, plain.errors, None, plain.line_buffering, plain.write_through)
    sys.stdout = output = Output(plain.detach(), *look)
    try:
        yield
    finally:
        try:
            output.flush()
        except BrokenPipeError:
            output.drop()
            raise SystemExit(1) from None
        if output.failure is not None:  # also where a library wrote to standard output and ignored the error
            raise output.failure


class Commands(LazyGroup):
    """The commands of `treetap`: those of core, then those of the wings that are installed."""

    ROWS = {
        "party": Row(
            "treetap.commands.cli",
            "Serve one party until SIGTERM. Prints one JSON line with its address when it is ready.",
            PARTY,
        ),
        "dealer": Row(
            "treetap.commands.cli",
            "Serve a dealer of shared sums until SIGTERM. It has no data, and is of an organisation that has none.",
            OPERATE,
        ),
        "health": Row(
            "treetap.commands.health",
            "Check that a server of a federation serves: for container engines, systemd and monitoring.",
            PARTY,
        ),
        "align": Row(
            "treetap.commands.jobs.cli",
            "Before any job: how many records the tables of some parties have in common, by private set intersection.",
            JOBS,
        ),
        "train": Row(
            "treetap.commands.jobs.cli",
            "Submit a training job to the coordinator and watch it. Ctrl-C stops the watching, not the job.",
            JOBS,
        ),
        "screen": Row(
            "treetap.commands.jobs.cli",
            "What feature parties' columns would add to the label holder's own score: one round of sums, and no model.",
            JOBS,
        ),
        "status": Row("treetap.commands.jobs.cli", "Show the status of one job or of all.", JOBS),
        "cancel": Row("treetap.commands.jobs.cli", "Stop a job and have every party delete its progress.", JOBS),
        "resume": Row(
            "treetap.commands.jobs.cli",
            "Resume an interrupted job: stored trees are kept, and the result is the same model.",
            JOBS,
        ),
        "predict": Row(
            "treetap.commands.jobs.cli",
            "Predict with a trained model. The label holder, or recipient, writes a file in its own state folder.",
            JOBS,
        ),
        "serve": Row(
            "treetap.commands.jobs.serve",
            "Serve a trained model: clients query the label holder, over gRPC or HTTP, about records by their ids.",
            JOBS,
        ),
        "send": Row(
            "treetap.commands.accounts",
            "Send predictions, or an audit's verdicts, to PostgreSQL, Flight SQL or an object store: all rows or none.",
            JOBS,
        ),
        "jobs": Row(
            "treetap.commands.approvals.cli",
            "Show the jobs that wait for this party's people, or were decided, and what the party would send.",
            PARTY,
        ),
        "approve": Row(
            "treetap.commands.approvals.cli",
            "Approve a job that waits for this party's people, once it has been shown; or, with --standing, jobs to "
            "come.",
            PARTY,
        ),
        "refuse": Row(
            "treetap.commands.approvals.cli",
            "Refuse a job that waits for this party's people, which ends it; with --from all of one coordinator that "
            "wait.",
            PARTY,
        ),
        "model": Row("treetap.commands.accounts", "Published models in a party's own state folder.", JOBS),
        "leakage": Row(
            "treetap.commands.accounts",
            "Show what others can read of this party's labels, columns or ids: also while a job trains.",
            PRIVACY,
        ),
        "labels": Row(
            "treetap.commands.accounts",
            "Show what a party's labels were used for: noisy ones drawn, ε left, measures released by clean ones.",
            PRIVACY,
        ),
        "ledger": Row(
            "treetap.commands.accounts",
            "Show what this party's data were charged for over all jobs, and what its limits leave.",
            PRIVACY,
        ),
        "transcript": Row(
            "treetap.commands.cli",
            "Count a party's messages and bytes by peer, step and disclosure class; verify its chain and signatures.",
            PRIVACY,
        ),
        "coordinator": Row(
            "treetap.commands.cli", "Serve the coordinator until SIGTERM. It runs jobs and holds no data.", OPERATE
        ),
        "prune": Row(
            "treetap.commands.jobs.cli",
            "Delete the coordinator's record of jobs that are over. Models, predictions and "
            "transcripts stay with the parties.",
            OPERATE,
        ),
        "protocol": Row(
            "treetap.commands.cli",
            "Show a protocol: the steps of each party, what may follow each, and the messages.",
            OPERATE,
        ),
    }


app = typer.Typer(
    name="treetap",
    cls=Commands,
    help="Vertical federated decision trees over real sockets, with an account of what each party learns.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


def party(
    config: Annotated[Path, typer.Option(help="The party's own configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve one party until SIGTERM. Prints one JSON line with its address when it is ready."""
    _serve(config, log_level, log_format, until_stdin_closes=until_stdin_closes)


def dealer(
    config: Annotated[Path, typer.Option(help="The dealer's own configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve a dealer of shared sums until SIGTERM. It has no data, and is of an organisation that has none."""
    _serve(config, log_level, log_format, until_stdin_closes=until_stdin_closes, deals=True)


def _serve(
    config: Path, log_level: LogLevel, log_format: LogFormat, *, until_stdin_closes: bool, deals: bool = False
) -> None:
    """Serve a party, or a dealer."""
    in_terminal = hold_hangup()  # first: it may come at any time
    logs.configure(log_level, log_format)  # before other imports: gRPC keeps the standard error that it finds
    from treetap.party.config import DealerConfig, PartyConfig
    from treetap.party.server.main import run

    kind = DealerConfig if deals else PartyConfig
    run(config, until_stdin_closes=until_stdin_closes, in_terminal=in_terminal, kind=kind)


def coordinator(
    config: Annotated[Path, typer.Option(help="The coordinator's configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve the coordinator until SIGTERM. It runs jobs and holds no data."""
    logs.configure(log_level, log_format)  # first: gRPC keeps the standard error that it finds
    import_numpy()
    from treetap.coordinator.server import run

    run(config, until_stdin_closes=until_stdin_closes)


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
        print_json(summary)
        return
    from treetap import terminal

    heads = ("kind", "peer", "step", "class", "messages", "bytes")
    sized = ({**row, "bytes": terminal.size(row["bytes"])} for row in summary["rows"])
    terminal.print_table(heads, ([row[head] for head in heads] for row in sized))
    terminal.out.print(
        f"{summary['records']} records, hash chain intact" + (", last record torn" if summary["torn"] else "")
    )
    for own in summary["own_rows"]:
        said = own["missing"] or f"rows of {own['records']} common records, {own['forgotten']} of them forgotten"
        terminal.out.print(said, markup=False, highlight=False, soft_wrap=True)
    terminal.out.print(summary["signed"]["says"], markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """The entry point: errors raised on purpose become one message and an exit status, never a traceback."""
    while_importing()
    logs.pin_libraries()  # before one is imported
    try:
        with guarded():
            in_plain_text(typer.main.get_command(app))()
    except TreetapError as error:
        message = str(error)
        if logs.in_json():
            logging.getLogger("treetap").critical("%s", message)
        else:
            print(f"treetap: {visible(message, keep=chr(10))}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, BadInput) else 1) from None
