"""Base transfers against edwards25519 in integers, and what a point of low order would give."""

from __future__ import annotations

import numpy as np
import pytest
from nacl import bindings

from tests.library.psi.naive import ORDER_8
from tests.library.transfers import naive
from tests.library.transfers.pairs import SESSION
from treetap.errors import Malformed
from treetap.psi.group import ORDER, PRIME
from treetap.transfers import base
from treetap.transfers.base import CHOICE_BYTES, BaseReceiver, BaseSender
from treetap.transfers.extension import PAIRS, choose, message_bytes, receive, reply_bytes, send

BASE = bindings.crypto_scalarmult_ed25519_base_noclamp((1).to_bytes(32, "little"))
LOW = [naive.encoded(naive.multiple(number, naive.decoded(ORDER_8))) for number in (1, 2, 4, 8)]
NOT_OF_PRIME_ORDER = {
    "order 8": LOW[0],
    "order 4": LOW[1],
    "order 2": LOW[2],
    "neutral": LOW[3],
    "with a part of order 2": bindings.crypto_core_ed25519_add(BASE, LOW[2]),
    "with a part of order 8": bindings.crypto_core_ed25519_add(BASE, LOW[0]),
    "not canonical": (PRIME + 3).to_bytes(32, "little"),
    "not on the curve": (2).to_bytes(32, "little"),
}


def test_seeds_are_those_of_the_definition(monkeypatch):
    """Of every pair the receiver has the seed that its bit names; the other is of a·B - a·A."""
    numbers = iter(range(ORDER - 1, ORDER - 2 - PAIRS, -1))
    monkeypatch.setattr(base, "_exponent", lambda: next(numbers).to_bytes(32, "little"))
    sender = BaseSender(SESSION)
    receiver = BaseReceiver(SESSION, sender.point)
    seeds = {}
    monkeypatch.setattr(base, "ReceiverSeeds", lambda *told: seeds.update(sender=told))
    monkeypatch.setattr(base, "SenderSeeds", lambda *told: seeds.update(receiver=told))
    sender.seeds(receiver.choices, print)
    receiver.seeds(print)
    zeros, ones, *_ = seeds["sender"]
    bits, chosen, *_ = seeds["receiver"]
    assert 20 < bits.sum() < PAIRS - 20

    generator = naive.decoded(BASE)
    point = naive.multiple(ORDER - 1, generator)
    assert sender.point == naive.encoded(point)
    for j in range(0, PAIRS, 9):
        own = naive.multiple(ORDER - 2 - j, generator)
        sent = naive.encoded(naive.added(own, point) if bits[j] else own)
        assert receiver.choices[32 * j : 32 * j + 32] == sent
        shared = naive.encoded(naive.multiple(ORDER - 2 - j, point))
        assert chosen[j] == (zeros, ones)[bits[j]][j] == naive.seed(SESSION, sender.point, sent, shared, j)
        lowered = naive.added(naive.decoded(sent), naive.multiple(ORDER - 1, point))  # B - A
        assert ones[j] == naive.seed(SESSION, sender.point, sent, naive.encoded(naive.multiple(ORDER - 1, lowered)), j)
    assert len({*zeros, *ones}) == 2 * PAIRS


@pytest.mark.parametrize("session", [SESSION, SESSION + b"2"])
def test_transfers_over_both_steps(session):
    """Drawn by the operating system; another session gives other seeds, and then nothing is right."""
    rng = np.random.default_rng(0)
    inside, left = rng.random((2, 1000)) < 0.5
    sender = BaseSender(SESSION)
    receiver = BaseReceiver(session, sender.point)
    message, chosen = choose(sender.seeds(receiver.choices, lambda stream: None), (1, 2), inside)
    reply = send(receiver.seeds(lambda stream: None), (1, 2), message, left)
    assert (len(sender.point), len(receiver.choices)) == (32, CHOICE_BYTES)
    assert (len(message), len(reply)) == (message_bytes(1000), reply_bytes(1000))
    wrong = int((receive(chosen, reply) ^ (inside & left)).sum())
    assert wrong == 0 if session == SESSION else 150 < wrong < 350


def test_every_attempt_draws_anew():
    """Points, bits and all: nothing is kept from one to the next."""
    first, second = BaseSender(SESSION), BaseSender(SESSION)
    sent = [BaseReceiver(SESSION, first.point).choices for _ in range(2)]
    assert first.point != second.point
    assert len({choices[at : at + 32] for choices in sent for at in range(0, CHOICE_BYTES, 32)}) == 2 * PAIRS


@pytest.mark.parametrize("name", NOT_OF_PRIME_ORDER)
def test_points_that_are_not_of_prime_order_are_refused(name):
    """By both: as A, and as the last B among good ones."""
    point = NOT_OF_PRIME_ORDER[name]
    with pytest.raises(Malformed, match="not of prime order"):
        BaseReceiver(SESSION, point)
    sender = BaseSender(SESSION)
    good = BaseReceiver(SESSION, sender.point).choices
    sender.seeds(good, print)
    with pytest.raises(Malformed, match="not of prime order"):
        sender.seeds(good[:-32] + point, print)


@pytest.mark.parametrize("more", [-1, 1])
def test_lengths_wrong_by_a_byte_are_refused(more):
    """Before anything is computed."""
    sender = BaseSender(SESSION)
    choices = BaseReceiver(SESSION, sender.point).choices
    with pytest.raises(Malformed, match=f"32 bytes of points, not {32 + more}"):
        BaseReceiver(SESSION, (sender.point + bytes(1))[: 32 + more])
    with pytest.raises(Malformed, match=f"4096 bytes of points, not {4096 + more}"):
        sender.seeds((choices + bytes(1))[: 4096 + more], print)


@pytest.mark.parametrize("order", [2, 8])
def test_a_part_of_low_order_would_show_the_bits(monkeypatch, order):
    """The attack of a label holder whose A has such a part T, on a feature party that does not check: ℓ·B = s·ℓ·T."""
    monkeypatch.setattr(bindings, "crypto_core_ed25519_is_valid_point", lambda point: True)
    monkeypatch.setattr(bindings, "crypto_scalarmult_ed25519_noclamp", lambda secret, point: point)  # checks by itself

    def read(point):
        receiver = BaseReceiver(SESSION, point)
        sent = [receiver.choices[at : at + 32] for at in range(0, CHOICE_BYTES, 128)]
        return [naive.multiple(ORDER, naive.decoded(each)) != naive.NEUTRAL for each in sent], receiver._bits[
            ::4
        ].tolist()

    shown, bits = read(NOT_OF_PRIME_ORDER[f"with a part of order {order}"])
    assert shown == list(map(bool, bits))
    control, _ = read(BASE)
    assert not any(control)
