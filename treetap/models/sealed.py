"""Files of a state folder under a state key: frames of AES-256-GCM, each under a key of its own.

A file is :data:`MAGIC`, the key's id, a random id of the file, and frames: the length of the rest (4 bytes,
big-endian), CRC-32 of it and of the 16 bytes before the frame, a random salt of 24 bytes, ciphertext, tag. The key of a
frame is HMAC-SHA256 of its salt under the state key, so it encrypts once, under nonce 0: no counter must survive a
crash, a cut end or a back-up. Two of n frames share a salt with a chance below n²·2^-193.

Associated data: key id, place of the file in the state folder, which names its job, number of the frame, the 16 bytes
before it (the last tag, or the file's id), and if it ends the file. So a frame that is changed, moved, left out or of
another file is found. A file that grows has no last frame: what is cut off its end at a frame is not found here.
"""

from __future__ import annotations

import hmac
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, NoReturn

from treetap.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: The begin of every sealed file.
MAGIC = b"treetap sealed 1\n"
KEY_BYTES, ID_BYTES, _FILE, _SALT, _TAG, _HEAD = 32, 8, 16, 24, 16, 8
#: Bytes before the first frame.
HEADER_BYTES = len(MAGIC) + ID_BYTES + _FILE
#: Bytes that a frame adds to what it holds.
ADDED = _HEAD + _SALT + _TAG
_PART = 1 << 20  # plain bytes of a frame of a file that is written whole
_SECTOR = 512
_BLOCK = 1 << 20
_MOST_ZEROS = 80 * 2**20
_HEX = re.compile(r"[0-9a-fA-F]{64}")


class WrongKey(DataError):
    """A file is sealed under another key than is given, or in clear where there is one: it is not damaged."""


class StateKey:
    """A state key: 32 random bytes. It is never pickled, so that no process but this one has it."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a state key has {KEY_BYTES} bytes, not {len(secret)}")
        self._secret = secret
        self.id = hmac.digest(secret, b"treetap state key id", "sha256")[:ID_BYTES]

    @classmethod
    def of_text(cls, text: str, named: str) -> StateKey:
        """The key of 64 hexadecimal digits; `named`: its place in the configuration.

        Raises:
            ConfigError: the text is something else, which the error does not show.
        """
        if not _HEX.fullmatch(text.strip()):
            raise ConfigError(f"{named}: must hold 64 hexadecimal digits, 32 random bytes: openssl rand -hex 32")
        return cls(bytes.fromhex(text.strip()))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a state key stays in its process")

    def __repr__(self) -> str:
        return f"StateKey({self.id.hex()})"

    def seal(self, plain: bytes, data: bytes) -> bytes:
        """Salt, ciphertext and tag of plain bytes, under a key of their own; `data`: the associated data."""
        salt = os.urandom(_SALT)
        return salt + self._of(salt).encrypt(bytes(12), plain, data)

    def open(self, sealed: bytes, data: bytes) -> bytes | None:
        """The plain bytes; None where they were not sealed by this key with these data."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._of(sealed[:_SALT]).decrypt(bytes(12), sealed[_SALT:], data))
        except InvalidTag:
            return None

    def _of(self, salt: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # which a party without a state key never needs

        return AESGCM(hmac.digest(self._secret, b"treetap state frame" + salt, "sha256"))


class Place(NamedTuple):
    """The place of a frame in its file; `length` is that of salt, ciphertext and tag, 0 of a torn end."""

    number: int
    offset: int
    previous: bytes
    length: int

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.offset + _HEAD + self.length


class Frames:
    """The frames of one file.

    Attributes:
        header: the bytes before the first one.
    """

    def __init__(self, path: Path, place: str, key: StateKey, header: bytes) -> None:
        self.path, self.header, self._key = path, header, key
        self._data = header[: len(MAGIC) + ID_BYTES] + len(place.encode()).to_bytes(4, "big") + place.encode()

    def sealed(self, number: int, previous: bytes, plain: bytes, *, last: bool = False) -> bytes:
        """Frame `number`, from 0, of a file whose 16 bytes before it are `previous`."""
        body = self._key.seal(plain, self._bound(number, previous, last=last))
        return _head(len(body), previous) + body

    def after(self, before: bytes) -> bytes:
        """The 16 bytes that the next frame is bound to, from the file's bytes before it."""
        return before[-_TAG:]

    def opened(self, file: BinaryIO, place: Place, *, last: bool = False) -> bytes:
        """The plain bytes of a frame. Raises DataError."""
        plain = self._tried(file, place, last=last)
        if plain is None:
            raise DataError(f"{self.path}: frame {place.number} was changed, moved or is of another file; {_BACK}")
        return plain

    def located(self, file: BinaryIO) -> Iterator[Place]:
        """The frames of a file that grows, in order; after the whole ones a torn end, if there is one.

        Raises:
            DataError: a length was changed.
        """
        size = os.fstat(file.fileno()).st_size if not isinstance(file, io.BytesIO) else len(file.getbuffer())
        written = written_of(file, size, _MOST_ZEROS)
        number, at, previous = 0, HEADER_BYTES, self.header[-_TAG:]
        while at < size:
            file.seek(at)
            head = file.read(_HEAD)
            length = int.from_bytes(head[:4], "big")
            place = Place(number, at, previous, length)
            if head == _head(length, previous) and length >= _SALT + _TAG:
                zeros = place.end > written and zeroed(at + _HEAD, written, size)
                if place.end <= size and not (zeros and self._tried(file, place) is None):
                    yield place
                    file.seek(place.end - _TAG)
                    number, at, previous = number + 1, place.end, file.read(_TAG)
                    continue
            elif len(head) == _HEAD and not zeroed(at + _HEAD, written, size):
                raise DataError(f"{self.path}: the length of frame {number} was changed; {_BACK}")
            yield place._replace(length=0)
            return

    def _tried(self, file: BinaryIO, place: Place, *, last: bool = False) -> bytes | None:
        file.seek(place.offset + _HEAD)
        return self._key.open(file.read(place.length), self._bound(place.number, place.previous, last=last))

    def _bound(self, number: int, previous: bytes, *, last: bool) -> bytes:
        return self._data + number.to_bytes(8, "big") + previous + bytes([last])


class Seal:
    """The sealing of one state folder's files under its key.

    Attributes:
        root: the state folder.
        key: its key.
    """

    def __init__(self, root: Path, key: StateKey, covers: Callable[[str], bool]) -> None:
        """`covers`: True for the place of a file, below the folder, that is sealed; the others are in clear."""
        self.root, self.key, self._covers = root.absolute(), key, covers

    def __reduce__(self) -> NoReturn:
        raise TypeError("a state key stays in its process")

    def covers(self, path: Path) -> bool:
        """True for a file of the folder that is sealed."""
        return path.absolute().is_relative_to(self.root) and self._covers(self.place(path))

    def place(self, path: Path) -> str:
        """The place of a file in the state folder, with slashes; `ValueError` for one elsewhere."""
        return path.absolute().relative_to(self.root).as_posix()

    def begun(self, path: Path) -> Frames:
        """The frames of a file that is written anew."""
        return Frames(path, self.place(path), self.key, MAGIC + self.key.id + os.urandom(_FILE))

    def continued(self, path: Path, header: bytes) -> Frames:
        """The frames of a file that begins with `header`. Raises WrongKey where it is in clear or of another key."""
        if not header.startswith(MAGIC) or len(header) < HEADER_BYTES:
            raise WrongKey(
                f"{path}: is not encrypted, though there is a state_key: stop the party and run treetap state rotate, "
                "or bring a back-up of the file back"
            )
        if (of := header[len(MAGIC) :][:ID_BYTES]) != self.key.id:
            raise WrongKey(
                f"{path}: is encrypted with state key {of.hex()}, not with {self.key.id.hex()}: bring a back-up back "
                "that has this key, or end treetap state rotate"
            )
        return Frames(path, self.place(path), self.key, header[:HEADER_BYTES])

    def whole(self, path: Path, plain: bytes) -> bytes:
        """The bytes of a file that is written whole, as the one at `path`."""
        frames = self.begun(path)
        content = bytearray(frames.header)
        starts = range(0, max(1, len(plain)), _PART)
        for number, start in enumerate(starts):
            part = plain[start : start + _PART]
            content += frames.sealed(number, bytes(content[-_TAG:]), part, last=number + 1 == len(starts))
        return bytes(content)

    def opened(self, path: Path, content: bytes) -> bytes:
        """The plain bytes of a file that was written whole. Raises DataError, also for one that is cut short."""
        frames, file = self.continued(path, content[:HEADER_BYTES]), io.BytesIO(content)
        places = list(frames.located(file))
        if not places or not places[-1].length:
            raise DataError(f"{path}: frame {max(0, len(places) - 1)} is cut short; {_BACK}")
        return b"".join(frames.opened(file, place, last=place is places[-1]) for place in places)

    def added(self, path: Path, kept: int, number: int, plains: Sequence[bytes]) -> list[bytes]:
        """Frames from `number` on, for the end of a file that grows, of which the first `kept` bytes stay.

        The first has the file's header before it where nothing stays. Raises DataError.
        """
        if kept:
            with path.open("rb") as file:
                frames = self.continued(path, file.read(HEADER_BYTES))
                file.seek(kept - _TAG)
                before, begin = file.read(_TAG), b""
        else:
            frames = self.begun(path)
            before = begin = frames.header
        added = []
        for place, plain in enumerate(plains, start=number):
            frame = frames.sealed(place, frames.after(before), plain)
            added.append(begin + frame)
            before, begin = frame, b""
        return added

    def growing(self, path: Path, content: bytes) -> list[tuple[bytes, int]]:
        """The whole frames of a file that grows, each with the byte after it. Raises DataError."""
        if not content:
            return []
        frames, file = self.continued(path, content[:HEADER_BYTES]), io.BytesIO(content)
        return [(frames.opened(file, place), place.end) for place in frames.located(file) if place.length]


_BACK = "bring a back-up of the file back"


def is_sealed(path: Path) -> bool:
    """True for a file that begins as a sealed one."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def require_clear(path: Path, begin: bytes) -> None:
    """Raise WrongKey for a file that begins as a sealed one, where there is no key."""
    if begin.startswith(MAGIC):
        of = begin[len(MAGIC) :][:ID_BYTES].hex()
        raise WrongKey(
            f"{path}: is encrypted with state key {of}: give the configuration of its party, which has state_key, or "
            "read what treetap state export writes"
        )


def _head(length: int, previous: bytes) -> bytes:
    size = length.to_bytes(4, "big")
    return size + zlib.crc32(size + previous).to_bytes(4, "big")


def zeroed(begun: int, written: int, size: int) -> bool:
    """True if the zeros after byte `written` are what a power loss leaves of a record, whose head ends at `begun`."""
    return written <= begun < size or -(-written // _SECTOR) * _SECTOR < size


def written_of(file: BinaryIO, size: int, most: int) -> int:
    """The file's size without the zeros at its end; at most as many zeros are read as a power loss can leave."""
    begin, step = size, 1
    while begin > max(0, size - most):
        end, begin = begin, max(0, begin - step)
        file.seek(begin)
        if block := file.read(end - begin).rstrip(b"\0"):
            return begin + len(block)
        step = _BLOCK
    return begin
