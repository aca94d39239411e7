"""The extension: what each side learns, byte for byte as by the definition, and each stream once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.library.transfers import naive
from tests.library.transfers.pairs import SESSION, Pair
from treetap.errors import Conflict, Malformed
from treetap.transfers import extension
from treetap.transfers.extension import PAIRS, choose, message_bytes, receive, reply_bytes, send


def drawn(records, draw=0):
    """Which records are in the node, and which go left."""
    inside, left = np.random.default_rng([draw, records]).random((2, records)) < [[0.3], [0.5]]
    return inside, left


@pytest.mark.parametrize("records", [1, 63, 64, 65, 10_000, 16_384, 16_385, 100_003])
def test_the_receiver_learns_the_conjunction(records):
    """In the node and left; 16 bytes a record and an eighth, padded."""
    pair = Pair()
    inside, left = drawn(records)
    message, chosen = choose(pair.receiver, (3, 5), inside)
    reply = send(pair.sender, (3, 5), message, left)
    learnt = receive(chosen, reply)
    assert learnt.dtype == np.bool_
    np.testing.assert_array_equal(learnt, inside & left)
    assert (len(message), len(reply)) == (message_bytes(records), reply_bytes(records))
    assert len(message) + len(reply) <= 20 * records or records < 10_000


@pytest.mark.parametrize("records", [1, 63, 64, 65, 127, 128, 129, 500])
def test_transcripts_are_those_of_the_definition(monkeypatch, records):
    """Of the same seeds, at the largest tree and node that there are, over several blocks of records."""
    monkeypatch.setattr(extension, "BLOCK", 128)
    stream = (2**32 - 1, 2**64 - 1)
    pair = Pair(draw=records)
    inside, left = drawn(records)
    t, other = ([naive.column(key, stream, records) for key in keys] for keys in (pair.zeros, pair.ones))
    u = [one ^ two ^ naive.number(inside) for one, two in zip(t, other, strict=True)]
    message, chosen = choose(pair.receiver, stream, inside)
    assert message == naive.message(u, records, block=128)
    pads = naive.pads(SESSION, stream, t, records)
    assert np.unpackbits(chosen.pads, count=records, bitorder="little").tolist() == pads

    q = [(o if s else z) ^ int(s) * m for z, o, s, m in zip(t, other, pair.bits, u, strict=True)]
    ones = (1 << records) - 1
    masks = naive.pads(SESSION, stream, [col ^ int(s) * ones for col, s in zip(q, pair.bits, strict=True)], records)
    expected = naive.number([pad ^ int(bit) for pad, bit in zip(masks, left, strict=True)])
    assert send(pair.sender, stream, message, left) == expected.to_bytes(reply_bytes(records), "little")


def test_a_stream_serves_once():
    """At both parties; another node or another tree is another stream, and has other bytes."""
    pair = Pair()
    inside, left = drawn(200)
    messages = [choose(pair.receiver, stream, inside)[0] for stream in ((1, 1), (1, 2), (2, 1))]
    assert len(set(messages)) == 3
    send(pair.sender, (1, 1), messages[0], left)
    for again in (
        lambda: choose(pair.receiver, (1, 1), ~inside),
        lambda: send(pair.sender, (1, 1), messages[0], ~left),
    ):
        with pytest.raises(Conflict, match="tree 1, node 1: its left bits were transferred before"):
            again()


def test_the_mark_comes_first():
    """A mark that cannot be made prevents the use, now and later; a message that is refused costs no stream."""
    marked = []

    def mark(stream):
        marked.append(stream)
        if stream == (1, 2):
            raise OSError("no space left")

    pair = Pair(mark=mark)
    inside, left = drawn(64)
    with pytest.raises(OSError, match="no space"):
        choose(pair.receiver, (1, 2), inside)
    with pytest.raises(Conflict):
        choose(pair.receiver, (1, 2), inside)
    message, _ = choose(pair.receiver, (1, 1), inside)
    with pytest.raises(Malformed):
        send(pair.sender, (1, 1), message[:-1], left)
    assert marked == [(1, 2), (1, 1)]
    send(pair.sender, (1, 1), message, left)
    assert marked == [(1, 2), (1, 1), (1, 1)]


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("records", [64, 65])
def test_lengths_wrong_by_a_byte_are_refused(records, more):
    """By the number of records that the reader has."""
    pair = Pair()
    inside, left = drawn(records)
    message, chosen = choose(pair.receiver, (1, 1), inside)
    reply = send(pair.sender, (1, 1), message, left)
    with pytest.raises(Malformed, match=f"a choice for {records} records has {len(message)} bytes"):
        send(pair.sender, (1, 2), (message + bytes(1))[: len(message) + more], left)
    with pytest.raises(Malformed, match=f"left bits of {records} records have {len(reply)} bytes"):
        receive(chosen, (reply + bytes(1))[: len(reply) + more])


def balanced(bits):
    """True if ones are half of the bits, within five standard deviations; the draws are fixed."""
    return abs(2 * int(np.sum(bits)) - np.size(bits)) < 5 * np.sqrt(np.size(bits))


@pytest.mark.parametrize("kind", ["none", "all", "some"])
def test_the_senders_view_is_uniform(kind):
    """Bits of the message, of every column, and of its difference to others, whatever the choice is."""
    records = 16_384
    inside = {"none": np.zeros(records, bool), "all": np.ones(records, bool), "some": drawn(records)[0]}[kind]
    message, _ = choose(Pair().receiver, (1, 1), inside)
    columns = np.unpackbits(np.frombuffer(message, np.uint8).reshape(PAIRS, -1), axis=1)
    for shift in range(9):
        seen = columns ^ np.roll(columns, shift, axis=0) if shift else columns
        assert all(map(balanced, seen))
    counts = np.bincount(np.frombuffer(message, np.uint8), minlength=256)
    expected = len(message) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 5 * np.sqrt(2 * 255)


@pytest.mark.parametrize("left_share", [0.0, 0.1, 1.0])
def test_the_receivers_view_follows_from_the_conjunction(left_share):
    """Inside, the reply is the pad and the conjunction; outside it is uniform, beside the pad too and in pairs."""
    records = 100_003
    inside, _ = drawn(records)
    left = np.random.default_rng(1).random(records) < left_share
    pair = Pair()
    message, chosen = choose(pair.receiver, (1, 1), inside)
    reply = send(pair.sender, (1, 1), message, left)
    bits, pads = (
        np.unpackbits(each, count=records, bitorder="little") for each in (np.frombuffer(reply, np.uint8), chosen.pads)
    )
    np.testing.assert_array_equal(bits[inside], pads[inside] ^ (inside & left)[inside])
    outside = bits[~inside]
    for seen in (outside, outside ^ pads[~inside], outside ^ left[~inside], outside[1:] ^ outside[:-1]):
        assert balanced(seen)
