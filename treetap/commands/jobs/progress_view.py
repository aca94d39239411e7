"""Statuses and progress of jobs in a terminal, in a notebook, and as JSON."""

from __future__ import annotations

import html
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from treetap import terminal
from treetap.errors import visible
from treetap.models.store import CLEAN_METRICS
from treetap.pages.printing import print_section, print_words
from treetap.pages.section import Section, Table
from treetap.protocols.registry import TRAINING, TrainingProtocol, training
from treetap.terminal import plain, size, text
from treetap.wire import metric_history
from treetap.wire.v2 import jobs_pb2, serving_pb2, setup_pb2

#: Below metrics by noisy labels.
_NOISY = f"these are by noisy labels; by clean ones: {CLEAN_METRICS} at the label holder"
#: Heads of a table of jobs.
HEADS = ("job", "kind", "state", "phase", "progress", "seconds", "sent")
#: Seconds between two updates of a notebook's line: each is a message to the page.
PAUSE_S = 0.2
#: A job that sends more bytes, or has a party that holds more MiB, says so before its first tree.
LARGE_BYTES, LARGE_MIB = 10**9, 2048
#: Given the share that is done, None where it is not known, and what is going on.
Show = Callable[[float | None, str], None]


@contextmanager
def _line(title: str) -> Iterator[Callable[[int, int, str, str], None]]:
    """A line on a terminal's standard error, or in a notebook: takes parts done and planned, the place, and the rest.

    Title, bar, place and seconds are never cut; of the rest there is what fits.
    """
    if terminal.err.is_jupyter:
        with _notebook_line(visible(title)) as show:
            yield lambda done, total, where, what: show(done / total if total else None, f"{where} {what}".lstrip())
        return
    columns = (
        TextColumn("{task.description}", style="bold", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[where]}", markup=False, table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn(
            "{task.fields[what]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        ),
    )
    console = terminal.err
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal, expand=True) as bars:
        bar = bars.add_task(visible(title), total=None, where="", what="")
        yield lambda done, total, where, what: bars.update(
            bar, total=total or None, completed=done, where=where, what=what
        )


@contextmanager
def live(title: str) -> Iterator[Callable[[jobs_pb2.JobStatus], None]]:
    """A progress line of a job: what is done, of how much; or its phase."""
    with _line(title) as show:
        yield lambda status: show(*_described(status))


def saying_changes(job: str, update: Callable[[jobs_pb2.JobStatus], None]) -> Callable[[jobs_pb2.JobStatus], None]:
    """The same, with a line on standard error where a job's state changes, or what it waits for.

    Without a terminal, which has the line of progress, also with each tenth of a training.
    """
    said, tenth, large = "", 0, list[str]()

    def say(status: jobs_pb2.JobStatus) -> None:
        nonlocal said, tenth
        now, done = (status.error if status.state == "waiting" else "") or status.state, status.stored_trees
        lines = [] if large else much(status.planned_bytes, status.planned_mib)
        large.extend(lines)
        if now not in (said, "finished"):  # of which a table is printed
            lines, said = [*lines, now], now
        part = 10 * done // (status.rounds or 1) if status.kind == "train" and now == "running" else 0
        if part > tenth and not terminal.err.is_terminal:
            lines, tenth = [*lines, _described(status)[2]], part
        print_words(terminal.err, *(visible(f"{job}: {line}") for line in lines))
        update(status)

    return say


def _described(status: jobs_pb2.JobStatus) -> tuple[int, int, str, str]:
    """Progress done and planned, that in words, and what the job waits for."""
    if status.state == "waiting":
        return 0, 0, "waiting", visible(status.error)
    total, done, does = status.rounds, status.stored_trees, "trained"
    if status.phase == "predict":
        total, done, does = status.records, status.scored, "scored"
    if status.kind == "align" and status.phase == "align":
        total, done, does = status.records, status.scored, "compared"
    return done, total, f"{does} {done:,} of {total:,}" if total else visible(status.phase), ""


@contextmanager
def serving() -> Iterator[Callable[[jobs_pb2.JobStatus], None]]:
    """A line on standard error about a served model. It has no bar, since serving has no end."""
    columns = (
        TextColumn("{task.description}", style="bold", markup=False),
        TextColumn("{task.fields[what]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=terminal.err, transient=True, disable=not terminal.err.is_terminal) as lines:
        line = lines.add_task("serving", total=None, what="")

        def update(status: jobs_pb2.JobStatus) -> None:
            going = ", ".join(_served(status.serving)) if status.phase == "serve" else status.phase
            missing = _awaited(status)
            what = f"waits for {', '.join(missing)}" if missing else going
            lines.update(line, what=visible(what), refresh=True)

        yield update


@contextmanager
def steps(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress line for work in a known number of parts, done, total, next: as `live` shows it."""
    with _line(title) as show:
        counted = "" if terminal.err.is_jupyter else "{} of {}"
        yield lambda done, total, what: show(done, total, counted.format(done, total), visible(what))


def status_dict(status: jobs_pb2.JobStatus) -> dict[str, Any]:
    """A status as JSON."""
    shown = plain(status)
    del shown["more"]  # of a message, not of the job
    shown["metrics"] = {metric.name: metric.value for metric in status.metrics}
    shown["history"] = metric_history.rows(status.history)
    shown["phases"] = {row.name: row.amount for row in status.phases}
    shown["arithmetic"] = backends(status)
    if status.kind != "align":
        del shown["common"], shown["rows"]
    elif not status.HasField("common"):
        shown["common"] = None
    if not status.cells:
        del shown["cells"]
    if not status.HasField("serving"):
        del shown["serving"]
    return shown


def backends(status: jobs_pb2.JobStatus) -> dict[str, str]:
    """Party → backend of its arithmetic, as far as they are known."""
    return {row.party: row.backend for row in sorted(status.arithmetic, key=lambda row: row.party)}


def backends_line(names: dict[str, str]) -> str:
    """The same as a line; empty where none is known."""
    return f"arithmetic: {', '.join(f'{party} {name}' for party, name in names.items())}" if names else ""


def counted(unknown_cells: int, empty_columns: int) -> str:
    """The cells of a table that a prediction took for unknown or missing, in words."""
    parts = [
        f"{_count(unknown_cells, 'cell')} of no category of the training" if unknown_cells else "",
        f"{_count(empty_columns, 'column')} without a value" if empty_columns else "",
    ]
    return " and ".join(filter(None, parts))


def much(sent: int, mib: int) -> list[str]:
    """Sentences about a job that will send or hold much; none of any other."""
    said = [f"an attempt will send at most {size(sent)} of ciphertexts", f"a party will hold some {mib / 1024:.1f} GiB"]
    return said if sent > LARGE_BYTES or mib > LARGE_MIB else []


def common_records(status: jobs_pb2.JobStatus) -> str:
    """The answer of a preview in words; empty of another job, and before there is one."""
    if not status.HasField("common"):
        return ""
    if fewer := status.common.fewer_than:
        return f"fewer than {fewer} records in common: below that number a party's min_common_records keeps the count"
    return f"{_count(status.common.records, 'record')} in common"


def rounds(status: jobs_pb2.JobStatus) -> dict[Literal["planned", "grown", "used"], int]:
    """The trees or epochs of a training's job, of the training, and of predictions."""
    return {"planned": status.rounds, "grown": status.stored_trees, "used": status.used_trees}


def serves(status: jobs_pb2.JobStatus) -> bool:
    """True if clients are answered: the label holder has waited for requests once."""
    return status.phase == "serve" and status.HasField("serving")


def trees_used(planned: int, grown: int, used: int) -> str:
    """A line about a model that early stopping ended at its best round; empty of one that uses all its trees."""
    if not 0 < used < grown:
        return ""
    return f"{'stopped early' if grown < planned else 'best round'}: {used} of {grown} trees used"


def epochs_used(planned: int, grown: int, used: int) -> str:
    """A line about a network of which an epoch before the last is used; empty of one that uses the last planned."""
    if not 0 < used < planned:
        return ""
    return f"{'stopped early' if grown < planned else 'best epoch'}: epoch {used} of {grown} is used"


def _protocol(status: jobs_pb2.JobStatus) -> TrainingProtocol:
    """The protocol of a training; the first one of another job."""
    return training(status.protocol if status.protocol in TRAINING else next(iter(TRAINING)))


def _served(figures: serving_pb2.ServingFigures) -> list[str]:
    """Requests in words, within what time nearly all had their answers, and without whom."""
    without = [f"without {', '.join(figures.away)}"] if figures.away else []
    if not figures.requests:
        return ["no request yet", *without]
    refused = [f"{figures.refused:,} refused"] if figures.refused else []
    return [_count(figures.requests, "request"), *refused, f"99 % within {figures.p99_s * 1000:.0f} ms", *without]


def _awaited(status: jobs_pb2.JobStatus) -> list[str]:
    """Parties that a served model waits for: those that are away, unless it goes on without them."""
    gone = status.serving.away if status.phase == "serve" else ()
    return [party for party in status.away if party not in gone]


def served_in_all(status: jobs_pb2.JobStatus) -> list[str]:
    """Counts, times and bytes of a job that served, each in a line."""
    scored = f"{_count(status.serving.records, 'record')} scored"
    return [*_served(status.serving), scored, f"{size(status.bytes)} sent"]


def _noised(party: str, said: setup_pb2.NoisedSums) -> str:
    privacy = f"epsilon {said.epsilon:g}, delta {said.delta:g} in an attempt of at most {_count(said.trees, 'tree')}"
    return f"sums of {party} have noise (column_privacy): {privacy}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def print_statuses(statuses: list[jobs_pb2.JobStatus], *, errors: bool = True) -> None:
    """Jobs, a row each, and below them a line for each further value: a measure, the predictions' path, the error.

    Only the terminal wraps those lines, so that a path can be copied whole.
    """
    rows = list[list[str]]()
    for status in statuses:
        progress = f"{status.stored_trees} of {status.rounds}" if status.kind == "train" and status.rounds else ""
        if status.records and status.kind not in ("align", "train"):  # of a prediction, not the blocks of its attempt
            progress = f"{status.scored} of {status.records}"
        if status.HasField("serving"):
            progress = ", ".join(_served(status.serving))
        cells = [status.kind, status.state, status.phase, progress, f"{status.seconds:.1f}", size(status.bytes)]
        rows.append([status.job, *cells])
    print_section(Section("", [Table(HEADS, rows, "Jobs")]), terminal.out)
    for status in statuses:
        metrics = [f"{row.name} {row.value:.4f}" for row in status.metrics]
        metrics += [_NOISY] if any(row.noisy for row in status.metrics) else []
        without = f"away: {', '.join(status.away)}; predicted without (column guessed)" if status.away else ""
        if status.away and status.kind == "serve":
            missing, served = _awaited(status), f"answers without {', '.join(status.away)}"
            without = f"waits for {', '.join(missing)}" if missing else f"{served}, which is asked again"
        withheld = f"names withheld by {', '.join(status.withheld)}" if status.withheld else ""
        unlike = "; ".join(f"{row.party}: {counted(row.unknown_cells, row.empty_columns)}" for row in status.cells)
        files = (status.predictions, status.explanations, status.attributions, status.evaluation)
        words = trees_used if _protocol(status).grows_trees else epochs_used
        used = words(**rounds(status))
        own = [f"{row.party}: own rows in {row.path}" for row in status.rows]
        noised = [_noised(row.party, said) for row in status.accounts for said in row.account.noised_sums]
        for line in (
            common_records(status),
            *own,
            *metrics,
            used,
            *noised,
            *files,
            unlike,
            withheld,
            without,
            f"sends at most {size(status.planned_bytes)} of ciphertexts" if status.planned_bytes else "",
            status.error if errors else "",
        ):
            if line:
                terminal.out.print(text(f"{status.job}: {line}"), soft_wrap=True)


@contextmanager
def _notebook_line(title: str) -> Iterator[Show]:
    """A line with title, bar, seconds and what is going on; empty at the end, so that no bar stays in the file."""
    shown: Any = importlib.import_module("IPython.display")  # of notebooks alone
    began = time.monotonic()
    shown_at = 0.0
    handle: Any = shown.display(shown.HTML(_as_html(title, None, 0.0, "")), display_id=True)

    def show(share: float | None, what: str) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at >= PAUSE_S:
            shown_at = now
            handle.update(shown.HTML(_as_html(title, share, now - began, what)))

    try:
        yield show
    finally:
        handle.update(shown.HTML(""))


def _as_html(title: str, share: float | None, seconds: float, what: str) -> str:
    value = "" if share is None else f' value="{share:.3f}"'
    return f"<b>{html.escape(title)}</b> <progress{value}></progress> {seconds:.0f} s {html.escape(what)}"
