"""Processes killed in the middle of training, stopped politely, jobs cancelled: what remains, and what comes of it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands.command import Outcome, treetap
from tests.system.federations import ended, settings, shards, states, write_operator_file
from tests.worlds import PARTIES, joined_model, spec, world
from treetap.coordinator.jobs import Jobs
from treetap.coordinator.runtime.journal import Journal
from treetap.errors import Interrupted
from treetap.lab.local_federation import LocalFederation
from treetap.models.store import TREES
from treetap.protocols import agreement
from treetap.protocols.key_options import LATTICE, SCHEMES
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Timeouts
from treetap.wire.rpc import GrpcDialer
from treetap.wire.tls import TlsFiles
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.xdist_group("kill"), pytest.mark.usefixtures("own_server")]

HERE = world(120, (2, 2, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=12, max_depth=3, max_bin=8, subsample=0.9)
LONG = BoostingParams(n_estimators=5000, max_depth=3, max_bin=8)


class ReachedIt(Exception):
    """The job has come as far as the test waited for."""


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """One federation that all tests of this file kill and mend, everything on record."""
    folder = tmp_path_factory.mktemp("kill")
    policy = {"people": {"record": "both"}, "keys": {"schemes": list(SCHEMES)}}
    with LocalFederation(folder, settings(folder, {"train": HERE}, **policy)) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(federation: LocalFederation) -> dict[str, bytes]:
    """The shards of the job when nothing happens to it."""
    _submit(federation, "undisturbed", PARAMS)
    assert ended(federation, "undisturbed").state == "finished"
    return shards(federation, HERE, "undisturbed")


def _submit(federation: LocalFederation, job: str, params: BoostingParams) -> None:
    federation.operator.submit(jobs_pb2.SubmitRequest(job=job, spec=spec(params)))


def _wait_for_tree(federation: LocalFederation, job: str, tree: int) -> None:
    def look(status: jobs_pb2.JobStatus) -> None:
        if status.phase == "train" and status.round >= tree:
            raise ReachedIt

    with pytest.raises(ReachedIt):
        federation.operator.watch(job, look)


def _resume(federation: LocalFederation, job: str) -> Outcome:
    """`treetap resume`, as a person would type it."""
    return treetap("resume", job, "--operator", write_operator_file(federation), "--json")


@pytest.mark.campaign(but=1)
@pytest.mark.second_tier
@pytest.mark.parametrize("victim", [*PARTIES, "coordinator"])
def test_killed_and_resumed(victim: str, federation: LocalFederation, undisturbed: dict[str, bytes]) -> None:
    """SIGKILL in the middle of training, start again, resume: the shards of an undisturbed run, byte for byte."""
    job = f"without-{victim}"
    _submit(federation, job, PARAMS)
    _wait_for_tree(federation, job, 2)
    federation.kill(victim)
    stored = (federation.state(PARTIES[0]) / "jobs" / job / TREES).read_bytes().count(b"\n")
    assert stored >= 1
    federation.restart(victim)
    status = ended(federation, job)
    assert status.state == "interrupted"
    assert f"treetap resume {job}" in status.error
    resumed = _resume(federation, job)
    assert resumed.status == 0
    assert re.fullmatch(rf"{job}: running\n({job}: trained \d+ of \d+\n)*", resumed.err)
    assert federation.operator.status(job)[0].attempt == 2
    assert shards(federation, HERE, job) == undisturbed
    assert joined_model(states(federation, HERE), job) == joined_model(states(federation, HERE), "undisturbed")
    for party in PARTIES:
        assert list((federation.state(party) / "jobs").iterdir()) == []
        reader = TranscriptReader(federation.state(party) / "transcripts" / job, federation.folder / "certs" / "ca.crt")
        records = list(reader)  # verifies their numbers
        assert (reader.anchor.state, reader.anchor.verified) == ("signed", True)
        assert {record.attempt for record in records} == {1, 2}
        grown = {record.round for record in records if record.attempt == 2 and record.step == "store_tree"}
        assert grown
        # Trees that were stored are not grown again; a label holder may be killed between a tree and its scores.
        assert min(grown) >= stored - (victim == PARTIES[0])
        assert grown == set(range(min(grown), PARAMS.n_estimators))


CRASHES = """
import sys

from treetap.native.histograms import Histograms

whole = Histograms.hide

def hide(self, *args):
    self._call("unpack", None, 1, None)  # reads at address 0
    return whole(self, *args)

if "feature-b" in str(sys.orig_argv):
    Histograms.hide = hide
"""


@pytest.mark.second_tier
def test_a_kernel_that_crashes_is_named(federation: LocalFederation, tmp_path: Path) -> None:
    """Its party ends with the signal, its log says by which kernel; started again, the job is resumed to its end."""
    victim, params = "feature-b", BoostingParams(n_estimators=2, max_depth=2, max_bin=8)
    (tmp_path / "sitecustomize.py").write_text(CRASHES)
    federation.kill(victim)
    federation.restart(victim)  # its file names its port from now on
    federation.kill(victim)
    words = [sys.executable, "-m", "treetap", "party", "--config", str(federation.folder / victim / "config.toml")]
    path = os.pathsep.join((str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])))
    with (federation.folder / victim / "log.txt").open("ab") as log:
        party = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=log)
    assert party.stdout is not None
    assert party.stdout.readline()  # it serves
    federation.operator.submit(jobs_pb2.SubmitRequest(job="crashed", spec=spec(params, scheme=LATTICE)))
    assert party.wait(30) == -signal.SIGSEGV
    said = (federation.folder / victim / "log.txt").read_text()
    assert "Fatal Python error: Segmentation fault" in said
    assert re.search(r'histogram_sums\.py", line \d+ in hide\n.*engines\.py", line \d+ in _run\n', said)
    assert ended(federation, "crashed").state == "interrupted"
    federation.restart(victim)
    assert _resume(federation, "crashed").status == 0
    federation.operator.submit(jobs_pb2.SubmitRequest(job="whole", spec=spec(params, scheme=LATTICE)))
    assert ended(federation, "whole").state == "finished"
    assert shards(federation, HERE, "crashed") == shards(federation, HERE, "whole")


@pytest.mark.second_tier
def test_cancelled(federation: LocalFederation) -> None:
    """A cancelled job ends at once, leaves neither progress nor key nor model anywhere, and cannot be resumed."""
    _submit(federation, "cancelled", LONG)
    _wait_for_tree(federation, "cancelled", 2)
    holder = federation.state(PARTIES[0]) / "jobs" / "cancelled"
    assert {"job.json", TREES, "scores.npz"} <= {path.name for path in holder.iterdir()}
    started = time.monotonic()
    assert federation.operator.cancel("cancelled").state == "cancelled"
    assert time.monotonic() - started < 10
    for party in PARTIES:
        state = federation.state(party)
        left = {path for path in state.rglob("*cancelled*") if path.parent.name != "transcripts"}
        assert left == set()
        assert list((state / "jobs").iterdir()) == []
    status = ended(federation, "cancelled")
    assert (status.state, status.error) == ("cancelled", "cancelled by an operator")
    assert "there is nothing to resume" in _resume(federation, "cancelled").err


@pytest.mark.campaign(but=1)
@pytest.mark.second_tier
@pytest.mark.parametrize("name", [*PARTIES, "coordinator"])
def test_sigterm_in_the_middle_of_training(name: str, federation: LocalFederation) -> None:
    """Told to stop, a busy process ends with status 0 within seconds."""
    job = f"stop-{name}"
    _submit(federation, job, LONG)
    _wait_for_tree(federation, job, 1)
    process = federation._processes[name]
    os.kill(process.pid, signal.SIGTERM)
    assert process.ended(10)
    assert process.exitcode == 0
    federation.restart(name)
    assert ended(federation, job).state == "interrupted"
    federation.operator.cancel(job)


@pytest.mark.second_tier
def test_a_suspended_party_is_named_within_the_silence(federation: LocalFederation, tmp_path: Path) -> None:
    """SIGSTOP: a process that takes connections and does nothing else ends a job by its name; awake, it works again."""
    silence_s, victim = 2.0, "feature-b"
    certs = federation.folder / "certs"
    tls = TlsFiles(certs / "ca.crt", certs / "coordinator.crt", certs / "coordinator.key")
    parties = {name: federation.addresses[name] for name in PARTIES}
    journal = Journal(tmp_path / "journal")

    async def attended(silence_s: float, begin: Callable[[Jobs], object]) -> jobs_pb2.JobStatus:
        dialer = GrpcDialer(tls, Timeouts(silence_s))
        jobs = Jobs("coordinator", parties, dialer, journal, silence_s)
        begin(jobs)
        ended = await jobs.wait("suspended")
        await dialer.close()
        return ended

    draft = agreement.named(
        jobs_pb2.SubmitRequest(job="suspended", spec=spec(BoostingParams(n_estimators=1, max_depth=1)))
    )
    os.kill(federation.pid(victim), signal.SIGSTOP)
    try:
        started = time.monotonic()
        asleep = asyncio.run(attended(silence_s, lambda jobs: jobs.submit(draft)))
        took = time.monotonic() - started
    finally:
        os.kill(federation.pid(victim), signal.SIGCONT)
    # whose work takes its time on a busy machine
    awake = asyncio.run(attended(60.0, lambda jobs: jobs.resume("suspended")))
    assert asleep.state == "interrupted"
    assert f"{victim} has been silent for 2 s in prepare" in asleep.error
    assert took < silence_s + 5
    assert awake.state == "finished", awake.error


@pytest.mark.second_tier
def test_the_coordinators_death_is_told(federation: LocalFederation) -> None:
    """Whoever watches hears that the coordinator is gone and what to type when it is back."""
    _submit(federation, "gone", LONG)
    _wait_for_tree(federation, "gone", 1)

    def kill(_: jobs_pb2.JobStatus) -> None:
        if not federation._processes["coordinator"].ended():
            federation.kill("coordinator")

    with pytest.raises(Interrupted, match=r"connection refused.*treetap resume gone"):
        federation.operator.watch("gone", kill)
    federation.restart("coordinator")
    assert federation.operator.cancel("gone").state == "cancelled"


@pytest.mark.second_tier
def test_no_process_met_a_defect(federation: LocalFederation) -> None:
    """After all this no log has a traceback, a lost exception or an open file that nobody closed."""
    for name in [*PARTIES, "coordinator"]:
        log = (federation.folder / name / "log.txt").read_text()
        assert "job=" in log
        for sign in ("Traceback", "never retrieved", "ResourceWarning", "defect"):
            at = log.find(sign)
            assert at < 0, f"{name}, in {federation.folder / name / 'log.txt'}:\n{log[max(0, at - 3000) : at + 5000]}"
