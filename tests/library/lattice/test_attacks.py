"""What the key owner and the next member could read off a member that does not flood and refresh, and not off ours.

The owner keeps every ciphertext it sent, hence all randomness and noise in them, and holds the secret key.
"""

from __future__ import annotations

import itertools

import numpy as np

from tests.library.lattice.budgets import noise_budget
from treetap.lattice.kernels import MaskedSum, Member
from treetap.lattice.parameters import Parameters
from treetap.lattice.scheme import LatticeKey, to_bytes

N = 8192
PARAMETERS = Parameters(N, 4, 20, 8, 1)
KEY = LatticeKey(PARAMETERS)
MEMBER = Member(PARAMETERS, KEY.public_bytes())
SCHEME = MEMBER.scheme
RING = SCHEME.ring
RNG = np.random.default_rng(23)


def product(mask, data):
    """mask · column as a careless member computes it, nothing added."""
    value = np.zeros((2, *RING.shape), dtype=np.uint32)
    MEMBER.add_product(value, RING.mask(mask), data)
    return value


def careless_sum(masks, sent):
    total = product(masks[0], sent[0])
    for mask, data in zip(masks[1:], sent[1:], strict=True):
        for kept, other in zip(total, product(mask, data), strict=True):
            RING.add(kept, other)
    return total


def decoded(values):
    """The slots of a plaintext polynomial with small coefficients, given by its values modulo the first prime."""
    values = np.array([values, *([np.zeros(N)] * (RING.shape[0] - 1))]).astype(np.uint32)
    RING.transform(values, back=True)
    prime = int(RING.primes[0, 0])
    small = [(int(c) - prime if c > prime // 2 else int(c)) % RING.plain for c in values[0]]
    # a plaintext is opened from an encryption of it without noise: (q/t)·m rounded
    scaled = np.array(
        [[(PARAMETERS.modulus * c + RING.plain // 2) // RING.plain % p for c in small] for p in PARAMETERS.primes]
    )
    scaled = scaled.astype(np.uint32)
    RING.transform(scaled)
    return RING.decrypt(RING.zeros(), np.stack([scaled, RING.uniform(bytes(32))]))


def solve_two_masks(sent, returned):
    """The owner's linear algebra: per value c₀ and c₁ give two equations in the two masks' transforms."""
    prime = PARAMETERS.primes[0]
    (a0, a1), (b0, b1), (r0, r1) = (value[:, 0].astype(object) for value in (*map(SCHEME.ciphertext, sent), returned))
    inverse = np.array([pow(int(d), -1, prime) for d in (a0 * b1 - a1 * b0) % prime], dtype=object)
    return decoded((r0 * b1 - r1 * b0) * inverse % prime), decoded((a0 * r1 - a1 * r0) * inverse % prime)


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


def minus(left, right):
    return ((left.astype(np.int64) - right) % RING.primes).astype(np.uint32)


def budgets(candidates, sent, returned):
    """Noise budget of (returned - Σ candidate·sent), candidate by candidate: the owner's test of a guess."""
    left = []
    for masks in candidates:
        left.append(noise_budget(KEY, to_bytes(minus(returned, careless_sum(masks, sent)))))
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

    guesses = [guess for guess in itertools.product((True, False), repeat=3) if any(guess)]

    def of_guess(guess):
        kept = [place for place, on in enumerate(guess) if on]
        return [np.array([True])] * len(kept), [sent[place] for place in kept]

    refreshed = masked()._sums[0]
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
    naive = product(truth, data)
    assert [(product(guess, data) == naive).all() for guess in guesses] == [False, True, False]

    for mask in (truth, np.array([False, False])):
        (passed,) = MEMBER.pass_on(mask, [data])
        for guess in guesses:
            # what is left is a fresh encryption: spread over the whole range of each prime, in both polynomials
            spread = minus(SCHEME.ciphertext(passed), product(guess, data)) / RING.primes
            assert np.abs(spread.mean(axis=-1) - 0.5).max() < 0.02
            assert np.abs(spread.var(axis=-1) - 1 / 12).max() < 0.01
        assert MEMBER.pass_on(mask, [data]) != [passed]
