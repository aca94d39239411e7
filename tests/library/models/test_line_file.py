"""Lines with checksums, for every store that has them: whole, durable, read once, held, and damage is found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.opens import opened_to_read
from treetap.errors import DataError, Interrupted
from treetap.models import line_file
from treetap.models.line_file import Line, LineFile


class PowerCut(BaseException):
    """Stands for the moment at which a process ends."""


class Numbers:
    """A store of numbers, a line each."""

    def __init__(self, folder: Path) -> None:
        self.file = LineFile(folder / "state" / "numbers.jsonl", lambda: "numbers")
        self._kept: list[Line] = []

    def of(self) -> list[int]:
        with self.file.held(self._read):
            return [line["number"] for line in self._kept]

    def add(self, *numbers: int) -> Numbers:
        for number in numbers:
            with self.file.held(self._read, to_write=True):
                self.file.put({"number": number}, len(self._kept))
                self._kept.append({"number": number})
        return self

    def _read(self) -> None:
        self._kept = self.file.read()


@contextmanager
def killed(
    patch: pytest.MonkeyPatch, owner: object, call: str, error: BaseException, *, after: bool = False
) -> Iterator[None]:
    real = getattr(owner, call)

    def kill(*arguments: object) -> None:
        if after:
            real(*arguments)
        raise error

    with patch.context() as patched:
        patched.setattr(owner, call, kill)
        with pytest.raises(type(error)):
            yield


def test_lines_come_back_and_a_look_makes_no_folder(tmp_path: Path) -> None:
    """By another process too, in order; one that other readers of JSON refuse is refused, and none is left out."""
    numbers = Numbers(tmp_path)
    assert numbers.of() == []
    assert not numbers.file.path.parent.exists()
    numbers.add(4, 5, 6)
    with pytest.raises(ValueError, match="not JSON compliant"):
        numbers.file.put({"number": float("inf")}, 3)
    with pytest.raises(DataError, match="holds 3 lines, cannot store line 4"):
        numbers.file.put({"number": 8}, 4)
    assert numbers.of() == Numbers(tmp_path).of() == [4, 5, 6]
    assert numbers.file.path.stat().st_mode & 0o077 == 0
    assert Numbers(tmp_path).file.digest(3) == numbers.file.digest(3) != numbers.file.digest(2)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    """Whoever wrote it reads it never; the next process once, whatever it looks for and writes."""
    for numbers, reads in ((Numbers(tmp_path), 0), (Numbers(tmp_path), 1)):
        with opened_to_read(tmp_path) as opened:
            for number in range(3):
                assert numbers.add(number).of()[-1] == number
        assert [path.name for path in opened if path.suffix == ".jsonl"] == ["numbers.jsonl"] * reads


def test_what_others_do_to_a_file_counts(tmp_path: Path) -> None:
    """One that another process added to, that was torn, changed at its size, taken away or brought back."""
    numbers = Numbers(tmp_path).add(1)
    path, whole = numbers.file.path, numbers.file.path.read_bytes()
    for other in (2, 3):
        path.write_bytes(whole)
        Numbers(tmp_path).add(other)
        assert numbers.of() == [1, other]
    numbers.add(4)
    assert Numbers(tmp_path).of() == [1, 3, 4]
    path.write_bytes(path.read_bytes()[:-9])
    assert numbers.of() == [1, 3]
    path.unlink()
    assert numbers.of() == []
    path.write_bytes(whole)
    assert numbers.add(5).of() == Numbers(tmp_path).of() == [1, 5]


def test_a_torn_last_line_does_not_count(tmp_path: Path) -> None:
    """Wherever a crash cut it, the lines before it are there, and it is stored anew."""
    path = Numbers(tmp_path).add(1, 2, 3).file.path
    whole = path.read_bytes()
    for cut in range(len(b"".join(whole.splitlines(keepends=True)[:2])), len(whole)):
        path.write_bytes(whole[:cut])
        assert Numbers(tmp_path).of() == [1, 2]
        Numbers(tmp_path).add(3)
        assert path.read_bytes() == whole


def test_no_byte_can_change_unnoticed(tmp_path: Path) -> None:
    """Every byte, changed in three ways, is damage that file and line name, also to the process that wrote it.

    A last line without its end is the exception: a crash leaves such a one.
    """
    numbers = Numbers(tmp_path).add(1, 2)
    path, whole = numbers.file.path, numbers.file.path.read_bytes()
    for place in range(len(whole) - 1):
        line = whole[:place].count(b"\n") + 1
        for bit in (1, 4, 32):
            changed = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
            path.write_bytes(changed)
            for reader in (numbers, Numbers(tmp_path)):
                with pytest.raises(DataError, match=rf"numbers\.jsonl: line {line} is damaged; bring a back-up"):
                    reader.add(3)
            assert path.read_bytes() == changed
    path.write_bytes(whole)
    assert numbers.of() == [1, 2]


def test_lines_that_are_missing_doubled_or_moved_are_found(tmp_path: Path) -> None:
    """And those of another file, or without checksums; the error names the first that does not belong there."""
    path = Numbers(tmp_path).add(1, 2, 3).file.path
    a, b, c = path.read_bytes().splitlines(keepends=True)
    foreign = LineFile(tmp_path / "other.jsonl", lambda: "other")
    foreign.put({"number": 1}, 0)
    plain, other = b'{"number":1}\n', foreign.path.read_bytes()
    for number, lines in (
        *((2, [a, c]), (1, [b, c]), (3, [a, b, b]), (1, [b, a, c]), (2, [a, a, b, c])),
        *((1, [other]), (1, [plain]), (2, [a, plain])),
    ):
        path.write_bytes(b"".join(lines))
        with pytest.raises(DataError, match=f"line {number} is damaged"):
            Numbers(tmp_path).of()


@pytest.mark.parametrize("lines", [0, 1], ids=["the first line", "a further line"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_kill_at_a_write_leaves_the_line_or_none(
    call: str, after: bool, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that goes on and the next one agree; a line that was returned is there."""
    numbers = Numbers(tmp_path).add(*range(lines))
    owner, name = (os, "fsync") if call == "sync" else (line_file, "append" if lines else "write_whole")
    with killed(monkeypatch, owner, name, PowerCut(), after=after):
        numbers.add(7)
    held = Numbers(tmp_path).of()
    assert held in ([*range(lines)], [*range(lines), 7])
    assert numbers.of() == held
    assert numbers.add(8).of() == Numbers(tmp_path).of() == [*held, 8]


@pytest.mark.parametrize("left", ["", '{"number":', None], ids=["none", "half of it", "all, which is not on disk"])
def test_a_line_that_the_disk_refused(left: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file. The next line makes the file anew: what an fsync has refused, no later one writes."""
    numbers = Numbers(tmp_path).add(1)
    path, whole = numbers.file.path, numbers.file.path.read_bytes()

    def full(_: int) -> None:
        path.write_bytes(path.read_bytes() if left is None else whole + left.encode())
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
            numbers.add(2)
    before, held = path.stat().st_ino, numbers.of()
    assert held == [1] if left is not None else [1, 2]
    assert numbers.add(3).of() == Numbers(tmp_path).of() == [*held, 3]
    assert path.stat().st_ino != before


@pytest.mark.parametrize(
    "change",
    [lambda file: file.put({"number": 9}, 1), lambda file: file.fill([{"number": 0}, {"number": 9}])],
    ids=["put", "fill"],
)
def test_lines_are_replaced_whole_or_not_at_all(
    change: Callable[[LineFile], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the new file is in place the old one stands."""
    numbers = Numbers(tmp_path).add(0, 1, 2, 3)
    with killed(monkeypatch, Path, "replace", PowerCut()):
        change(numbers.file)
    assert numbers.of() == Numbers(tmp_path).of() == [0, 1, 2, 3]
    change(numbers.file)
    assert Numbers(tmp_path).of() == [0, 9]


def test_a_look_and_the_line_that_follows_are_one(tmp_path: Path) -> None:
    """For threads, and for objects that hold the file apart, as processes do: no line is lost."""
    stores = [Numbers(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: stores[number % 4].add(number), range(24)))
    assert sorted(Numbers(tmp_path).of()) == list(range(24))


def test_a_file_that_another_process_holds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while; a look is free."""
    monkeypatch.setattr(line_file, "TRIES", 2)
    numbers, other = Numbers(tmp_path).add(1), Numbers(tmp_path)
    with numbers.file.held(lambda: None, to_write=True):
        assert other.of() == [1]
        with pytest.raises(Interrupted, match=r"numbers\.jsonl: another process has held it for 0\.1 s; end that one"):
            other.add(2)
    assert other.add(2).of() == numbers.of() == [1, 2]


def test_lines_that_the_caller_refuses_are_read_again(tmp_path: Path) -> None:
    """What it keeps of them is not the newest, though the file is the same."""
    numbers = Numbers(tmp_path).add(1)
    reader = LineFile(numbers.file.path, lambda: "numbers")

    def refuse() -> None:
        reader.read()
        raise DataError("none of ours")

    for _ in range(2):
        with pytest.raises(DataError, match="none of ours"), reader.held(refuse):
            pass
