"""The tap before a party's port: what it writes down, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from party.runtime.transcript_recorder import Mode, Recorders, RecordingPort
from treetap.errors import Refused
from treetap.wire.frame import filled
from treetap.wire.transcript import TranscriptReader, open_message
from treetap.wire.v2 import control_pb2, exchange_pb2, growth_pb2, setup_pb2, transcript_pb2

STEP = filled(control_pb2.StepRequest(job="job", attempt=2, round=3, stage=1), "bin", setup_pb2.Bin())
LEAVE = filled(control_pb2.StepRequest(job="job", attempt=2), "leave", setup_pb2.Leave())
PARCEL = filled(exchange_pb2.PeerMessage(job="job", attempt=2, round=3), "children", growth_pb2.Children())
OWN = transcript_pb2.OwnSplit(handle=7, feature_name="age")


class Port:
    """Answers the coordinator with a sign of life and a result, a member's parcel with a receipt, others not at all."""

    async def step(self, caller: str, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        if caller != "coordinator":
            raise Refused(caller)
        yield control_pb2.StepEvent(progress=control_pb2.Progress())
        yield control_pb2.StepEvent(result=control_pb2.StepResult())

    async def deliver(self, caller: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.Receipt:
        if caller != "label-holder":
            raise Refused(caller)
        return exchange_pb2.Receipt()


async def _step(port: RecordingPort, caller: str, request: control_pb2.StepRequest) -> None:
    async for _ in port.step(caller, request):
        pass


def _kinds(folder: Path) -> list[tuple[int, str, str]]:
    return [(record.kind, record.peer, record.step) for record in TranscriptReader(folder / "job")]


@pytest.mark.parametrize("mode", ["received", "both", "off"])
def test_what_is_written(mode: Mode, tmp_path: Path) -> None:
    """Received and own always, sent only if asked, nothing if off; the message itself, and its place in the job."""
    recorders = Recorders(tmp_path, mode)
    port = RecordingPort(Port(), recorders, "a")
    asyncio.run(_step(port, "coordinator", STEP))
    asyncio.run(port.deliver("label-holder", PARCEL))
    recorders.of("job").sent("feature-c", "children", PARCEL)
    recorders.of("job").own(3, 1, 2, OWN)
    recorders.close()
    assert recorders.of("job").on == (mode != "off")
    if mode == "off":
        assert list(tmp_path.iterdir()) == []
        return
    records = list(TranscriptReader(tmp_path / "job"))
    received = [(1, "coordinator", "bin"), (1, "label-holder", "children")]
    sent = [(2, "feature-c", "children")] if mode == "both" else []
    assert _kinds(tmp_path) == [*received, *sent, (3, "", "own_split")]
    assert [open_message(record) for record in records] == [STEP, PARCEL, *([PARCEL] if sent else []), OWN]
    assert {(record.job, record.attempt, record.round) for record in records} == {("job", 2, 3)}


def test_strangers_leave_no_trace(tmp_path: Path) -> None:
    """Whoever the port turns away cannot fill the log, or make one."""

    async def main() -> None:
        port = RecordingPort(Port(), Recorders(tmp_path, "both"), "a")
        with pytest.raises(Refused):
            await _step(port, "feature-c", STEP)
        with pytest.raises(Refused):
            await port.deliver("operator", PARCEL)

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_leaving_closes_the_log_of_the_job(tmp_path: Path) -> None:
    """The last word is in the log, in the same file, and the file is closed: another process may write it now."""
    recorders = Recorders(tmp_path, "received")
    port = RecordingPort(Port(), recorders, "a")
    asyncio.run(_step(port, "coordinator", STEP))
    asyncio.run(_step(port, "coordinator", LEAVE))
    assert _kinds(tmp_path) == [(1, "coordinator", "bin"), (1, "coordinator", "leave")]
    assert [path.name for path in (tmp_path / "job").iterdir()] == ["000001.tap"]
    Recorders(tmp_path, "received").of("job").own(0, 0, 3, OWN)


def test_a_late_leave_does_not_stop_the_log(tmp_path: Path) -> None:
    """The leave of an attempt that is over may come late: whoever writes to the job's log goes on writing."""
    recorders = Recorders(tmp_path, "both")
    port = RecordingPort(Port(), recorders, "a")
    of_session = recorders.of("job")
    of_session.own(0, 0, 2, OWN)
    asyncio.run(_step(port, "coordinator", LEAVE))
    of_session.own(1, 0, 2, OWN)
    asyncio.run(port.deliver("label-holder", PARCEL))
    recorders.close()
    assert [step for _, _, step in _kinds(tmp_path)] == ["own_split", "leave", "own_split", "children"]
