"""Attacks where the words of a root are summed over the records of each node: one part is missing, then it is there.

Secrets serve a whole tree there, and every node's candidates have u_k, second and first halves of their own. The twin
in Python integers plays both roles; n = 4096.
"""

from __future__ import annotations

from itertools import product as tuples

import numpy as np
import pytest

from tests.lattice.histogram_twin import (
    Twin,
    centred,
    combined,
    errors,
    fits,
    half_of,
    indicator,
    inverse,
    product,
    sizes,
    ternary,
    whole,
)
from treetap.lattice.histogram_parameters import MOST_TOLD, HistogramParameters

N = 4096


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("shared", "read", "recognised"), [("ue", True, True), ("u", False, True), ("", False, False)])
def test_one_u_for_a_node_and_its_child_shows_the_records_between(shared, read, recognised):
    """The difference of both second halves is a times the records of the sibling, the other side of another's split.

    With one e' too, as if the sibling were the hidden parent less the child's bare sums, and in full precision, linear
    algebra reads them; with an e' of its own a guess is recognised.
    """
    rng, twin = np.random.default_rng(21), Twin.of(sizes(N))
    a, a0, parent = twin.public(rng), twin.public(rng), half_of(rng)
    child = parent & half_of(rng)
    u, error = ternary(rng, N), errors(rng, N)
    own = (u if "u" in shared else ternary(rng, N), error if "e" in shared else errors(rng, N))
    halves = [twin.second_half([a], [parent], (a0, u, error)), twin.second_half([a], [child], (a0, *own))]
    algebra = product((halves[0] - halves[1]) % twin.q, inverse(a, 104)) % twin.q
    assert (algebra == indicator(parent & ~child)).all() == read
    sent = [twin.reply(half) for half in halves]
    change = (sent[0] - sent[1]) % (1 << twin.reply_bits)
    assert fits(twin, change, a, parent & ~child) == recognised
    assert not fits(twin, change, a, parent & half_of(rng))


@pytest.mark.parametrize(("shared", "located"), [(True, True), (False, False)])
def test_one_u_for_a_node_and_its_child_locates_a_sibling_of_one_record(shared, located):
    """Without a guess: the difference at one place, beside all powers of X."""
    rng, twin = np.random.default_rng(22), Twin.of(sizes(N))
    a, a0, parent, record = twin.public(rng), twin.public(rng), half_of(rng), 777
    parent[record] = True
    child = parent & (np.arange(N) != record)
    u = ternary(rng, N)
    halves = [
        twin.second_half([a], [parent], (a0, u, errors(rng, N))),
        twin.second_half([a], [child], (a0, u if shared else ternary(rng, N), errors(rng, N))),
    ]
    change = twin.reply(halves[0])[0] - twin.reply(halves[1])[0]
    at_zero = np.array([*(-a[1:]), a[0]], object)  # of a·X^(n-1-i)
    near = abs(centred(twin.reply(at_zero % twin.q) - change, twin.reply_bits)) <= 2
    assert np.flatnonzero(near).tolist() == ([record] if located else [])


# ---- refused openings


class LabelHolder:
    """Opens halves under the secrets of a tree, and refuses words with more noise than honest ones have."""

    def __init__(self, rng, job, *, ends: bool, names: bool) -> None:
        self._rng, self._job, self._twin, self._ends, self.names = rng, job, Twin.of(job), ends, names
        self.attempts = 0
        self._begin()

    def _begin(self) -> None:
        self.attempts += 1
        self.secrets = [ternary(self._rng, N) for _ in self._job.moduli]

    def refused(self, second, firsts) -> list[int]:
        """The words that are refused; all of them if it does not name them."""
        parts = zip(firsts, self.secrets, self._job.moduli, strict=True)
        shares = [self._twin.opened(first, second, secret, t)[1] for first, secret, t in parts]
        noisy = [word for word, share in enumerate(shares) if share > self._job.noise_share]
        if noisy and self._ends:
            self._begin()
        return noisy if self.names or not noisy else list(range(len(shares)))


def tried(holder, job, place, guess):
    """The words that are refused of halves that open to 0 where the secrets are as guessed.

    A secret that is 1 beside the guess puts the first opening half a step aside, one that is 2 beside it the second.
    """
    refused = set()
    for step in ((1 << job.reply_bits) // (2 * job.moduli[0]), (1 << job.reply_bits) // (4 * job.moduli[0])):
        second = np.zeros(N, np.int64)
        second[place] = step
        refused |= {*holder.refused(second, [-step * value % (1 << job.reply_bits) for value in guess])}
    return refused


@pytest.mark.parametrize(("names", "ends", "read"), [(True, False, True), (False, False, True), (False, True, False)])
def test_refusals_that_end_no_attempt_read_the_secrets(names, ends, read):
    """Lying halves add s_j at one place to a sum, and take a guess of it away: whether the sum is refused tells.

    A label holder that names the word is asked for three guesses of a place, one that does not for 27. Where a refusal
    ends the attempt, and with it the secrets, eight attempts tell a few places of secrets that are gone.
    """
    rng, job = np.random.default_rng(24), sizes(N)
    assert job.words == 3
    holder, known, most = LabelHolder(rng, job, ends=ends, names=names), [], 0
    guesses = [(value,) * 3 for value in (0, 1, -1)] if names else list(tuples((0, 1, -1), repeat=3))
    for place in range(40):
        before, of_place = holder.attempts, [None] * 3
        for guess in guesses:
            refused = tried(holder, job, place, guess)
            for word in set(range(3)) - refused:
                of_place[word] = guess[word]
            if holder.attempts > before:  # what is known is of secrets that are gone
                known, before = [], holder.attempts
            if None not in of_place or holder.attempts > job.attempts:
                break
        if holder.attempts > job.attempts:
            break
        known.append(of_place)
        most = max(most, len(known))
    right = [[int(secret[N - 1 - place]) for secret in holder.secrets] for place in range(40)]
    assert (known == right) == read
    assert read or most <= 2


# ---- comparisons


class Comparing:
    """Opens candidates of a node, and of its sibling, and says which have the largest sum of the first slot.

    After `nodes` nodes it encrypts anew, under other secrets.
    """

    def __init__(self, rng, job, nodes):
        self._rng, self._job, self._twin, self._nodes = rng, job, Twin.of(job), nodes
        self.a, self._asked = self._twin.public(rng), 0
        self.plain = whole(rng.integers(0, 2, N) + (rng.integers(0, 2, N) << job.widths[0]))

    def _encrypt(self):
        secrets = [ternary(self._rng, N) for _ in self._job.moduli]
        encoded = [self._twin.encoded(self.plain, t, self._rng) for t in self._job.moduli]
        self._secrets, own = secrets, zip(secrets, encoded, strict=True)
        self.words = [self._twin.words(self.a, secret, errors(self._rng, N), part) for secret, part in own]

    def next_node(self):
        """Go on to a node and its sibling; True if its words are new."""
        self._asked += 1
        if renewed := not (self._asked - 1) % self._nodes:
            self._encrypt()
        return renewed

    def tied(self, halves):
        """Places of the winners among halves, (second, firsts) each."""
        sums = []
        for second, firsts in halves:
            parts = zip(firsts, self._secrets, self._job.moduli, strict=True)
            opened = [self._twin.opened(first, second, secret, t) for first, secret, t in parts]
            assert all(share <= self._job.noise_share for _, share in opened)  # none is refused
            sums.append(combined([residue for residue, _ in opened], self._job.moduli) % (1 << self._job.widths[0]))
        return [place for place, total in enumerate(sums) if total == max(sums)]


@pytest.mark.second_tier
@pytest.mark.parametrize(("limited", "read"), [(False, True), (True, False)])
def test_comparisons_of_lying_candidates_read_the_secret_and_then_all_values(limited, read):
    """Copies of one candidate, each with s at another place less a guess of it: those that tie are guessed right.

    Nothing is refused, and 300 candidates read the secret of one word in 14 nodes, and with it every plaintext.
    Within the limit they read no more of it than the page's 420 places; that decrypts nothing.
    """
    rng, job = np.random.default_rng(25), HistogramParameters.choose(N, (14, 14), 2, 300, 20)
    assert (job.words, job.nodes_per_secret) == (1, 1)
    twin, holder = Twin.of(job), Comparing(rng, job, job.nodes_per_secret if limited else 1000)
    inside, step = half_of(rng), (1 << job.reply_bits) // job.moduli[0]
    second = twin.reply(twin.second_half([holder.a], [inside])).astype(np.int64)
    guessed, told = np.zeros(N, int), 0
    for first_place in range(0, N, job.candidates):
        places = range(first_place, min(first_place + job.candidates, N))
        if holder.next_node():
            guessed[:], told = 0, 0  # of secrets that are gone
        base = int(twin.reply(twin.first_half(holder.words[0], inside)))
        for guess in (1, -1):
            halves = []
            for place in places:
                lie = second.copy()
                lie[N - 1 - place] = (lie[N - 1 - place] + guess * step) % (1 << job.reply_bits)
                halves.append((lie, [(base - step) % (1 << job.reply_bits)]))
            guessed[[places[at] for at in holder.tied(halves)]] = guess
        told += len(places)  # places that are neither 1 nor -1 are 0
    words = holder.words[0]
    opened = ((words + product(holder.a, guessed)) * job.moduli[0] + twin.q // 2) // twin.q % job.moduli[0]
    assert (opened == holder.plain).mean() == (1.0 if read else 0.0)
    assert read or told <= MOST_TOLD
