"""Wrong input to previews, and their ends: breaks, bad networks, cancelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.alignment.previews import COUNTS, drawn_ids
from tests.alignment.test_protocol import NAMES, tables
from tests.simulator import COORDINATOR, Faults, Federation, Message, failed, run
from treetap.commands.jobs import progress_view
from treetap.coordinator.runtime.progress import Progress
from treetap.errors import ConfigError, Conflict, Overloaded
from treetap.party.runtime.ledger import ledger_of
from treetap.wire.v2 import control_pb2, jobs_pb2


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"parties": NAMES[:1]}, "name two or more"),
        ({"parties": [NAMES[0], NAMES[0]]}, f"{NAMES[0]!r} is named twice"),
        ({"parties": [NAMES[0], "lap"]}, "knows no party 'lap'"),
        ({"parties": NAMES[:2], "table": "No table"}, "table: "),
        ({"parties": NAMES[:2], "answer": "counts"}, "answer = 'counts': must be one of count, records"),
    ],
)
async def test_a_preview_that_no_federation_could_do(asked: dict[str, Any], fault: str, tmp_path: Path) -> None:
    federation = Federation(tmp_path, tables([["a"], ["a"]]), policies=COUNTS)
    with pytest.raises(ConfigError, match=fault):
        federation.jobs.align(jobs_pb2.AlignRequest(job="p", **asked))
    assert federation.log == []


async def test_a_table_that_a_job_would_refuse(tmp_path: Path) -> None:
    """An id that is there twice, and a table that is not there, are named before any preview is charged."""
    ids = [["a", "b", "b"], ["a", "c"]]

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)
    failed(await federation.preview(job="p1"), f"{NAMES[0]}: ", "the id is there already", bad_input=True)
    failed(await federation.preview(job="p2", table="tran"), "has no table 'tran'", bad_input=True)
    assert not any(ledger_of(state).previews() for state in federation.states.values())


async def test_a_preview_that_breaks_down_is_asked_anew_and_not_resumed(tmp_path: Path) -> None:
    """A party's loss and the coordinator's end it; nothing of it stays with the parties but the charge."""
    ids = [[f"c{number}" for number in range(8)]] * 2

    federation = Federation(tmp_path, tables(ids), policies=COUNTS, silence_s=5.0)
    federation.hook = lambda message: federation.kill(NAMES[1]) if message.word == "relay_ids" else None
    status = await federation.preview(job="p1")
    assert (status.state, status.bad_input) == ("failed", False)
    assert status.error.endswith("then: treetap align, as a new preview")
    federation.hook = None
    federation.start(NAMES[1])
    with pytest.raises(Conflict, match="p1 is a preview, which is not resumed"):
        federation.jobs.resume("p1")
    assert federation.jobs.prune(["p1"], 0, dry_run=True) == ["p1"]

    federation.kill_at(COORDINATOR, lambda message: message.word == "relay_ids")
    await federation.preview(job="p2")
    federation.start(COORDINATOR)
    (status,) = federation.jobs.status("p2")
    assert (status.kind, status.state) == ("align", "failed")
    assert status.error == "the coordinator stopped; go on with: treetap align, as a new preview"
    assert (await federation.preview(job="p3")).state == "finished"
    for state in federation.states.values():
        assert list((state / "jobs").iterdir()) == []
        assert not (state / "previews").exists()


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("seed", range(8))
async def test_a_bad_network_charges_once(seed: int, tmp_path: Path) -> None:
    """Requests are lost, doubled and late: the count is the same, and a step that is repeated is no second preview."""
    ids, common = drawn_ids(2 + seed % 2, seed)

    faults = Faults(drop=0.1, lose_reply=0.1, double=0.3, delay_s=0.5, late_s=3.0, seed=seed)
    federation = Federation(tmp_path, tables(ids), policies=COUNTS, faults=faults)
    status = await federation.preview()
    assert (status.state, status.error, status.common.records) == ("finished", "", len(common))
    assert [len(ledger_of(state).previews()) for state in federation.states.values()] == [1] * len(ids)


async def test_a_party_with_too_many_jobs_has_a_preview_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put off as a job is, and charged once, when it begins."""
    ids = [[f"c{number}" for number in range(8)]] * 2

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)
    refusals = [Overloaded(f"{NAMES[1]} has 2 jobs under way")]

    def full() -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(federation.node(NAMES[1]), "_check_room", full)
    status = await federation.preview()
    assert (status.state, status.attempt, status.common.records) == ("finished", 2, 8)
    assert [len(ledger_of(state).previews()) for state in federation.states.values()] == [1, 1]


def test_progress_on_long_lists() -> None:
    """The status has the turn, and how many identifiers all parties have raised in it; a terminal shows both."""

    async def main() -> jobs_pb2.JobStatus:
        progress = Progress(jobs_pb2.JobStatus(job="p", kind="align", state="running"))
        progress.phase("align")
        progress.round(0, 6)
        progress.on_progress(NAMES[0], control_pb2.Progress(done=7, total=7))
        progress.round(1, 6)
        progress.on_progress(NAMES[0], control_pb2.Progress(done=5, total=20))
        progress.on_progress(NAMES[1], control_pb2.Progress(done=10, total=30))
        return progress.status

    done, total, where, _ = progress_view._described(run(main()), [])
    assert (done, total, where) == (15, 50, "turn 2/6, 15/50 identifiers")


async def test_a_preview_is_cancelled_as_a_job_is(tmp_path: Path) -> None:
    ids = [[f"c{number}" for number in range(8)]] * 2

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)
    ended: list[Any] = []

    def cancel(message: Message) -> None:
        if message.word == "relay_ids" and not ended:
            ended.append(federation.process(COORDINATOR).run(federation.jobs.cancel("p")))

    federation.hook = cancel
    status = await federation.preview()
    assert status.state == "cancelled"
    assert (await ended[0]).state == "cancelled"
    assert not any(federation.node(name)._sessions for name in NAMES[:2])


async def test_no_column_but_the_ids_is_read(tmp_path: Path) -> None:
    """A column that a training could not use does not matter, nor does a label of one class."""
    own = tables([["a", "b", "c"], ["b", "c", "d"]])
    columns, content = own[NAMES[1]]
    content["train"] = content["train"].set_column(1, columns[0], pa.array([b"\xff", None, b""]))

    federation = Federation(tmp_path, own, policies=COUNTS)
    assert (await federation.preview()).common.records == 2
