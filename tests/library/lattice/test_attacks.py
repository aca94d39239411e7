"""What the key owner and the next member could read off a member that does not flood and refresh, and not off ours.

The owner keeps every ciphertext it sent, hence all randomness and noise in them, and holds the secret key.
"""

from __future__ import annotations

import itertools

import numpy as np

from tests.library.lattice.words import with_words, words_of
from treetap.lattice.key_holder import LatticeKey
from treetap.lattice.member import MaskedSum, Member
from treetap.lattice.parameters import Parameters
from treetap.lattice.seal import api, to_bytes

N = 8192
PARAMETERS = Parameters(N, 2, 60, 20, 8, 1)
KEY = LatticeKey(PARAMETERS)
MEMBER = Member(PARAMETERS, KEY.public_bytes())
SCHEME = MEMBER.scheme
RNG = np.random.default_rng(23)


def product(mask, data):
    """mask · column as a careless member computes it, nothing added."""
    value = api.Ciphertext()
    SCHEME.evaluator.multiply_plain(SCHEME.ciphertext(data), SCHEME.encode(mask.astype(np.int64)), value)
    return value


def careless_sum(masks, sent):
    total = product(masks[0], sent[0])
    for mask, data in zip(masks[1:], sent[1:], strict=True):
        SCHEME.evaluator.add_inplace(total, product(mask, data))
    return total


def words(value):
    return words_of(SCHEME, value)


def in_ntt_form(value):
    moved = api.Ciphertext()
    SCHEME.evaluator.transform_to_ntt(value, moved)
    return moved


def decoded(coefficients):
    """The slots of a plaintext polynomial given by coefficients modulo the first prime."""
    prime = SCHEME.primes[0]
    small = [(c - prime if c > prime // 2 else c) % SCHEME.modulus for c in coefficients]
    text = " + ".join(f"{c:X}x^{power}" if power else f"{c:X}" for power, c in reversed(list(enumerate(small))) if c)
    return SCHEME.decode(api.Plaintext(text), N)


def solve_two_masks(sent, returned):
    """The owner's linear algebra: per number c₀ and c₁ give two equations in the two masks' transforms."""
    first, second, answer = (words(in_ntt_form(value)) for value in (*map(SCHEME.ciphertext, sent), returned))
    found = np.empty_like(answer)
    for j, prime in enumerate(SCHEME.primes):
        (a0, a1), (b0, b1), (r0, r1) = (numbers[:, j] for numbers in (first, second, answer))
        inverse = np.array([pow(int(d), -1, prime) for d in (a0 * b1 - a1 * b0) % prime], dtype=object)
        found[0, j] = (r0 * b1 - r1 * b0) * inverse % prime
        found[1, j] = (a0 * r1 - a1 * r0) * inverse % prime
    masks = SCHEME.ciphertext(with_words(to_bytes(in_ntt_form(MEMBER.fresh_zero())), found), ntt=True)
    SCHEME.evaluator.transform_from_ntt_inplace(masks)
    return [decoded(polynomial[0]) for polynomial in words(masks)]


def test_without_refreshing_the_owner_solves_for_every_mask():
    """Of two leaves masked and summed for 8,192 records it recovers all 16,384 bits; from a finished sum only noise."""
    sent = [KEY.encrypt(RNG.integers(-1000, 1000, N)) for _ in range(2)]
    masks = RNG.random((2, N)) < 0.5
    stolen = solve_two_masks(sent, careless_sum(masks, sent))
    assert [s.tolist() for s in stolen] == masks.astype(int).tolist()

    total = MaskedSum(MEMBER)
    for mask, data in zip(masks, sent, strict=True):
        total.add(mask, [data])
    guarded = solve_two_masks(sent, SCHEME.ciphertext(total.finish()[0]))
    for mask, noise in zip(masks, guarded, strict=True):
        assert np.count_nonzero((noise == 0) | (noise == 1)) < 10
        assert abs(np.corrcoef(mask, noise)[0, 1]) < 0.06


def budgets(candidates, sent, returned):
    """Noise budget of (returned - Σ candidate·sent), candidate by candidate: the owner's test of a guess."""
    left = []
    for masks in candidates:
        difference = api.Ciphertext()
        SCHEME.evaluator.sub(returned, careless_sum(masks, sent), difference)
        left.append(KEY.noise_budget(to_bytes(difference)))
    return left


def test_without_flooding_the_owner_tests_its_guesses_against_the_noise():
    """Under a fresh zero alone the right guess of the masks leaves the least noise; flooded, all look the same."""
    sent = [KEY.encrypt(np.array([value])) for value in (700, -300, 400)]
    truth = (True, False, True)

    def masked():
        total = MaskedSum(MEMBER)
        for kept, data in zip(truth, sent, strict=True):
            total.add(np.array([kept]), [data])
        return total

    # all choices of leaves but none at all: the library has no form for a product with zero
    guesses = [guess for guess in itertools.product((True, False), repeat=3) if any(guess)]

    def of_guess(guess):
        kept = [place for place, on in enumerate(guess) if on]
        return [np.array([True])] * len(kept), [sent[place] for place in kept]

    refreshed = SCHEME.ciphertext(masked().partial()[2][0], ntt=True)
    SCHEME.evaluator.transform_from_ntt_inplace(refreshed)
    finished = SCHEME.ciphertext(masked().finish()[0])
    against = {
        name: [budgets([of_guess(guess)[0]], of_guess(guess)[1], returned)[0] for guess in guesses]
        for name, returned in (("refreshed", refreshed), ("finished", finished))
    }
    right = guesses.index(truth)
    others = [budget for place, budget in enumerate(against["refreshed"]) if place != right]
    assert against["refreshed"][right] > max(others) + 10
    assert set(against["finished"]) == {1}


def test_without_refreshing_the_next_member_reads_the_mask_of_its_predecessor():
    """A product alone is recognised by trying masks; a passed-on ciphertext matches none, kept or dropped."""
    data = KEY.encrypt(np.array([500, 600]))
    guesses = [np.array(bits) for bits in ((True, True), (True, False), (False, True))]
    truth = guesses[1]
    naive = to_bytes(product(truth, data))
    assert [to_bytes(product(guess, data)) == naive for guess in guesses] == [False, True, False]

    for mask in (truth, np.array([False, False])):
        passed = MEMBER.pass_on(mask, data)
        numbers = words(SCHEME.ciphertext(passed))
        for guess in guesses:
            difference = (numbers - words(product(guess, data))) % np.array(SCHEME.primes, dtype=object)[:, None]
            # what is left is a fresh encryption: spread over the whole modulus, in both polynomials
            spread = (difference[:, 0] / SCHEME.primes[0]).astype(float)
            assert np.abs(spread.mean(axis=1) - 0.5).max() < 0.02
            assert np.abs(spread.var(axis=1) - 1 / 12).max() < 0.01
        assert MEMBER.pass_on(mask, data) != passed
