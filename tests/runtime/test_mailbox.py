"""Parcels between arrival and use: order, repeats, contradictions, silence, and the limit on what waits unread."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from treetap.errors import Conflict, Interrupted, Refused, Silent
from treetap.party.runtime import mailbox as mailbox_module
from treetap.party.runtime.mailbox import ALLOWANCE, OVERHEAD, Mailbox, expected_of
from treetap.protocols.messages import JobSizes, Members, MessageRow, each_stage, to_label_holder
from treetap.wire.frame import filled
from treetap.wire.v2 import boosting_pb2, exchange_pb2, growth_pb2

SILENCE_S = 5.0
KIND = "gradients"


def _box(folder: Path, waiting: Callable[[str, int], None] | None = None) -> Mailbox:
    """A mailbox that expects messages of two kinds from two senders."""
    box = Mailbox(SILENCE_S, folder, waiting)
    sizes = JobSizes(members=Members("coordinator", "a", ("b", "c")), rounds=5, stages=3)
    rows = [
        MessageRow(kind, to_label_holder, each_stage, lambda _sizes, _series: 100_000) for kind in (KIND, "children")
    ]
    box.expect(expected_of(rows, "a", sizes))
    return box


def _parcel(
    part: int, *, last: bool = False, tree: int = 0, level: int = 0, content: bytes = b""
) -> exchange_pb2.PeerMessage:
    body = boosting_pb2.Gradients(first=part, ciphertexts=content)
    return filled(
        exchange_pb2.PeerMessage(job="job", attempt=1, round=tree, stage=level, part=part, last=last), "gradients", body
    )


async def _parts(box: Mailbox, sender: str = "b", tree: int = 0, level: int = 0) -> list[int]:
    return [parcel.part async for parcel in box.series(sender, KIND, tree, level)]


async def test_parcels_are_read_in_order_however_they_come(tmp_path: Path) -> None:
    """A series that arrives backwards is read forwards, and ends with its last part."""

    box = _box(tmp_path)
    for part in (2, 1, 0):
        await box.file("b", _parcel(part, last=part == 2))
    assert await _parts(box) == [0, 1, 2]


async def test_a_reader_waits_for_the_next_part(tmp_path: Path) -> None:
    """Parts are handed out as they come; a gap holds back what follows it."""

    box = _box(tmp_path)
    read: list[int] = []

    async def reader() -> None:
        async for parcel in box.series("b", KIND, 0, 0):
            read.append(parcel.part)

    reading = asyncio.ensure_future(reader())
    seen = []
    for part in (1, 0, 3, 2):
        await box.file("b", _parcel(part, last=part == 3))
        await asyncio.sleep(0.1)
        seen.append(list(read))
    assert seen == [[], [0, 1], [0, 1], [0, 1, 2, 3]]
    await reading


async def test_series_do_not_mix(tmp_path: Path) -> None:
    """Sender, kind, tree and level each tell series apart."""

    box = _box(tmp_path)
    whose = [("b", 0, 0), ("c", 0, 0), ("b", 1, 0), ("c", 0, 1)]
    for number, (sender, tree, level) in enumerate(whose):
        await box.file(sender, _parcel(0, last=True, tree=tree, level=level, content=bytes([number])))
    other = filled(exchange_pb2.PeerMessage(job="job", attempt=1, last=True), "children", growth_pb2.Children())
    await box.file("b", other)
    for number, (sender, tree, level) in enumerate(whose):
        found = [
            parcel.protocol.boosting.gradients.ciphertexts async for parcel in box.series(sender, KIND, tree, level)
        ]
        assert found == [bytes([number])]
    assert [parcel async for parcel in box.series("b", "children", 0, 0)] == [other]


async def test_a_repeat_is_filed_once(tmp_path: Path) -> None:
    """The same parcel again, before and after it was read, changes nothing."""

    box = _box(tmp_path)
    assert [await box.file("b", _parcel(0)) for _ in range(2)] == [True, False]
    assert await box.file("b", _parcel(1, last=True))
    assert await _parts(box) == [0, 1]
    assert not await box.file("b", _parcel(0))
    with pytest.raises(Silent):
        await _parts(box)


@pytest.mark.parametrize("read_first", [False, True])
async def test_other_content_under_the_same_number(read_first: bool, tmp_path: Path) -> None:
    """A part that contradicts the one that came before is refused, also when that one has been read."""

    box = _box(tmp_path)
    await box.file("b", _parcel(0, last=True, content=b"one"))
    if read_first:
        await _parts(box)
    with pytest.raises(Conflict, match="gradients part 0 from b came again with other content"):
        await box.file("b", _parcel(0, last=True, content=b"two"))


async def test_a_part_after_the_last(tmp_path: Path) -> None:
    """A series cannot go on after its end."""

    box = _box(tmp_path)
    await box.file("b", _parcel(1, last=True))
    with pytest.raises(Conflict, match="part 2 from b came after the last part 1"):
        await box.file("b", _parcel(2))


@pytest.mark.parametrize("patience", [1, 3])
async def test_silence_has_an_end(patience: int, tmp_path: Path) -> None:
    """A reader that hears nothing for the agreed time, or so many times as long, gives up with whom it waited for.

    A party that sits batches out waits for as long as the others need for them.
    """
    box = _box(tmp_path)
    started = asyncio.get_running_loop().time()
    with pytest.raises(Silent, match=f"waited {5 * patience} s for gradients of b"):
        await anext(box.series("b", "gradients", 0, 0, patience=patience))
    assert asyncio.get_running_loop().time() - started == pytest.approx(patience * SILENCE_S)


async def test_slow_is_not_silent(tmp_path: Path) -> None:
    """A series may take as long as it likes if each part comes within the agreed time of the one before."""

    box = _box(tmp_path)
    reading = asyncio.ensure_future(_parts(box))
    for part in range(4):
        await asyncio.sleep(0.9 * SILENCE_S)
        await box.file("b", _parcel(part, last=part == 3))
    assert await reading == [0, 1, 2, 3]


async def test_what_waits_unread_is_bounded_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a sender's parcels wait in a file, over all its series; nothing is lost, nobody held back."""
    monkeypatch.setattr(mailbox_module, "MEMORY_LIMIT", 4096)

    box = _box(tmp_path)
    contents = {part: bytes([part]) * 512 for part in range(64)}
    for tree in (0, 1):
        for part in reversed(range(64)):
            parcel = _parcel(part, last=part == 63, tree=tree, content=contents[part])
            await box.file("b", parcel)
    sender = box._senders["b"]
    assert 3000 < sender.in_memory <= 4096
    assert sender.file is not None
    assert os.fstat(sender.file.fileno()).st_size == sender.in_file > 110 * 512
    assert os.fstat(sender.file.fileno()).st_nlink == 0
    for tree in (1, 0):
        found = {
            parcel.part: parcel.protocol.boosting.gradients.ciphertexts
            async for parcel in box.series("b", KIND, tree, 0)
        }
        assert list(found.items()) == list(contents.items())
    assert (sender.in_memory, sender.in_file) == (0, 0)
    assert os.fstat(sender.file.fileno()).st_size == 0
    await box.file("b", _parcel(0, last=True, tree=2, content=bytes(9000)))
    box.forget(2)
    assert sender.in_file == 0
    await box.close()
    assert list(tmp_path.iterdir()) == []


async def test_what_waits_is_not_decoded(tmp_path: Path) -> None:
    """A message is kept as the bytes that are counted: decoded it may take 27 times as many."""

    box, parcel = _box(tmp_path), _parcel(0)
    await box.file("b", parcel)
    held = sys.getrefcount(parcel)
    assert held == 2  # by this function, and by the argument
    await box.close()


async def test_no_room_for_parcels_ends_the_job_for_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file can be made either, the sender hears it; the job can be resumed when there is room."""
    monkeypatch.setattr(mailbox_module, "MEMORY_LIMIT", 100)

    box = _box(tmp_path / "absent")
    with pytest.raises(Interrupted, match="absent: cannot keep messages that wait: No such file"):
        await box.file("b", _parcel(0, content=bytes(200)))


async def test_closing_wakes_everybody(tmp_path: Path) -> None:
    """Readers that wait end at once when the job is left, and so does whoever comes later."""

    box = _box(tmp_path)
    waiting = asyncio.ensure_future(_parts(box))
    await asyncio.sleep(1)
    started = asyncio.get_running_loop().time()
    await box.close()
    (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcome, Interrupted)
    assert not isinstance(outcome, Silent)
    with pytest.raises(Interrupted):
        await box.file("b", _parcel(0))
    with pytest.raises(Interrupted):
        await _parts(box)
    assert asyncio.get_running_loop().time() - started == 0


async def test_a_stored_tree_is_forgotten(tmp_path: Path) -> None:
    """What is left of one tree goes, what came for the next one stays."""

    box = _box(tmp_path)
    await box.file("b", _parcel(0, last=True, tree=0))
    await box.file("b", _parcel(0, last=True, tree=1))
    box.forget(0)
    assert await _parts(box, tree=1) == [0]
    with pytest.raises(Silent):
        await _parts(box, tree=0)


async def test_late_repeats_of_what_was_forgotten(tmp_path: Path) -> None:
    """They are acknowledged and lie nowhere, also those of series before; a tree's later steps still get theirs."""

    told: list[int] = []
    box = _box(tmp_path, lambda _, change: told.append(change))
    for tree in range(3):
        for level in range(2):
            parcel = _parcel(0, last=True, tree=tree, level=level)
            await box.file("b", parcel)
            assert await _parts(box, tree=tree, level=level) == [0]
            box.forget(tree)
            for again in range(tree + 1):
                assert not await box.file("b", _parcel(0, last=True, tree=again))
                with pytest.raises(Refused, match=f"round {again}, stage 0 has more than the .* bytes"):
                    await box.file("b", _parcel(7, tree=again, content=bytes(200_000)))
            assert not await box.file("b", parcel)
            assert box._series == {}
    assert sum(told) == 0
    assert len(box._dropped) <= 2


async def test_what_is_not_expected_is_refused_by_name(tmp_path: Path) -> None:
    """Other kinds, senders, rounds and stages, and anything before the role has said what it can receive."""

    early = Mailbox(SILENCE_S, tmp_path)
    with pytest.raises(Refused, match="gradients of b: this party receives none in this job"):
        await early.file("b", _parcel(0))
    box = _box(tmp_path)
    other = filled(exchange_pb2.PeerMessage(job="job", attempt=1), "leaf_paths", growth_pb2.LeafPaths())
    with pytest.raises(Refused, match="leaf_paths of b: this party receives none in this job"):
        await box.file("b", other)
    with pytest.raises(Refused, match="gradients of d: this party receives it from b, c only"):
        await box.file("d", _parcel(0))
    for tree, level in ((5, 0), (2**32 - 1, 0), (0, 3), (0, 2**31)):
        with pytest.raises(Refused, match=f"gradients of b: this job has no round {tree}, stage {level} of it"):
            await box.file("b", _parcel(0, tree=tree, level=level))
    assert box._series == {}


async def test_a_series_is_no_longer_than_the_job_can_need(tmp_path: Path) -> None:
    """Its bytes are counted over all parts, whether they were read or not, and a part without content counts too."""

    most = 125_000 + ALLOWANCE
    for content, read in ((bytes(10_000), False), (bytes(10_000), True), (b"", False)):
        box, took, part = _box(tmp_path), 0, 0
        reading = asyncio.ensure_future(_parts(box)) if read else None
        while (size := _parcel(part, content=content).ByteSize() + OVERHEAD) + took <= most:
            await box.file("b", _parcel(part, content=content))
            took, part = took + size, part + 1
            await asyncio.sleep(0)
        with pytest.raises(Refused, match=f"gradients of b: round 0, stage 0 has more than the {most} bytes"):
            await box.file("b", _parcel(part, content=content))
        await box.file("c", _parcel(0))
        if reading is not None:
            reading.cancel()


async def test_two_series_of_a_kind_wait_at_once(tmp_path: Path) -> None:
    """A peer that runs ahead of the job is refused until what it sent before has been read or forgotten."""
    box = _box(tmp_path)
    for tree, level, part in ((0, 0, 0), (1, 1, 0), (1, 1, 1), (0, 0, 1)):
        await box.file("b", _parcel(part, last=part == 1, tree=tree, level=level))
    for tree, level in ((0, 1), (1, 0), (2, 0)):
        with pytest.raises(
            Refused,
            match=f"gradients of b: round {tree}, stage {level} comes while those of round 0, stage 0 and of "
            "round 1, stage 1 wait unread",
        ):
            await box.file("b", _parcel(0, tree=tree, level=level))
    await box.file("c", _parcel(0, tree=2))
    other = exchange_pb2.PeerMessage(job="job", attempt=1, round=2, last=True)
    await box.file("b", filled(other, "children", growth_pb2.Children()))
    assert await _parts(box, tree=1, level=1) == [0, 1]
    await box.file("b", _parcel(0, tree=2))
    with pytest.raises(Refused, match="round 3, stage 0 comes while"):
        await box.file("b", _parcel(0, tree=3))
    box.forget(0)
    await box.file("b", _parcel(0, tree=3))
