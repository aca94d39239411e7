"""Owner and member: sums, refusals, bounds."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from tests.library.lattice.budgets import noise_budget
from treetap.errors import Malformed, OutOfOrder, PlaintextOverflow
from treetap.lattice.kernels import MaskedSum, Member
from treetap.lattice.parameters import Parameters
from treetap.lattice.scheme import LatticeKey, scheme_of, to_bytes

ONE = Parameters(8192, 4, 20, 8, 1)
TWO = Parameters(8192, 6, 20, 8, 2)
KEY = LatticeKey(ONE)
MEMBER = Member(ONE, KEY.public_bytes())
RNG = np.random.default_rng(11)


def random_block(columns, n):
    return RNG.integers(-30000, 30000, (columns, n)), RNG.random((columns, n)) < 0.5


@pytest.mark.parametrize("n", [1, 1000, 8192])
def test_the_opened_sum_is_the_masked_sum(n):
    """For one record up to a full block, with an empty and a full mask among them, what opens is Σ mask·column."""
    values, masks = random_block(5, n)
    masks[1], masks[2] = False, True
    total = MaskedSum(MEMBER)
    for column, mask in zip(values, masks, strict=True):
        total.add(mask, [KEY.encrypt(column)])
    (answer,) = total.finish()
    assert KEY.decrypt(answer, n).tolist() == (values * masks).sum(axis=0).tolist()
    assert noise_budget(KEY, answer) == 1  # the flooding takes all the room that the parameters leave


def test_nothing_kept_is_still_an_answer():
    """A member whose masks are all empty returns an encryption of zeros of the usual size."""
    total = MaskedSum(MEMBER)
    total.add(np.zeros(10, dtype=bool), [KEY.encrypt(np.arange(10))])
    (answer,) = total.finish()
    assert KEY.decrypt(answer, 10).tolist() == [0] * 10
    assert len(answer) == ONE.ciphertext_bytes


def test_outputs_share_masks_and_parts_merge():
    """With two outputs each has its own sum, and parts summed apart merge to the same."""
    values, masks = random_block(6, 50)
    parts = [MaskedSum(MEMBER, outputs=2) for _ in range(2)]
    for place in range(3):
        pair = [KEY.encrypt(values[2 * place]), KEY.encrypt(values[2 * place + 1])]
        parts[place % 2].add(masks[place], pair)
    parts[0].merge(parts[1])
    answers = parts[0].finish()
    for output, answer in enumerate(answers):
        expected = sum(values[2 * place + output] * masks[place] for place in range(3))
        assert KEY.decrypt(answer, 50).tolist() == expected.tolist()


def test_a_chain_multiplies_the_masks():
    """Two members, the first passing on: what opens is Σ mask₁·mask₂·column."""
    key = LatticeKey(TWO)
    public = key.public_bytes()
    first, last = Member(TWO, public), Member(TWO, public)
    values, masks = random_block(4, 300)
    others = RNG.random((4, 300)) < 0.5
    others[0] = False
    total = MaskedSum(last)
    for column, mask, other in zip(values, masks, others, strict=True):
        total.add(mask, first.pass_on(other, [key.encrypt(column)]))
    (answer,) = total.finish()
    assert key.decrypt(answer, 300).tolist() == (values * masks * others).sum(axis=0).tolist()


@pytest.mark.parametrize("parameters", [ONE, TWO])
def test_the_masked_noise_stays_below_its_bound(parameters):
    """The noise of an unflooded sum, measured with the secret key, is below the V that the argument uses."""
    key = LatticeKey(parameters)
    member = Member(parameters, key.public_bytes())
    values, masks = random_block(parameters.columns, 8192)
    total = MaskedSum(member)
    for column, mask in zip(values, masks, strict=True):
        data = key.encrypt(column)
        for _ in range(parameters.members - 1):
            (data,) = member.pass_on(~mask, [data])
        total.add(mask, [data])
    (data,) = map(to_bytes, total._sums)
    noise_bits = math.log2(parameters.modulus) - 1 - math.log2(key.modulus) - noise_budget(key, data)
    assert 20 < noise_bits <= math.log2(parameters.masked_noise)


def test_flooding_is_uniform_and_fresh():
    """Its coefficients fill [-A, A] with the mean and the spread of a uniform variable, another draw every time."""
    ring, q = scheme_of(ONE).ring, ONE.modulus
    whole = np.array([q // p * pow(q // p, -1, p) for p in ONE.primes], dtype=object)[:, np.newaxis]
    draws = []
    for _ in range(2):
        drawn = ring.flood(ONE.flood)
        ring.transform(drawn, back=True)
        numbers = (drawn.astype(object) * whole).sum(axis=0) % q
        draws.append([int(number) - q if number > q // 2 else int(number) for number in numbers])
    assert draws[0] != draws[1]
    scaled = np.array([noise / ONE.flood for noise in draws[0] + draws[1]])
    assert np.abs(scaled).max() <= 1.0
    assert np.abs(scaled).max() > 0.99
    assert abs(scaled.mean()) < 0.03
    assert abs(scaled.var() - 1 / 3) < 0.02


def test_only_the_agreed_key_is_taken():
    """Other parameters, a truncated key, a key with something behind it and a secret key are refused."""
    public = KEY.public_bytes()
    for data, word in [
        (LatticeKey(TWO).public_bytes(), "agreed"),
        (public[:20], "agreed"),
        (public[:-5], "a public key of 131099 bytes, its parameters give 131104"),
        (public + b"extra", "a public key of 131109 bytes"),
        (KEY.parameters.to_bytes() + to_bytes(KEY._secret), "a public key of 131072 bytes"),
        (public[:-4] + b"\xff" * 4, "not a public key .*: a number beyond its prime"),
    ]:
        with pytest.raises(Malformed, match=word):
            Member(ONE, data)


@pytest.mark.parametrize("where", [0, 3, 20, 60, 1000, -1])
def test_a_broken_ciphertext_is_malformed(where):
    """Truncated, cut short to a header, or of other parameters: refused by member and owner before any arithmetic."""
    data = KEY.encrypt(np.arange(5))
    for broken in (data[:where], data[:where] + b"\x00" * 2000 + data[where:], LatticeKey(TWO).encrypt(np.arange(5))):
        with pytest.raises(Malformed):
            MaskedSum(MEMBER).add(np.ones(5, dtype=bool), [broken])
        with pytest.raises(Malformed):
            MEMBER.pass_on(np.ones(5, dtype=bool), [broken])
        with pytest.raises(Malformed):
            KEY.decrypt(broken, 5)


def test_a_ciphertext_that_hides_nothing_is_malformed():
    """A pair whose second polynomial is zero is plaintext in disguise and is refused."""
    with pytest.raises(Malformed, match="hides nothing"):
        KEY.decrypt(to_bytes(np.stack([MEMBER.scheme.ring.flood(ONE.flood), MEMBER.scheme.ring.zeros()])), 5)


@pytest.mark.parametrize("place", [0, 8191, 8192, -1])
def test_a_number_beyond_its_prime_is_malformed(place):
    """Of either polynomial, the smallest such number as the largest."""
    (whole,) = MEMBER.pass_on(np.ones(5, dtype=bool), [KEY.encrypt(np.arange(5))])
    for number in (ONE.primes[place // 8192 if place >= 0 else -1], 2**32 - 1):
        words = np.frombuffer(whole, dtype="<u4").copy()
        words[place] = number
        with pytest.raises(Malformed, match="not a ciphertext of this job's parameters: a number beyond its prime"):
            KEY.decrypt(words.tobytes(), 5)


def test_a_sum_under_another_key_is_not_opened():
    """A ciphertext of the same parameters under another key has no noise budget and is refused."""
    with pytest.raises(Malformed, match="noise"):
        KEY.decrypt(LatticeKey(ONE).encrypt(np.arange(5)), 5)


def test_bounds_are_kept():
    """Too many columns, outputs, records, parts after the end, and numbers beyond t/2 raise."""
    data = KEY.encrypt(np.arange(3))
    mask = np.ones(3, dtype=bool)
    total = MaskedSum(MEMBER)
    with pytest.raises(Malformed, match="outputs"):
        total.add(mask, [data, data])
    with pytest.raises(Malformed, match="slots"):
        MEMBER.pass_on(np.ones(9000, dtype=bool), [data])
    for _ in range(ONE.columns):
        total.add(mask, [data])
    with pytest.raises(OutOfOrder, match="8 columns"):
        total.add(mask, [data])
    ended = MaskedSum(MEMBER)
    ended.finish()
    with pytest.raises(OutOfOrder, match="ended"):
        ended.finish()
    with pytest.raises(PlaintextOverflow, match="slots"):
        KEY.encrypt(np.zeros(8193, dtype=np.int64))
    for far in (KEY.modulus // 2 + 1, -(KEY.modulus // 2) - 1):
        with pytest.raises(PlaintextOverflow, match="slot"):
            KEY.encrypt(np.array([far]))
    half = KEY.modulus // 2
    assert KEY.decrypt(KEY.encrypt(np.array([half, -half])), 2).tolist() == [half, -half]


def test_the_secret_key_stays():
    """It is not pickled, copied, shown, or part of the public bytes."""
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(KEY)
    with pytest.raises(TypeError, match="not pickled"):
        copy.deepcopy(KEY)
    assert repr(KEY) == "LatticeKey(N = 8192)"
    assert to_bytes(KEY._secret)[100:400] not in KEY.public_bytes()


def test_two_encryptions_of_one_column_differ():
    """Encryption and the members' zeros are drawn afresh: nothing repeats."""
    column = np.arange(10)
    assert KEY.encrypt(column) != KEY.encrypt(column)
    assert (MEMBER.fresh_zero() != MEMBER.fresh_zero()).mean() > 0.999
