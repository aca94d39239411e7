"""Checks that must hold after every schedule, whatever broke."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq

from tests.campaign import defended
from tests.campaign.stages import Stage
from tests.campaign.workers import FaultyEngine
from tests.pivodl.federations import assert_central_model, centralised_with, released
from tests.simulator import Federation
from tests.splitnn.small_job import assert_network
from tests.worlds import PARTIES, assert_oracles_model, lattice_tolerance
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import jobs_pb2

#: Files that a party may have below its state when no job is unfinished.
ALLOWED = re.compile(
    r"models/[a-z0-9-]+/((trees|leakage|repaired|history)\.jsonl"
    r"|(job|manifest|names|clean_metrics)\.json|(weights|continuation)\.npz)"
    r"|ledger\.jsonl|noisy_labels/[0-9]+\.npz"
    r"|transcripts/[a-z0-9-]+/([0-9]+\.tap|[0-9a-f]{32}\.own)"
    r"|predictions/[a-z0-9-]+((\.attributions)?\.parquet|\.evaluation\.json)"
    r"|attempts\.json"
)
_DEFECT = re.compile(r"defect|Traceback \(most recent|Error\('|object at 0x", re.IGNORECASE)


class Findings(list[str]):
    """Checks that failed, each as a sentence."""

    def expect(self, holds: bool, otherwise: str) -> None:
        """Add a finding where something does not hold."""
        if not holds:
            self.append(otherwise)


class Logged(logging.Handler):
    """Everything that processes logged; a traceback is a finding."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        text = record.getMessage()
        self.lines.append(text)
        if record.exc_info or record.name == "asyncio" or _DEFECT.search(text):
            error = record.exc_info[1] if record.exc_info else None
            self.faults.append(f"in the log of {record.name}: {' '.join(text.splitlines()[:3])[:400]} {error!r}")


@contextmanager
def logged() -> Iterator[Logged]:
    """Within the block all log lines are kept, and none is shown."""
    handler, root = Logged(), logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    for library in ("asyncio", "grpc"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        with patch.multiple(logging, _srcfile=None, logThreads=False, logProcesses=False, logMultiprocessing=False):
            yield handler  # where a line comes from is not asked, which takes most of a line's time
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def named(status: jobs_pb2.JobStatus, found: Findings) -> None:
    """A job that stopped says at whom or what, and how to go on."""
    if status.state in ("finished", "cancelled"):
        return
    found.expect(status.state in ("interrupted", "failed"), f"the job is {status.state!r} after its end")
    found.expect(bool(status.error), f"{status.state} without a word")
    who = (*PARTIES, "coordinator", "second", "dealer")
    found.expect(any(name in status.error for name in who), f"who is to blame is not said: {status.error!r}")
    found.expect(not _DEFECT.search(status.error), f"a defect: {status.error!r}")
    if status.state == "interrupted" and status.kind != "serve":  # which goes on by itself
        found.expect("treetap resume" in status.error, f"how to go on is not said: {status.error!r}")


def model(federation: Federation, stage: Stage, job: str, found: Findings) -> None:
    """The parties' shards are the oracle's model; with noise the centralised one of the same noise; a
    network's weights are those of one graph.

    Of a model of classes, the label holder's account of what its trees showed, and its repairs, are right too.
    """
    if stage.of_columns.column_privacy is not None:  # what it must be follows from draws: `NoisedSums.found`
        return
    try:
        if stage.name == "splitnn":
            assert_network(federation.states, job)
            return
        if stage.defences.label_dp is not None:
            defended.assert_noisy_model(federation.states, stage, job)
            return
        if isinstance(stage.params, PivodlParams) and stage.params.epsilon is not None:
            noise = released(federation.states, job)
            assert_central_model(federation.states, centralised_with(noise, stage.here, stage.params), job)
        else:
            assert_oracles_model(federation.states, stage.model, job)
        defended.assert_account(federation.states, stage, job)
    except (AssertionError, OSError, KeyError, ValueError) as failure:
        found.append(f"the model of {job} is not the oracle's: {type(failure).__name__} {failure}"[:400])


def noise(heard: Mapping[tuple[Any, ...], set[bytes]], found: Findings) -> None:
    """No party has been sent two values for one leaf's weight, in whichever attempts."""
    for (job, tree, leaf, sender, to), values in heard.items():
        found.expect(len(values) == 1, f"{sender} sent {to} {len(values)} weights of leaf {leaf}, tree {tree} of {job}")


def scores(stage: Stage, path: str, prediction: dict[str, object], found: Findings) -> None:
    """A file of predictions has the oracle's scores: exact ones, or those without parties that it marks as guessed."""
    table = pq.read_table(path)
    ids = [f"r{16 + i:05d}" for i in range(len(stage.here.new[0]))]
    found.expect(table.column("id").to_pylist() == ids, "the predicted ids are others")
    names = [name for name in table.column_names if name.startswith("score")]
    given = np.column_stack([table.column(name).to_numpy() for name in names])
    exact = stage.scores
    guessed = np.zeros(len(given))
    if "guessed" in table.column_names:
        guessed = np.array(table.column("guessed").to_pylist())
    within = float(lattice_tolerance(stage.model)[0]) if prediction.get("protocol") == "eini-lattice" else 1e-9
    for k, score in enumerate(given):
        right = bool((abs(score - exact[k]) <= within).all())
        if guessed[k]:
            told = prediction.get("protocol") == "interactive"  # the others tell what is to be expected by the covers
            right = any(
                (abs(score - values[k]) <= within).all() and (not told or abs(shares[k] - guessed[k]) <= 1e-9)
                for values, shares in stage.scores_without
            )
        found.expect(right, f"record {k} has score {score}, the oracle {exact[k]}, guessed {guessed[k]}")


def attributions(path: str, expected: str, found: Findings) -> None:
    """A file of attributions is the one that a faultless prediction wrote."""
    mine, theirs = pq.read_table(path), pq.read_table(expected)
    found.expect(mine.column_names == theirs.column_names, "attributions have other columns")
    for name in theirs.column_names:
        a, b = mine.column(name).to_pylist(), theirs.column(name).to_pylist()
        same = all(x == y if isinstance(y, str) else abs(x - y) < 1e-6 for x, y in zip(a, b, strict=True))
        found.expect(same, f"attributions differ in column {name}")


def files(federation: Federation, found: Findings) -> None:
    """No draft, no progress, nothing that is not on the list."""
    for party, state in federation.states.items():
        for path in state.rglob("*"):
            name = path.relative_to(state).as_posix()
            if path.is_file() and not ALLOWED.fullmatch(name):
                found.append(f"{party} has kept {name}")
        left = sorted(path.name for path in (state / "jobs").iterdir()) if (state / "jobs").is_dir() else []
        found.expect(not left, f"{party} has kept folders of jobs: {left}")


def keys(folders: Iterable[Path], forms: list[bytes], found: Findings) -> None:
    """No file below these folders has a part of a secret key in it."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                if any(form in content for form in forms):
                    found.append(f"{path.relative_to(folder.parent)} holds a secret key")


def transcripts(federation: Federation, found: Findings) -> None:
    """Every transcript is one unbroken chain; a folder without a file, of a writer that could not begin, is none."""
    for party, state in federation.states.items():
        for folder in sorted({path.parent for path in (state / "transcripts").glob("*/*")}):
            try:
                numbers = [record.sequence for record in TranscriptReader(folder)]
                found.expect(numbers == list(range(len(numbers))), f"{party}: {folder.name}: records are missing")
            except Exception as failure:  # noqa: BLE001 - any is a finding
                found.append(f"{party}: the transcript of {folder.name}: {type(failure).__name__}: {failure}")


def memory(federation: Federation, engines: dict[str, FaultyEngine], found: Findings) -> None:
    """No party remembers anything of a job that is over."""
    for party in federation.configs:
        node = federation.node(party)
        found.expect(not node._sessions, f"{party} has kept sessions: {sorted(node._sessions)}")
        recorders = federation.process(party).recorders
        found.expect(recorders is not None and not recorders._writers, f"{party} has kept a transcript open")
        if party in engines:
            found.expect(not engines[party].remembers, f"{party}'s worker remembers {engines[party].remembers}")


def errors(found: Findings) -> None:
    """No task has failed without anybody asking for its error.

    The log tells of it when the task is collected as garbage, which may be in another schedule.
    """
    for task in list(asyncio.tasks._all_tasks):
        if task.get_loop() is asyncio.get_running_loop() and task.done() and task._log_traceback:
            found.append(f"no task retrieved the error of {task.get_coro().__qualname__}: {task.exception()!r}")


def descriptors() -> int:
    """The number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
