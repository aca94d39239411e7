"""Parcels between arrival and use: order, repeats, contradictions, silence, and the limit on what waits unread."""

from __future__ import annotations

import asyncio

import pytest

from party import mailbox as mailbox_module
from party.mailbox import Mailbox
from tests.simulator import run
from treetap.errors import Conflict, Interrupted, Silent
from treetap.wire.v1 import boosting_pb2, exchange_pb2

SILENCE_S = 5.0
KIND = "gradients"


def _parcel(
    part: int, *, last: bool = False, tree: int = 0, level: int = 0, content: bytes = b""
) -> exchange_pb2.Parcel:
    body = boosting_pb2.Gradients(first=part, ciphertexts=content)
    return exchange_pb2.Parcel(job="job", attempt=1, tree=tree, level=level, part=part, last=last, gradients=body)


async def _parts(box: Mailbox, sender: str = "b", tree: int = 0, level: int = 0) -> list[int]:
    return [parcel.part async for parcel in box.series(sender, KIND, tree, level)]


def test_parcels_are_read_in_order_however_they_come() -> None:
    """A series that arrives backwards is read forwards, and ends with its last part."""

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        for part in (2, 1, 0):
            await box.file("b", _parcel(part, last=part == 2))
        assert await _parts(box) == [0, 1, 2]

    run(main())


def test_a_reader_waits_for_the_next_part() -> None:
    """Parts are handed out as they come; a gap holds back what follows it."""

    async def main() -> None:
        box = Mailbox(SILENCE_S)
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

    run(main())


def test_series_do_not_mix() -> None:
    """Sender, kind, tree and level each tell series apart."""

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        whose = [("b", 0, 0), ("c", 0, 0), ("b", 1, 0), ("b", 0, 1)]
        for number, (sender, tree, level) in enumerate(whose):
            await box.file(sender, _parcel(0, last=True, tree=tree, level=level, content=bytes([number])))
        other = exchange_pb2.Parcel(job="job", attempt=1, last=True, children=boosting_pb2.Children())
        await box.file("b", other)
        for number, (sender, tree, level) in enumerate(whose):
            found = [parcel.gradients.ciphertexts async for parcel in box.series(sender, KIND, tree, level)]
            assert found == [bytes([number])]
        assert [parcel async for parcel in box.series("b", "children", 0, 0)] == [other]

    run(main())


def test_a_repeat_is_filed_once() -> None:
    """The same parcel again, before and after it was read, changes nothing."""

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        for _ in range(2):
            await box.file("b", _parcel(0))
        await box.file("b", _parcel(1, last=True))
        assert await _parts(box) == [0, 1]
        await box.file("b", _parcel(0))
        with pytest.raises(Silent):
            await _parts(box)

    run(main())


@pytest.mark.parametrize("read_first", [False, True])
def test_other_content_under_the_same_number(read_first: bool) -> None:
    """A part that contradicts the one that came before is refused, also when that one has been read."""

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        await box.file("b", _parcel(0, last=True, content=b"one"))
        if read_first:
            await _parts(box)
        with pytest.raises(Conflict, match="gradients part 0 from b came again with other content"):
            await box.file("b", _parcel(0, last=True, content=b"two"))

    run(main())


def test_a_part_after_the_last() -> None:
    """A series cannot go on after its end."""

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        await box.file("b", _parcel(1, last=True))
        with pytest.raises(Conflict, match="part 2 from b came after the last part 1"):
            await box.file("b", _parcel(2))

    run(main())


def test_silence_has_an_end() -> None:
    """A reader that hears nothing for the agreed time gives up with the name of whom it waited for."""

    async def main() -> float:
        box = Mailbox(SILENCE_S)
        started = asyncio.get_running_loop().time()
        with pytest.raises(Silent, match="waited 5 s for gradients of b"):
            await _parts(box)
        return asyncio.get_running_loop().time() - started

    assert run(main()) == pytest.approx(SILENCE_S)


def test_slow_is_not_silent() -> None:
    """A series may take as long as it likes if each part comes within the agreed time of the one before."""

    async def main() -> list[int]:
        box = Mailbox(SILENCE_S)
        reading = asyncio.ensure_future(_parts(box))
        for part in range(4):
            await asyncio.sleep(0.9 * SILENCE_S)
            await box.file("b", _parcel(part, last=part == 3))
        return await reading

    assert run(main()) == [0, 1, 2, 3]


def test_what_waits_unread_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that is faster than the reader is held back at the limit, and nothing is lost on the way."""
    monkeypatch.setattr(mailbox_module, "UNREAD_LIMIT", 4096)

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        parcels = [_parcel(part, last=part == 63, content=bytes(512)) for part in range(64)]
        held: list[int] = []
        waiting: dict[int, int] = {}

        async def send() -> None:
            for parcel in parcels:
                await box.file("b", parcel)
                waiting[parcel.part] = parcel.ByteSize()
                held.append(sum(waiting.values()))

        sending = asyncio.ensure_future(send())
        read = []
        async for parcel in box.series("b", KIND, 0, 0):
            await asyncio.sleep(0.1)  # long enough for a sender that is not held back to send everything
            read.append(parcel.part)
            waiting.pop(parcel.part, None)
        await sending
        assert read == list(range(64))
        assert max(held) <= 4096 + 2 * parcels[0].ByteSize()

    run(main())


def test_the_part_that_is_waited_for_is_never_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A series that is full of later parts still takes the one that its reader needs."""
    monkeypatch.setattr(mailbox_module, "UNREAD_LIMIT", 100)

    async def main() -> list[int]:
        box = Mailbox(SILENCE_S)
        await box.file("b", _parcel(1, content=bytes(200)))
        late = asyncio.ensure_future(box.file("b", _parcel(2, last=True, content=bytes(200))))
        await asyncio.sleep(1)
        assert not late.done()
        await box.file("b", _parcel(0, content=bytes(200)))
        read = await _parts(box)
        await late
        return read

    assert run(main()) == [0, 1, 2]


def test_a_repeat_of_a_parcel_that_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that gave up waiting and sent again has its parcel filed once."""
    monkeypatch.setattr(mailbox_module, "UNREAD_LIMIT", 100)

    async def main() -> list[int]:
        box = Mailbox(SILENCE_S)
        await box.file("b", _parcel(0, content=bytes(200)))
        twice = [asyncio.ensure_future(box.file("b", _parcel(1, last=True, content=bytes(200)))) for _ in range(2)]
        await asyncio.sleep(1)
        read = await _parts(box)
        await asyncio.gather(*twice)
        return read

    assert run(main()) == [0, 1]


def test_a_sender_is_not_held_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nobody reads within the agreed time, the sender hears of it."""
    monkeypatch.setattr(mailbox_module, "UNREAD_LIMIT", 100)

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        await box.file("b", _parcel(0, content=bytes(200)))
        with pytest.raises(Silent, match="gradients to be read"):
            await box.file("b", _parcel(1, content=bytes(200)))

    run(main())


def test_closing_wakes_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers and senders that wait end at once when the job is left, and so does whoever comes later."""
    monkeypatch.setattr(mailbox_module, "UNREAD_LIMIT", 100)

    async def main() -> float:
        box = Mailbox(SILENCE_S)
        await box.file("c", _parcel(0, content=bytes(200)))
        waiting = [
            asyncio.ensure_future(_parts(box)),
            asyncio.ensure_future(box.file("c", _parcel(1, content=bytes(200)))),
        ]
        await asyncio.sleep(1)
        started = asyncio.get_running_loop().time()
        await box.close()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, Interrupted)
            assert not isinstance(outcome, Silent)
        with pytest.raises(Interrupted):
            await box.file("b", _parcel(0))
        with pytest.raises(Interrupted):
            await _parts(box)
        return asyncio.get_running_loop().time() - started

    assert run(main()) == 0


def test_a_stored_tree_is_forgotten() -> None:
    """What is left of one tree goes, what came for the next one stays."""

    async def main() -> None:
        box = Mailbox(SILENCE_S)
        await box.file("b", _parcel(0, last=True, tree=0))
        await box.file("b", _parcel(0, last=True, tree=1))
        box.forget(0)
        assert await _parts(box, tree=1) == [0]
        with pytest.raises(Silent):
            await _parts(box, tree=0)

    run(main())
