"""Change of a state key, file by file, and the export of transcripts in clear; the party is stopped meanwhile.

A file is read under its old key and written whole under the new one, by one rename. So after a kill every file has one
of the two, which its first bytes say, and the same command goes on. A file in clear, or none, is a key like another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from party.runtime.job_store import KEY_FILE, TRANSCRIPTS, Store
from party.runtime.state_key import Noted, checked, files_of_records, noted, seal_of
from treetap.errors import BadInput, ConfigError, DataError
from treetap.models.checksums import whole_lines
from treetap.models.durable import make_folder, read_whole, sync_folder, write_whole
from treetap.models.sealed import HEADER_BYTES, ID_BYTES, MAGIC, Seal, StateKey, is_sealed
from treetap.wire.tap_file import HEADER, files_of, frames, opened

_NONE = "none"
_TORN = b"\1"  # too short for a record's length: it reads as torn


def rotate(state: Path, now: StateKey | None, former: StateKey | None) -> int:
    """Give every file of records the key `now`, or none; returns the number of files that were written.

    Raises:
        ConfigError: the folder has a key that is neither, or a rotation to another one has begun.
        DataError, Malformed: a file is damaged, of another key, or in clear where it must not be; those before it have
            the new key, and the same command goes on.
    """
    keys, own = {key.id.hex(): key for key in (now, former) if key is not None}, "" if now is None else now.id.hex()
    known = _begun(state, keys, own)
    Store(state)  # which deletes what a crash has left
    from_clear = now is not None and list(known.checks) == [own] and known.to == own
    seals: dict[str, Seal | None] = {name: seal_of(state, key) for name, key in keys.items()}
    written = 0
    for path in files_of_records(state):
        if (has := _key_of(path)) == own or not path.stat().st_size:
            continue
        if has == "" and not from_clear:
            raise DataError(f"{path}: is not encrypted, as the others are: bring a back-up back, or move it away")
        if has not in {"", _NONE, *seals}:
            raise DataError(f"{path}: is encrypted with state key {has}: name its place as former_state_key")
        write_whole(path, b"" if has == _NONE else _again(path, seals.get(has), seals.get(own)))
        written += has != _NONE
    if now is None:
        (state / KEY_FILE).unlink(missing_ok=True)
        sync_folder(state)
    else:
        Noted({own: checked(now)}).write(state)
    return written


def _begun(state: Path, keys: Mapping[str, StateKey], own: str) -> Noted:
    """The folder's note while it gets the key of id `own`; raises as `rotate`, and changes nothing then."""
    known = noted(state)
    if known is None:
        if not own:
            raise ConfigError(f"state_key: is not there, and {state} has none: there is nothing to rotate")
        if any(map(is_sealed, files_of_records(state))):
            raise ConfigError(f"{state / KEY_FILE}: is not there, and files are encrypted; bring a back-up of it back")
    held = {} if known is None else known.checks
    if known is not None and known.to not in (None, own):
        to = f"state key {known.to}" if known.to else "clear"
        raise ConfigError(f"state_key: a rotation of {state} to {to} was interrupted: end that one first")
    for name in held:
        if name not in keys:
            raise ConfigError(f"former_state_key: {state} has files of state key {name}: name its place here")
        if known is not None and not known.knows(keys[name]):
            raise ConfigError(f"{state / KEY_FILE}: does not fit state key {name}; bring a back-up of the file back")
    if known is None or known.to is None:
        make_folder(state)
        checks = held if not own or own in held else {**held, own: checked(keys[own])}
        known = Noted(dict(checks), None if list(held) == [own] else own)
        known.write(state)
    return known


def export_transcripts(state: Path, seal: Seal | None, job: str, folder: Path) -> list[Path]:
    """Write a job's transcript in clear, record by record as it was signed; returns the files.

    Raises:
        BadInput: there is no transcript of that job, or the folder has files.
        Malformed: one is damaged.
    """
    kept = state / TRANSCRIPTS / job
    if not kept.is_dir() or not (files := files_of(kept)):
        raise BadInput(f"{kept}: holds no transcript")
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput(f"{folder}: is not empty: name a new folder")
    make_folder(folder)
    written = []
    for _, path in sorted(files.items()):
        write_whole(folder / path.name, _joined(path, *_parts(path, seal), None))
        written.append(folder / path.name)
    for rows in sorted(kept.glob("*.own")):
        write_whole(folder / rows.name, read_whole(rows, seal))
        written.append(folder / rows.name)
    return written


def _key_of(path: Path) -> str:
    """The id of the key of a file, empty of one in clear; `_NONE` of a transcript that a crash cut in its begin."""
    with path.open("rb") as file:
        begin = file.read(HEADER_BYTES)
    least = len(MAGIC) + ID_BYTES if begin.startswith(MAGIC) else len(HEADER)
    if path.suffix == ".tap" and len(begin.rstrip(b"\0")) < least:
        return _NONE
    return begin[len(MAGIC) :][:ID_BYTES].hex() if begin.startswith(MAGIC) else ""


def _again(path: Path, old: Seal | None, new: Seal | None) -> bytes:
    """The content of a file under another key."""
    if path.suffix not in (".tap", ".jsonl"):
        content = path.read_bytes()
        plain = content if old is None else old.opened(path, content)
        return plain if new is None else new.whole(path, plain)
    return _joined(path, *_parts(path, old), new)


def _parts(path: Path, seal: Seal | None) -> tuple[list[bytes], bool]:
    """The frames or lines of a file that grows, and True if a crash tore the end of a transcript's."""
    if path.suffix == ".tap":
        with opened(path) as file:
            records = list(frames(path, file, seal))
            packed = [frame.packed() for frame in records if frame.whole]
        return [HEADER, *packed], any(not frame.whole for frame in records)
    content = path.read_bytes()
    if seal is not None:
        return [line for line, _ in seal.growing(path, content)], False
    return whole_lines(content), False


def _joined(path: Path, parts: Sequence[bytes], torn: bool, seal: Seal | None) -> bytes:
    if seal is not None:
        return b"".join(seal.added(path, 0, 0, parts)) + (_TORN if torn else b"")
    if path.suffix == ".tap":
        records = (len(part).to_bytes(4, "big") + part for part in parts[1:])
        return b"".join((parts[0], *records, _TORN if torn else b""))
    return b"".join(parts)
