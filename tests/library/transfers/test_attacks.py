"""What each rule of the extension prevents: the attack works where the rule is left out."""

from __future__ import annotations

import numpy as np

from tests.library.transfers.pairs import SESSION, Pair
from tests.library.transfers.test_extension import balanced, drawn
from treetap.transfers import extension
from treetap.transfers.extension import PAIRS, choose, receive, send

RECORDS = 8192


def bits_of(packed, records=RECORDS):
    """Bits of bytes, the lowest first."""
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=records, bitorder="little").astype(bool)


def columns_of(message):
    """The bits of a message's columns, shape (128, n)."""
    return np.array([bits_of(column) for column in np.frombuffer(message, np.uint8).reshape(PAIRS, -1)])


def test_a_stream_again_would_show_how_the_node_changed():
    """To the sender, in each column; and to the receiver how the left bits did, outside of the node too."""
    pair = Pair()
    (inside, left), (other_inside, other_left) = drawn(RECORDS), drawn(RECORDS, draw=1)
    first, _ = choose(pair.receiver, (1, 1), inside)
    reply = send(pair.sender, (1, 1), first, left)
    pair.forget()
    second, _ = choose(pair.receiver, (1, 1), other_inside)
    for shown in columns_of(first) ^ columns_of(second):
        np.testing.assert_array_equal(shown, inside ^ other_inside)
    again = send(pair.sender, (1, 1), first, other_left)
    np.testing.assert_array_equal(bits_of(reply) ^ bits_of(again), left ^ other_left)
    control, _ = choose(pair.receiver, (1, 2), other_inside)
    assert all(balanced(shown ^ inside ^ other_inside) for shown in columns_of(first) ^ columns_of(control))


def test_rows_of_a_chosen_difference_have_independent_pads():
    """Equal rows would share one without the number, and rows that differ as their numbers do with one permutation of
    row ⊕ number: then y ⊕ y' were x ⊕ x'.
    """
    permutation, numbers = Pair().receiver.begin((1, 1)), np.arange(RECORDS, dtype=np.uint64)
    equal = np.full((RECORDS, 2), 0x0123456789ABCDEF, dtype=np.uint64)
    apart = equal.copy()
    apart[:, 0] ^= numbers
    assert len({int(extension._hashed(permutation, row[None], 0)[0]) for row in equal}) == 1
    permuted = permutation.update(np.column_stack([apart[:, 0] ^ numbers, apart[:, 1]]).tobytes())
    assert permuted == permuted[:16] * RECORDS
    for rows in (equal, apart):
        found = extension._hashed(permutation, rows, 0)
        assert balanced(found)
        assert balanced(found[1:] ^ found[:-1])


def test_streams_attempts_and_pairs_have_pads_of_their_own():
    """Of the same rows; a session names attempt and parties."""
    rows = np.random.default_rng(0).integers(0, 2**64, (RECORDS, 2), dtype=np.uint64)
    pair = Pair()
    permutations = [pair.receiver.begin(stream) for stream in ((1, 1), (1, 2), (2, 1))]
    permutations += [extension.Seeds(SESSION[:-1], pair.mark).begin((1, 1))]
    pads = [extension._hashed(permutation, rows, 0) for permutation in permutations]
    assert all(balanced(pads[one] ^ pads[two]) for one in range(4) for two in range(one))


def test_a_liar_reads_what_choosing_all_reads():
    """By a choice that differs between columns the receiver finds every s_j, for which it has to know left bits; with s
    it opens what it did not choose. That is what a node of all records gives it without a lie, hence no check for lies.
    """
    pair = Pair()
    _, left = drawn(RECORDS)
    everything, chosen = choose(pair.receiver, (1, 1), np.ones(RECORDS, bool))
    by_choosing_all = receive(chosen, send(pair.sender, (1, 1), everything, left))
    np.testing.assert_array_equal(by_choosing_all, left)

    honest, _ = choose(pair.receiver, (1, 2), np.ones(RECORDS, bool))
    each = RECORDS // PAIRS
    lie = np.frombuffer(honest, np.uint8).reshape(PAIRS, -1).copy()
    for j in range(PAIRS):
        lie[j, each * j // 8 : each * (j + 1) // 8] ^= 255  # records of stretch j are chosen by all columns but j
    seen = bits_of(send(pair.sender, (1, 2), lie.tobytes(), left)) ^ left
    rows = extension._rows(extension._expanded(extension._streams(pair.receiver.zeros, (1, 2)), RECORDS // 64))
    pair.forget()
    permutation = pair.receiver.begin((1, 2))
    told = extension._hashed(permutation, rows, 0) == seen
    found = ~told.reshape(PAIRS, each).all(axis=1)
    np.testing.assert_array_equal(found, pair.bits)

    nothing, _ = choose(pair.receiver, (1, 3), np.zeros(RECORDS, bool))
    reply = send(pair.sender, (1, 3), nothing, left)
    rows = extension._rows(extension._expanded(extension._streams(pair.receiver.zeros, (1, 3)), RECORDS // 64))
    pair.forget()
    row = np.packbits(found, bitorder="little").view(np.uint64)
    opened = extension._hashed(pair.receiver.begin((1, 3)), rows ^ row, 0) ^ bits_of(reply)
    np.testing.assert_array_equal(opened, by_choosing_all)
