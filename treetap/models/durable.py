"""Files that are on disk whole or not at all, also after a crash; documents with a checksum, and lines added to files.

What must be on disk before what: a fact before anyone outside this process can act on it. So a charge comes before the
message that it is for, an attempt and the job's notes before the answer to its opening, a tree's line and the scores
that include it before the answer to `store_tree`, a model's files before the folder takes its name, and a line of the
journal before the coordinator's next request. Facts that are told together are one line or one file: each takes one
`os.fsync`, and a new or replaced name another one of its folder, which serves all names that changed there before.
Files that the next attempt makes anew, as the progress of a published model, may come back after a power cut, and are
removed when the process starts.

A document is a JSON object, or bytes. The checksum (SHA-256) covers a `seed`, which names the file's purpose: a file in
the place of another is found. It detects damage, such as by a disk or an editor. It is no signature: the writer of a
file can compute it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from treetap.errors import DataError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
#: The content of a `.gitignore` of all files below it.
_ALL = "*\n"


def stamp_of(path: Path) -> tuple[int, ...]:
    """Numbers of a file that change whenever it does, its bytes last; none without a file."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return ()
    return (state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size) if stat.S_ISREG(state.st_mode) else ()


def write_whole(path: Path, content: bytes, mode: int = 0o600, *, settle: bool = True) -> None:
    """Write a file so that after a crash either the old or the new content is there, never half.

    `settle`: the new one from now on; False: from the next file on that is written into the folder with it.
    """
    with writing_whole(path, mode, settle=settle) as file:
        file.write(content)


@contextmanager
def writing_whole(
    path: Path, mode: int = 0o600, draft: Path | None = None, *, settle: bool = True
) -> Iterator[BinaryIO]:
    """The same for content that comes in parts: the file exists once the block ends without an error.

    `draft`: the file in which the content grows, in the same folder; each of several processes that may write the file
    at once needs its own. One that a crash has left there is replaced, and an error leaves none.
    """
    draft = draft or path.with_name(path.name + ".part")
    try:
        descriptor = os.open(draft, _NEW, mode)
    except FileExistsError:
        draft.unlink()
        descriptor = os.open(draft, _NEW, mode)
    try:
        with _naming(path), os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if settle:
        sync_folder(path.parent)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder of these files, which are on disk when this returns: who renames it then has all of them."""
    folder.mkdir(mode=0o700)
    for name, content in files.items():
        write_whole(folder / name, content, settle=False)
    sync_folder(folder)


def append(path: Path, content: bytes) -> None:
    """Add to a file's end; it is on disk when this returns."""
    with _naming(path), path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the file's name to an error of writing or synchronising, which has a descriptor only."""
    try:
        yield
    except OSError as failure:
        failure.filename = failure.filename or str(path)
        raise


def make_ignored_folder(folder: Path, mode: int = 0o700) -> None:
    """Make a folder for keys or results, and those above it that are missing; git ignores all that lies in them."""
    highest = folder
    while not highest.parent.is_dir():
        highest = highest.parent
    if not folder.is_dir():
        folder.mkdir(mode, parents=True, exist_ok=True)
        ignored_by_git(highest)


def ignored_by_git(folder: Path) -> None:
    """Have git ignore all that lies in a folder, by a `.gitignore` in it; one that is there, or above it, may do so."""
    held = folder.resolve()
    if not any(_ignores_all(above / ".gitignore") for above in held.parents):
        with suppress(FileExistsError):
            file = os.open(held / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as made:
                made.write(_ALL)


def is_used(folder: Path) -> bool:
    """True for a folder that holds something beside a `.gitignore`."""
    return any(path.name != ".gitignore" for path in folder.iterdir())


def _ignores_all(file: Path) -> bool:
    try:
        return file.read_text(encoding="utf-8") == _ALL
    except (OSError, UnicodeError):
        return False


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, durably, for the process's own user."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def remove_folder(folder: Path, *, settle: bool = True) -> None:
    """Delete a folder with all it holds, durably: it is renamed first, and after a kill the rest is a `remnant`.

    `settle`: what it held is gone for good; False: after a power cut some of it may be back, as a remnant.

    Raises:
        OSError: the disk refuses it.
    """
    gone = folder.with_name(f".{folder.name}.gone")
    if gone.is_dir() or gone.is_symlink():  # an earlier deletion was refused
        _delete(gone)
    if folder.is_dir() or folder.is_symlink():
        folder.replace(gone)
        sync_folder(folder.parent)
        _delete(gone)
        if settle:
            sync_folder(folder.parent)


def _delete(folder: Path) -> None:
    """Delete a folder, or a link in its place and nothing of what it leads to."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


def remnant(path: Path) -> bool:
    """True for a leftover of a crash: a draft of a file, or a folder that was being deleted."""
    return path.name.endswith(".part") or (path.name.startswith(".") and path.name.endswith(".gone"))


def sync_folder(folder: Path) -> None:
    """Make a rename or a new entry in a folder durable."""
    with _naming(folder):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


#: The key of a checksum: the last one of a line, or any of an object.
KEY = "sha256"
#: What a person does about a damaged file.
CURE = "bring a back-up of it back"
Object = dict[str, Any]


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text of any origin. Raises ValueError for none, or one nested too deeply to be ours."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Object:
    """A file that holds one JSON object; `DataError` names one that does not, or is not there."""
    try:
        return dict(parse_json(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (ValueError, TypeError):
        raise DataError(f"{path}: is damaged; {CURE}") from None


def read_document(path: Path, seed: str, content: Object | None = None) -> Object:
    """The object that a file holds, its checksum taken off. `content`: the file's, where it was read already.

    Raises:
        DataError: it is no object, has no checksum, or one that does not fit.
    """
    content = read_json(path) if content is None else content
    plain = {key: value for key, value in content.items() if key != KEY}
    try:
        fits = content.get(KEY) == _checksum(plain, seed)
    except RecursionError:  # nested more deeply than anything that was written
        fits = False
    if not fits:
        raise DataError(f"{path}: is damaged; {CURE}")
    return plain


def write_document(
    path: Path, content: Mapping[str, Any], seed: str, *, indented: bool = False, settle: bool = True
) -> None:
    """Write an object with its checksum, so that after a crash either the old or the new one is there."""
    make_folder(path.parent)
    write_whole(path, document(content, seed, indented=indented), settle=settle)


def document(content: Mapping[str, Any], seed: str, *, indented: bool = False) -> bytes:
    """An object with its checksum, as its file holds it. `indented`: for people, sorted by key."""
    plain: Object = json.loads(json.dumps(content, allow_nan=False))
    whole = {**plain, KEY: _checksum(plain, seed)}
    return json.dumps(whole, indent=1 if indented else None, sort_keys=indented).encode()


def write_bytes(path: Path, content: bytes, seed: str) -> None:
    """Write bytes with their checksum at the end, as `write_whole` does."""
    write_whole(path, content + hashlib.sha256(seed.encode() + b"\n" + content).digest())


def read_bytes(path: Path, seed: str) -> bytes:
    """The bytes of a file without their checksum; `DataError` if they are not what was written."""
    content = path.read_bytes()
    if hashlib.sha256(seed.encode() + b"\n" + content[:-32]).digest() != content[-32:]:
        raise DataError(f"{path}: is damaged; {CURE}, or cancel the job")
    return content[:-32]


def _checksum(plain: Object, seed: str) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()
