"""A job's life at the coordinator: submitted, watched, cancelled, listed after a restart."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.replay import HERE, JOB, ORACLE, ask, with_word
from tests.simulator import COORDINATOR, Faults, Federation, Message, failed, run
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import ConfigError, Conflict, DataError, Interrupted, UnknownJob
from treetap.models import line_file
from treetap.models.store import TREES
from treetap.wire.frame import name_of
from treetap.wire.v2 import jobs_pb2


async def _at(federation: Federation, word: str, tree_messages: int = 1) -> None:
    """Wait until a message of this kind has been sent that many times."""
    reached = asyncio.Event()
    seen = 0

    def hook(message: Message) -> None:
        nonlocal seen
        seen += message.word == word and not message.served
        if seen >= tree_messages:
            reached.set()

    federation.hook = hook
    await reached.wait()
    federation.hook = None


async def _begun(folder: Path, word: str, times: int = 1) -> Federation:
    """A federation whose job has come to a message of this kind."""
    federation = Federation(folder, HERE.tables)
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    await _at(federation, word, times)
    return federation


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("word", ["prepare", "gradients", "candidate_sums", "store_tree"])
async def test_a_cancelled_job_is_gone_everywhere(word: str, tmp_path: Path) -> None:
    """Wherever it is cancelled: no progress, key or session stays."""
    federation = await _begun(tmp_path, word, 2)
    status = await federation.jobs.cancel("job")
    assert (status.state, status.error) == ("cancelled", "cancelled by an operator")
    for party, state in federation.states.items():
        assert list((state / "jobs").iterdir()) == []
        assert list(state.rglob("secret*")) == []
        with pytest.raises(UnknownJob):
            await ask(federation, party, with_word("account"))
    with pytest.raises(Conflict, match="job job is cancelled: there is nothing to resume"):
        federation.jobs.resume("job")
    federation.restart(COORDINATOR)
    assert [each.state for each in federation.jobs.status("")] == ["cancelled"]


async def test_a_job_that_publishes_is_not_cancelled(tmp_path: Path) -> None:
    """Its model is there in a moment; if publishing breaks off instead, cancelling takes what is not published."""
    federation = await _begun(tmp_path, "publish", 2)
    with pytest.raises(Conflict, match="job job is publishing its model"):
        await federation.jobs.cancel("job")
    federation.kill(PARTIES[0])
    assert (await federation.jobs.wait("job")).state == "interrupted"
    federation.start(PARTIES[0])
    published = {party for party, state in federation.states.items() if (state / "models" / "job").is_dir()}
    assert published
    assert PARTIES[0] not in published
    assert (await federation.jobs.cancel("job")).state == "cancelled"
    for party, state in federation.states.items():
        assert [path.name for path in (state / "models").iterdir()] == (["job"] if party in published else [])
        assert list((state / "jobs").iterdir()) == []


async def test_a_job_that_is_being_cancelled_is_not_resumed(tmp_path: Path) -> None:
    """Between the order to cancel and its end nobody can start the job again."""
    federation = await _begun(tmp_path, "store_tree", 2)
    cancelling = asyncio.ensure_future(federation.jobs.cancel("job"))
    for _ in range(200):
        with pytest.raises(Conflict, match="there is nothing to resume"):
            federation.jobs.resume("job")
        await asyncio.sleep(0)
    assert (await cancelling).state == "cancelled"


async def test_bad_input_on_the_way_back_costs_no_tree(tmp_path: Path) -> None:
    """A resume that meets a missing table says so and keeps what is stored; with the table back, the job goes on."""
    federation = await _begun(tmp_path, "begin_tree", 2)
    federation.kill(PARTIES[1])
    assert (await federation.jobs.wait("job")).state == "interrupted"
    federation.start(PARTIES[1])
    table = federation.folder / PARTIES[1] / "train.parquet"
    table.rename(tmp_path / "away.parquet")
    status = await federation.resume()
    assert (status.state, status.bad_input) == ("interrupted", True)
    assert "there is no such file; mend it, then: treetap resume job" in status.error
    assert (federation.state(PARTIES[0]) / "jobs" / "job" / TREES).read_bytes().count(b"\n") == 1
    columns, tables = HERE.tables[PARTIES[1]]
    pq.write_table(tables["train"].set_column(1, columns[0], pa.array([1.5] * len(HERE.y))), table)
    status = await federation.resume()
    assert (status.state, status.bad_input) == ("interrupted", True)
    assert "is not the table on which the stored trees of job job were grown" in status.error
    (tmp_path / "away.parquet").rename(table)
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)
    begun = [r.round for kind, _, r in federation.conducted if kind == "begin" and name_of(r) == "begin_tree"]
    assert begun.count(0) == 1


async def test_a_name_that_is_used_twice_mixes_nothing(tmp_path: Path) -> None:
    """After the coordinator has lost its journal, an old job's name is refused and the old model stays as it is."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(JOB)).state == "finished"
    federation.kill(COORDINATOR)
    shutil.rmtree(tmp_path / COORDINATOR)
    federation.start(COORDINATOR)
    failed(await federation.train(JOB), "there are files of another job of this name", bad_input=True)
    assert_oracles_model(federation.states, ORACLE)
    assert (await federation.train(JOB, "other")).state == "finished"


async def test_a_party_that_left_the_configuration_does_not_keep_its_jobs_alive(tmp_path: Path) -> None:
    """A job of a party that the coordinator does not know any more can be cancelled."""
    federation = await _begun(tmp_path, "store_tree", 2)
    del federation.jobs._parties.addresses[PARTIES[2]]
    assert (await federation.jobs.cancel("job")).state == "cancelled"
    assert list((federation.state(PARTIES[0]) / "jobs").iterdir()) == []


async def test_a_journal_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses a job with a message and no trace; a job that ends then can be resumed to its end."""
    federation = Federation(tmp_path, HERE.tables)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("treetap.models.durable.os.fsync", full)
        with pytest.raises(
            Interrupted, match=r"journal/job\.jsonl: cannot be written by the coordinator: No space left on device"
        ):
            await federation.train(JOB)
    assert list(federation.jobs.status("")) == []
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    await _at(federation, "account")
    with monkeypatch.context() as patch:
        patch.setattr(line_file, "append", full)
        await federation.jobs.wait("job")
    federation.restart(COORDINATOR)
    assert [status.state for status in federation.jobs.status("job")] == ["interrupted"]
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)


@pytest.mark.parametrize("name", ["../evil", "", "a b", "Ä"])
async def test_names_that_are_none_reach_no_file(name: str, tmp_path: Path) -> None:
    """A file outside the journal can be neither read nor written by asking for a job."""
    federation = Federation(tmp_path, HERE.tables)
    (tmp_path / COORDINATOR / "evil.jsonl").write_text('{"event":"submitted","kind":"train","spec":"","word":""}\n')
    before = (tmp_path / COORDINATOR / "evil.jsonl").read_bytes()
    with pytest.raises(UnknownJob):
        federation.jobs.resume(name)
    with pytest.raises(UnknownJob):
        await federation.jobs.cancel(name)
    if name:  # no name: all jobs
        with pytest.raises(UnknownJob):
            federation.jobs.status(name)
    assert (tmp_path / COORDINATOR / "evil.jsonl").read_bytes() == before


async def test_a_damaged_journal_hides_its_own_job_only(tmp_path: Path) -> None:
    """It is listed as damaged, with its file and what to do; the others are as they were, also in the metrics."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(JOB)).state == "finished"
    journal = tmp_path / COORDINATOR / "journal"
    (journal / "torn.jsonl").write_bytes(b'{"event":"subm')
    (journal / "empty.jsonl").write_bytes(b"")
    (journal / "copied.jsonl").write_bytes((journal / "job.jsonl").read_bytes())
    (journal / "draft.jsonl.part").write_bytes(b"")
    names = ["copied", "empty", "torn"]
    for _ in range(2):
        found = {status.job: status for status in federation.jobs.status("")}
        assert sorted(found) == sorted([*names, "job"])
        assert found["job"].state == "finished"
        for name in names:
            (alone,) = federation.jobs.status(name)
            assert alone == found[name]
            assert (alone.state, alone.bad_input) == ("damaged", True)
            assert alone.error.startswith(f"{journal / name}.jsonl: ")
            assert alone.error.endswith(f"bring a back-up of the file back; or give the job up: treetap prune {name}")
            with pytest.raises(DataError, match=rf"{name}\.jsonl: .*bring a back-up"):
                federation.jobs.resume(name)
            with pytest.raises(DataError, match=rf"{name}\.jsonl: .*bring a back-up"):
                await federation.jobs.cancel(name)
            with pytest.raises(ConfigError, match=f"there is a job '{name}' already"):
                federation.jobs.submit(jobs_pb2.SubmitRequest(job=name, spec=JOB))
        federation.restart(COORDINATOR)
        federation.jobs.serve_on()
        federation.jobs.count()
        value = federation.jobs._metrics.registry.get_sample_value
        assert value("treetap_jobs", {"state": "damaged"}) == 3
    assert not (journal / "draft.jsonl.part").exists()


async def test_cancelling_waits_for_nobody_who_is_away(tmp_path: Path) -> None:
    """With a party away a job is cancelled within seconds; that party forgets it when it is told later."""
    federation = await _begun(tmp_path, "store_tree", 4)
    federation.kill(PARTIES[1])
    start = asyncio.get_running_loop().time()
    cancelled = await federation.jobs.cancel("job")
    assert cancelled.state == "cancelled"
    assert f"{PARTIES[1]} did not confirm it and may still hold files: treetap cancel job" in cancelled.error
    assert asyncio.get_running_loop().time() - start < 5
    federation.start(PARTIES[1])
    known = federation.jobs._parties.addresses
    address = known.pop(PARTIES[1])  # as if the coordinator's file lacked it
    assert f"{PARTIES[1]} did not confirm it" in (await federation.jobs.cancel("job")).error
    known[PARTIES[1]] = address
    assert (await federation.jobs.cancel("job")).state == "cancelled"
    assert list((federation.state(PARTIES[1]) / "jobs").iterdir()) == []


async def test_a_finished_job_stays_finished(tmp_path: Path) -> None:
    """It can be neither cancelled nor resumed nor submitted again, also after the coordinator's restart."""
    federation = Federation(tmp_path, HERE.tables)
    finished = await federation.train(JOB)
    for _ in range(2):
        with pytest.raises(Conflict, match="job job is finished: its model stays with the parties"):
            await federation.jobs.cancel("job")
        with pytest.raises(Conflict, match="job job is finished: there is nothing to resume"):
            federation.jobs.resume("job")
        with pytest.raises(ConfigError, match=r"there is a job 'job' already \(finished\); choose another name$"):
            await federation.train(JOB)
        assert federation.jobs.status("job") == [finished]
        federation.restart(COORDINATOR)
    for call in (federation.jobs.status, federation.jobs.resume):
        with pytest.raises(UnknownJob, match="there is no job 'none'"):
            call("none")
    with pytest.raises(UnknownJob, match="there is no job 'none'"):
        await federation.jobs.cancel("none")
    assert_oracles_model(federation.states, ORACLE)


async def test_a_running_job_cannot_be_resumed_beside_itself(tmp_path: Path) -> None:
    """While it runs, resuming is a conflict; another job runs beside it and both find the oracle's model."""
    federation = await _begun(tmp_path, "gradients")
    with pytest.raises(Conflict, match="job job is running: there is nothing to resume"):
        federation.jobs.resume("job")
    second = await federation.train(JOB, "second")
    first = await federation.jobs.wait("job")
    assert (first.state, second.state) == ("finished", "finished")
    for job in ("job", "second"):
        assert_oracles_model(federation.states, ORACLE, job)


async def test_a_watcher_sees_the_job_from_phase_to_phase_until_its_end(tmp_path: Path) -> None:
    """Watching ends by itself with the final status; what it shows on the way only goes forward."""
    federation = Federation(tmp_path, HERE.tables, faults=Faults(delay_s=2.0))
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    seen = []
    async for status in federation.jobs.watch("job"):
        seen.append(jobs_pb2.JobStatus.FromString(status.SerializeToString()))
    assert seen[-1].state == "finished"
    assert {status.state for status in seen[:-1]} == {"running"}
    phases = list(dict.fromkeys(status.phase for status in seen[:-1] if status.phase))
    assert phases == ["prepare", "align", "bin", "keys", "train", "publish"]
    trees = [status.round for status in seen]
    assert trees == sorted(trees)
    assert trees[-1] == 2
    assert {row.name for row in seen[-1].phases} == set(phases)


async def test_a_slow_watcher_is_told_the_end(tmp_path: Path) -> None:
    """A job that ends while its last status is on its way to the watcher: the end still comes, and what came stays."""
    federation = Federation(tmp_path, HERE.tables)
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    watching = federation.jobs.watch("job")
    first = await anext(watching)
    await federation.jobs.wait("job")
    assert first.state == "running"
    assert [status.state async for status in watching] == ["finished"]


@pytest.mark.second_tier
def test_cancelled_at_every_message(tmp_path: Path) -> None:
    """Whatever is under way, the order to cancel is never lost: the job ends within seconds and leaves nothing."""

    async def cancelled(folder: Path, number: int, served: bool) -> str:
        federation = Federation(folder, HERE.tables)
        orders: list[asyncio.Task[jobs_pb2.JobStatus]] = []

        def hook(message: Message) -> None:
            if (message.number, message.served) == (number, served) and not orders:
                orders.append(asyncio.ensure_future(federation.jobs.cancel("job")))

        federation.hook = hook
        federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
        while not orders:
            await asyncio.sleep(0.01)
        start = asyncio.get_running_loop().time()
        try:
            status = await orders[0]
        except Conflict:
            return "published"
        assert status.state == "cancelled"
        assert asyncio.get_running_loop().time() - start < 10
        for state in federation.states.values():
            assert list((state / "jobs").iterdir()) == []
        return "cancelled"

    outcomes = [
        run(cancelled(tmp_path / f"{number}-{served}", number, served))
        for number in range(0, 60, 3)
        for served in (False, True)
    ]
    assert outcomes.count("cancelled") > 30
