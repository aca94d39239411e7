"""Files that are written whole: their mode, what an error leaves, and drafts of their own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from treetap.models.durable import append, write_whole, writing_whole


def _write_half(path: Path, then: Callable[[], None]) -> None:
    with writing_whole(path) as file:
        file.write(b"half")
        then()


@pytest.mark.parametrize("at_disk", [False, True])
@pytest.mark.parametrize("error", [OSError(28, os.strerror(28)), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_and_no_draft(
    error: BaseException, at_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends the writing, before its end or as it is made durable: a full disk, or a person."""
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(*_: object) -> None:
        raise error

    if at_disk:
        monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        _write_half(path, lambda: None if at_disk else fail())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_that_a_crash_left_has_no_say(tmp_path: Path) -> None:
    """Neither its content nor its mode, nor where it points to, becomes that of the file."""
    path, draft, other = (tmp_path / name for name in ("file", "file.part", "other"))
    draft.write_bytes(b"x" * 100)
    draft.chmod(0o644)
    write_whole(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    other.write_bytes(b"other")
    draft.symlink_to(other)
    write_whole(path, b"newer")
    assert (path.read_bytes(), other.read_bytes()) == (b"newer", b"other")
    assert not path.is_symlink()
    assert sorted(tmp_path.iterdir()) == [path, other]


def test_two_who_write_at_once_each_write_whole(tmp_path: Path) -> None:
    """With drafts of their own the last one to end has written the file."""
    path = tmp_path / "file"
    with writing_whole(path, draft=tmp_path / "one.part") as one:
        one.write(b"on")
        with writing_whole(path, draft=tmp_path / "other.part") as other:
            other.write(b"other")
        assert path.read_bytes() == b"other"
        one.write(b"e")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_added_is_on_disk_before_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synchronised with the new content."""
    path, sizes = tmp_path / "file", list[int]()
    write_whole(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    append(path, b" and new")
    assert path.read_bytes() == b"old and new"
    assert sizes == [len("old and new")]
