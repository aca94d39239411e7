"""Messages of a job that a party records, and those that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB
from tests.simulator import COORDINATOR, Federation, run
from tests.worlds import PARTIES
from treetap.errors import BadInput, Interrupted, Refused, UnknownJob
from treetap.models import durable
from treetap.party.node import SESSION_S
from treetap.party.runtime.attempts import Session
from treetap.party.runtime.transcript_recorder import Mode, Recorders
from treetap.wire.frame import filled, name_of
from treetap.wire.own_rows import kept, path_of
from treetap.wire.transcript import TranscriptReader, open_message
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import boosting_pb2, control_pb2, exchange_pb2, growth_pb2, jobs_pb2, setup_pb2, transcript_pb2

LABEL_HOLDER, B, C = PARTIES
OWN = transcript_pb2.OwnSplit(handle=7, feature_name="age")
LEAVE = filled(control_pb2.StepRequest(job="job", attempt=1), "leave", setup_pb2.Leave())
Received = list[tuple[int, str, str]]


def _recorded(state: Path, job: str = "job") -> Received:
    return [(record.kind, record.peer, record.step) for record in TranscriptReader(state / "transcripts" / job)]


def _trained(folder: Path, mode: Mode, then: Callable[[Federation], Awaitable[None]] | None = None) -> Path:
    """The state of a feature party after a training."""

    async def main() -> Path:
        federation = Federation(folder, HERE.tables, record=mode)
        assert (await federation.train(JOB)).state == "finished"
        if then is not None:
            await then(federation)
        await federation.close()
        return federation.state(B)

    return run(main())


async def _step(federation: Federation, caller: str, request: control_pb2.StepRequest, party: str = B) -> None:
    async for _ in federation.node(party).step(caller, request):
        pass


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("mode", ["received", "both", "off"])
def test_what_is_written(mode: Mode, tmp_path: Path) -> None:
    """Received and own always, sent only if asked, nothing if off; the messages themselves, each in its place."""
    state = _trained(tmp_path, mode)
    if mode == "off":
        assert list((state / "transcripts").iterdir()) == []
        return
    found = _recorded(state)
    assert found[0] == (1, COORDINATOR, "prepare")
    assert found[-1] == (1, COORDINATOR, "leave")
    assert {(1, COORDINATOR, "publish"), (1, COORDINATOR, "account"), (1, LABEL_HOLDER, "instance_spaces")} < set(found)
    assert (3, "", "own_split") in found
    sent = {peer for kind, peer, step in found if kind == 2}
    assert sent == ({LABEL_HOLDER} if mode == "both" else set())
    for record in TranscriptReader(state / "transcripts" / "job"):
        message = open_message(record)
        if isinstance(message, control_pb2.StepRequest | exchange_pb2.PeerMessage):
            assert (message.job, message.attempt, message.round) == (record.job, record.attempt, record.round)
    folder = state / "transcripts" / "job"
    (chained,) = (open_message(record) for record in TranscriptReader(folder) if record.step == "own_alignment")
    assert isinstance(chained, transcript_pb2.OwnAlignment)
    assert sorted(folder.iterdir()) == [folder / "000001.tap", path_of(folder, chained.digest)]
    assert sorted(kept(folder, chained).rows) == list(range(len(HERE.y)))


@pytest.mark.parametrize("party", [LABEL_HOLDER, B])
async def test_a_step_that_fails_at_once_is_written(party: str, tmp_path: Path) -> None:
    """A step is in the party's transcript, however soon its work fails."""

    federation = Federation(tmp_path, HERE.tables, record="received")
    federation.configs[party].tables["train"].path.unlink()
    assert (await federation.train(JOB)).state == "failed"
    assert _recorded(federation.state(party))[0] == (1, COORDINATOR, "prepare")


async def test_strangers_leave_no_trace(tmp_path: Path) -> None:
    """A caller that the party refuses cannot fill the transcript, or make one."""
    step = filled(control_pb2.StepRequest(job="job", attempt=1), "bin", setup_pb2.Bin())
    message = filled(exchange_pb2.PeerMessage(job="job", attempt=1), "children", growth_pb2.Children())

    federation = Federation(tmp_path, HERE.tables, record="both")
    with pytest.raises(Refused):
        await _step(federation, C, step)
    with pytest.raises(UnknownJob):
        await _step(federation, COORDINATOR, step)
    with pytest.raises(UnknownJob):
        await federation.node(B).deliver("operator", message)
    assert list((federation.state(B) / "transcripts").iterdir()) == []


async def test_a_message_of_a_round_that_is_over_is_not_written(tmp_path: Path) -> None:
    """It is acknowledged, as are repeats: neither can fill the disk."""
    message = exchange_pb2.PeerMessage(job="job", attempt=1, part=999)
    filled(message, "gradients", boosting_pb2.Gradients(first=7))

    federation = Federation(tmp_path, HERE.tables, record="received")
    publishing = asyncio.Event()
    federation.hook = lambda sent: publishing.set() if sent.word == "publish" else None
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    await publishing.wait()
    message.job_digest = federation.node(B)._sessions["job"].context.digest
    for _ in range(20):
        await federation.node(B).deliver(LABEL_HOLDER, message)
    assert (await federation.jobs.wait("job")).state == "finished"
    await federation.close()
    messages = [open_message(record) for record in TranscriptReader(federation.state(B) / "transcripts" / "job")]
    received = [message for message in messages if isinstance(message, exchange_pb2.PeerMessage)]
    assert "gradients" in map(name_of, received)
    assert 999 not in [message.part for message in received]


def test_a_repeated_leave_goes_into_a_new_file(tmp_path: Path) -> None:
    """The last word closes the log, which another process may write now; a late one does not stop it."""

    async def again(federation: Federation) -> None:
        Recorders(federation.state(B) / "transcripts", "received").of("job").own(0, 0, 1, OWN)
        await _step(federation, COORDINATOR, LEAVE)

    state = _trained(tmp_path, "received", again)
    assert _recorded(state)[-3:] == [(1, COORDINATOR, "leave"), (3, "", "own_split"), (1, COORDINATOR, "leave")]
    assert sorted(path.name for path in (state / "transcripts" / "job").glob("*.tap")) == [
        f"00000{number}.tap" for number in (1, 2, 3)
    ]


def test_a_damaged_log_stops_the_job_and_says_what_to_do(tmp_path: Path) -> None:
    """It is not continued; once it is moved away the job can be resumed."""
    folder = tmp_path / "job"
    Recorders(tmp_path, "received").of("job").own(0, 0, 1, OWN)
    content = (folder / "000001.tap").read_bytes()
    (folder / "000001.tap").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    recorders = Recorders(tmp_path, "received")
    with pytest.raises(Interrupted, match=r"000001\.tap: byte 21: the record is damaged: move .*/job away .* resume"):
        recorders.of("job").own(0, 0, 1, OWN)
    folder.rename(tmp_path / "away")
    recorders.of("job").own(0, 0, 1, OWN)
    assert len(list(TranscriptReader(folder))) == 1


def test_a_transcript_is_open_while_its_job_is_under_way(tmp_path: Path) -> None:
    """Records of the job share a file; one that comes before or after is in a file of its own, free for others."""
    recorders = Recorders(tmp_path, "received")
    recorder = recorders.of("job")
    recorder.own(0, 0, 1, OWN)
    TranscriptWriter(tmp_path / "job").close()
    recorders.keep_open("job", b"digest")
    recorder.own(0, 0, 2, OWN)
    recorder.own(0, 1, 2, OWN)
    with pytest.raises(BadInput, match="another process writes this transcript"):
        TranscriptWriter(tmp_path / "job")
    recorders.close("job")
    recorder.own(0, 0, 3, OWN)  # such as a client's answer that was computed when the model was given up
    TranscriptWriter(tmp_path / "job").close()
    assert [record.attempt for record in TranscriptReader(tmp_path / "job")] == [1, 2, 2, 3]
    files = [TranscriptReader(path) for path in sorted((tmp_path / "job").iterdir())]
    assert [len(list(file)) for file in files] == [1, 0, 2, 1, 0]


@pytest.mark.parametrize("ended", ["left", "opened again", "expired"])
async def test_no_transcript_stays_open_after_a_session(
    ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed also where the disk refuses to note that the session has ended, or that another one begins."""

    def full(path: Path, content: bytes, **_: bool) -> None:
        raise OSError(28, "No space left on device", str(path))

    def kept(session: Session, discard: str | None = None) -> Coroutine[Any, Any, None]:
        raise OSError(28, "No space left on device")

    federation = Federation(tmp_path, HERE.tables, record="received")
    binning = asyncio.Event()
    federation.hook = lambda sent: binning.set() if sent.word == "bin" else None
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    await binning.wait()
    federation.kill(COORDINATOR)
    node, recorders = federation.node(B), federation.process(B).recorders
    assert recorders is not None
    assert set(recorders._writers) == {"job"}
    if ended == "expired":
        monkeypatch.setattr(Session, "close", kept)
        await asyncio.sleep(SESSION_S + 60)
    else:
        monkeypatch.setattr(durable, "write_whole", full)
        session = node._sessions["job"]
        again = setup_pb2.Prepare(spec=JOB, submission=session.submission)
        step = setup_pb2.Leave(submission=session.submission) if ended == "left" else again
        request = filled(control_pb2.StepRequest(job="job", attempt=2), "leave" if ended == "left" else "prepare", step)
        with pytest.raises(Interrupted, match="No space left"):
            await _step(federation, COORDINATOR, request)
    assert not node._sessions
    assert not recorders._writers
    monkeypatch.undo()
