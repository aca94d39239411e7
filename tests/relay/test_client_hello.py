"""The server name in a ClientHello: found however its bytes come, and nothing else taken for one."""

from __future__ import annotations

import random
import time

import pytest

from tests.relay import hellos
from treetap.errors import Malformed
from treetap.ops.relay.client_hello import MOST_BYTES, ClientHello

NAME = "feature-b.party.treetap.internal"
PLAIN = hellos.message([hellos.GREASE, hellos.server_name(NAME.encode()), (16, b"\x00\x03\x02h2")])


def read(content: bytes, step: int = 0) -> str | None:
    """What a reader makes of bytes, all at once or `step` at a time."""
    hello, name = ClientHello(), None
    for first in range(0, len(content), step or len(content)):
        if (name := hello.feed(content[first : first + (step or len(content))])) is not None:
            return name
    return name


@pytest.mark.parametrize("step", [0, 1, 3, 100])
@pytest.mark.parametrize("size", [7, 50, 16_384])
def test_a_name_is_found_in_all_fragments(step: int, size: int) -> None:
    """In one record or many, however many bytes come at a time; GREASE and other extensions are skipped."""
    assert read(hellos.records(PLAIN, size), step) == NAME


def test_a_real_hello_is_read() -> None:
    """That of OpenSSL; of every beginning of it nothing is said."""
    content = hellos.real(NAME)
    assert read(content) == NAME
    assert {read(content[:end]) for end in range(1, len(content))} == {None}


def test_what_follows_is_kept() -> None:
    """Early data after the hello are part of what is passed on, and are not looked at."""
    hello, content = ClientHello(), hellos.records(PLAIN) + b"\x17\x03\x03\x00\x01x"
    assert hello.feed(content) == NAME
    assert bytes(hello.content) == content


def test_names_are_compared_in_small_letters() -> None:
    """As TLS compares them."""
    assert read(hellos.records(hellos.message([hellos.server_name(NAME.upper().encode())]))) == NAME


def _named(name: bytes) -> bytes:
    return hellos.records(hellos.message([hellos.server_name(name)]))


WRONG: dict[str, bytes] = {
    "plain HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "a ServerHello": hellos.records(b"\x02" + PLAIN[1:]),
    "a length beyond the bound": hellos.records(b"\x01\xff\xff\xff" + bytes(100)),
    "no server name": hellos.records(hellos.message([hellos.GREASE])),
    "no extensions": hellos.records(hellos.message([])),
    "an extension twice": hellos.records(hellos.message([hellos.server_name(b"a"), hellos.server_name(b"b")])),
    "two names": hellos.records(hellos.message([(0, hellos.vector(2 * (b"\x00" + hellos.vector(b"a", 2)), 2))])),
    "an empty list": hellos.records(hellos.message([(0, b"\x00\x00")])),
    "bytes after the list": hellos.records(hellos.message([(0, hellos.server_name(b"a")[1] + b"x")])),
    "a name of another kind": hellos.records(hellos.message([(0, hellos.vector(b"\x01" + hellos.vector(b"a", 2), 2))])),
    "an empty name": _named(b""),
    "a name with a space": _named(b"a b"),
    "a name that is no ASCII": _named("bänk".encode()),
    "a name with a line feed": _named(b"bank\n"),
    "a name too long": _named(b"a" * 254),
    "a dot at the end": _named(f"{NAME}.".encode()),
    "an address of IPv6": _named(b"::1"),
    "a session too long": hellos.records(hellos.message([hellos.server_name(b"a")], session=bytes(33))),
    "no cipher": hellos.records(hellos.message([hellos.server_name(b"a")], suites=b"")),
    "half a cipher": hellos.records(hellos.message([hellos.server_name(b"a")], suites=b"\x13")),
    "more than the bound, in records of a byte": hellos.records(hellos.message([(99, bytes(3000))]), 1),
    "more than the bound": hellos.records(hellos.message([(99, bytes(MOST_BYTES))])),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_anything_else_is_refused(content: bytes) -> None:
    """With an error by name, at once and byte by byte."""
    for step in (0, 1):
        with pytest.raises(Malformed):
            read(content, step)


def test_every_length_is_checked() -> None:
    """A field that says one byte more or less gives an error, waits for more, or leaves the name as it is."""
    for at in range(5, len(PLAIN) + 5):
        for change in (1, 255):
            content = bytearray(hellos.records(PLAIN))
            content[at] = (content[at] + change) % 256
            try:
                name = read(bytes(content))
            except Malformed:
                continue
            assert name is None or len(name) == len(NAME)


def test_any_bytes_end_by_name() -> None:
    """Fuzz: cut, changed, doubled and joined hellos raise `Malformed` or give a host name, and no other error."""
    draw = random.Random(7)
    valid = [hellos.real(NAME), hellos.records(PLAIN), hellos.records(PLAIN, 9)]
    ends = {"name": 0, "more": 0, "refused": 0}
    for _ in range(4000):
        content = bytearray(draw.choice(valid))
        for _ in range(draw.randint(0, 4)):
            at = draw.randrange(len(content))
            match draw.randrange(4):
                case 0:
                    content[at] = draw.randrange(256)
                case 1:
                    del content[at : at + draw.randint(1, 8)]
                case 2:
                    content[at:at] = draw.randbytes(draw.randint(1, 8))
                case _:
                    content += content[at:]
            content = content or bytearray(b"\x16")
        try:
            name = read(bytes(content), draw.choice((0, 0, 5)))
        except Malformed:
            ends["refused"] += 1
        else:
            ends["more" if name is None else "name"] += 1
            assert name is None or (name.isascii() and name.replace(".", "").replace("-", "").isalnum())
    assert min(ends.values()) > 100, ends


def test_a_hello_costs_little_however_slowly_it_comes() -> None:
    """Byte by byte in the shortest records it takes a few milliseconds of the processor: nothing is read twice."""
    content = hellos.records(hellos.message([(99, bytes(16_000)), hellos.server_name(b"a")]), 300)
    assert len(content) > 16_000
    began = time.process_time()
    assert read(content, 1) == "a"
    assert time.process_time() - began < 0.5
