"""Attacks on encrypted histograms: each reads sets, secrets or plaintexts with one part missing, and fails with it.

The label holder wants the records of a feature party's candidates, the feature party wants plaintexts. Both roles are
those of the twin in Python integers; n = 4096 but where a test says otherwise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from tests.lattice.histogram_twin import (
    Twin,
    at_end,
    centred,
    combined,
    errors,
    fits,
    flood,
    half_of,
    indicator,
    inverse,
    product,
    sizes,
    ternary,
    whole,
)
from treetap.lattice.histogram_parameters import FLOOD_INFORMATION
from treetap.trees.slots import Slots

N = 4096


def hidden(twin, rng, a, inside, *parts):
    """A second half in full precision, with the named parts of a0·u and e' alone."""
    u, error = (ternary(rng, N) if "u" in parts else np.zeros(N, int)), (errors(rng, N) if "e" in parts else 0)
    return twin.second_half([a], [inside], (twin.public(rng), u, error))


def test_without_u_and_error_a_set_is_read_by_linear_algebra():
    """Without u_k and e' a second half in full precision times 1/a is the indicator, of all 4,096 records at once."""
    rng, twin = np.random.default_rng(1), Twin.of(sizes(N))
    a, inside = twin.public(rng), half_of(rng)
    undone = inverse(a, twin.modulus_bits)
    for parts, readable in (((), True), (("e",), False), (("u",), False), (("u", "e"), False)):
        read = product(hidden(twin, rng, a, inside, *parts), undone) % twin.q
        assert (read == indicator(inside)).all() == readable
        assert readable or np.isin(read, (0, 1)).sum() == 0


def test_without_u_a_guess_is_recognised():
    """e' and the rounding of replies withstand linear algebra; but without u_k the label holder recognises a guess."""
    rng, twin = np.random.default_rng(2), Twin.of(sizes(N))
    a, right, wrong = twin.public(rng), half_of(rng), half_of(rng)
    for parts, recognised in ((("e",), True), (("u", "e"), False)):
        second = twin.reply(hidden(twin, rng, a, right, *parts))
        assert fits(twin, second, a, right) == recognised
        assert not fits(twin, second, a, wrong)


@pytest.mark.parametrize(("parts", "located"), [(("e",), True), (("u", "e"), False)])
def test_without_u_a_bin_of_one_record_is_located(parts, located):
    """Two neighbouring candidates whose sets differ by one record: the difference is a times a power of X."""
    rng, twin = np.random.default_rng(3), Twin.of(sizes(N))
    a, inside, record = twin.public(rng), half_of(rng), 1234
    inside[record] = False
    more = inside | (np.arange(N) == record)
    change = hidden(twin, rng, a, more, *parts) - hidden(twin, rng, a, inside, *parts)
    at_zero = np.array([-a[place + 1] if place < N - 1 else a[0] for place in range(N)], object)  # of a·X^(n-1-i)
    near = abs(centred(twin.reply(at_zero % twin.q) - twin.reply(change[0] % twin.q), twin.reply_bits)) <= 2
    assert np.flatnonzero(near).tolist() == ([record] if located else [])


def noises(twin, rng, records, sets, queries):
    """The noise that the label holder sees in words of zeros, in full precision, with all it knows about them.

    Returns:
        Noises (queries·r, sets) before any flood, and errors (queries·r, records).
    """
    a = [twin.public(rng) for _ in range(records // N)]
    a0 = twin.public(rng)
    u, hiding = [ternary(rng, N) for _ in sets], [errors(rng, N) for _ in sets]
    seconds = [
        twin.second_half(a, inside.reshape(-1, N), (a0, *parts)) for inside, *parts in zip(sets, u, hiding, strict=True)
    ]
    seen, known = [], []
    for _ in range(queries * len(twin.moduli)):
        secret, error = ternary(rng, N), errors(rng, records)
        words = np.concatenate(
            [twin.words(block, secret, part) for block, part in zip(a, error.reshape(-1, N), strict=True)]
        )
        b0 = twin.words(a0, secret, errors(rng, N))
        firsts = [twin.first_half(words, inside, (b0, own)) for inside, own in zip(sets, u, strict=True)]
        seen.append([first + at_end(second, secret) for first, second in zip(firsts, seconds, strict=True)])
        known.append(error)
    return centred(np.array(seen, object), twin.modulus_bits), np.array(known)


@pytest.mark.second_tier
def test_a_guess_is_recognised_by_its_noise_without_a_flood_of_its_own_that_is_wide_enough():
    """The errors of a set's own records explain a part of the noise, which is least for the right guess of 24.

    Replies are taken in full precision: their rounding hides as well, but no bound counts on it.
    """
    rng, job = np.random.default_rng(4), sizes(2 * N)
    sets = [half_of(rng, job.records) for _ in range(8)]
    before, known = noises(Twin.of(job), rng, job.records, sets, job.queries_per_second_half)
    guesses = [np.array(sets), *(rng.random((23, len(sets), job.records)) < 0.5)]
    explained = [known @ guess.T for guess in guesses]
    for flood_bits, recognised in ((0, True), (8, True), (job.flood_bits, False)):
        seen = before + flood(rng, before.size, flood_bits).reshape(before.shape) if flood_bits else before
        scores = [int(((seen - part) ** 2).sum()) for part in explained]
        if recognised:
            assert scores[0] < min(scores[1:]) * 0.97
        else:  # scores differ by less than one part in 2^30, which says nothing: the bound is 2^-40 for the job
            assert max(scores) - min(scores) < max(scores) >> 30
    seen = before + flood(rng, len(sets), job.flood_bits)  # one for all answers of a set: it cancels
    scores = [int(((seen - seen[0] - part + part[0]) ** 2).sum()) for part in explained]
    assert scores[0] < min(scores[1:]) * 0.97


@pytest.mark.second_tier
def test_many_answers_under_one_u_are_averaged():
    """With a flood too narrow and no limit of queries, least squares reads the set and u_k; 32 places.

    Each answer's noise is linear in the set, u_k and e', by weights that the label holder knows. Either the limit or
    the width of the flood withstands.
    """
    rng, n, most = np.random.default_rng(5), 32, 2000
    twin = Twin(n, 104, (1 << 37,), 104)
    a, a0, u, error, inside = twin.public(rng), twin.public(rng), ternary(rng, n), errors(rng, n), half_of(rng, n)
    second = twin.second_half([a], [inside], (a0, u, error))
    weights, before = np.empty((most, 3 * n)), []
    for row in range(most):
        secret, own, zero = ternary(rng, n), errors(rng, n), errors(rng, n)
        first = twin.first_half(twin.words(a, secret, own), inside, (twin.words(a0, secret, zero), u))
        weights[row] = np.concatenate([own, zero[::-1], secret[::-1]])
        before.append(first + at_end(second, secret))
    for answers, flood_bits, read in ((most, 5, True), (12, 5, False), (most, 50, False)):
        seen = centred(whole(before) + flood(rng, most, flood_bits), 104).astype(float)
        guess = np.rint(np.linalg.lstsq(weights[:answers], seen[:answers])[0])
        right = guess[: 2 * n] == np.concatenate([inside, u])
        assert right.all() if read else right.mean() < 0.8


@pytest.mark.parametrize(("at_random", "told"), [(False, True), (True, False)])
def test_rounding_to_the_nearest_at_equal_values_tells_sets_of_equal_sums(at_random, told):
    """Half the records have v - d or v + d, half have v: sums and counts agree, sums of roundings need not.

    By V the flood bounds the distance of one answer by 1/4. A set has 2^23 records: rounded to the nearest its noise
    leaves V.
    """
    rng, job = np.random.default_rng(6), sizes(1 << 24, 1, 1)
    twin, t, half = Twin.of(job), job.moduli[-1], job.records // 2
    assert job.noise < half // 8
    width = math.ceil(math.log2(job.noise * math.sqrt(FLOOD_INFORMATION) / 2)) + 2
    while True:  # values whose errors of rounding do not cancel
        v, d = int(rng.integers(1, t // 4)), int(rng.integers(1, t // 4))
        nearest = twin.encoded(whole([v - d, v + d, v]), t, None)
        if nearest[0] + nearest[1] - 2 * nearest[2] == 1:
            break
    guessed = 0
    for trial in range(200):
        values, counts = ([v - d, v + d], [half // 2] * 2) if trial % 2 else ([v], [half])
        noise = int(flood(rng, 1, width)[0])
        for value, count in zip(values, counts, strict=True):
            down, rest = divmod(value * twin.q, t)
            ups = int(rng.binomial(count, rest / t)) if at_random else count * (2 * rest >= t)
            noise += count * down + ups
        noise = int(centred(whole([noise - v * half * twin.q // t]), 104)[0])
        middle = half * int(nearest[2]) - v * half * twin.q // t + half // 4
        guessed += (noise > middle) == bool(trial % 2)
    assert (guessed == 200) == told
    assert told or 70 < guessed < 130


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("trees", "kept", "broken"), [(1, False, False), (14, False, False), (14, True, True)])
def test_bad_zero_blocks_read_u_and_then_recognise_sets_without_the_limit(trees, kept, broken):
    """A zero block of powers of 3 at 25 places shows u_k there, in each word, at a secret of zero; four queries a tree.

    Kept for a job of 14 trees, as second_halves = "job" keeps it, u_k is read whole; drawn anew with each tree, no more
    of it than four queries show. The parameters count one place more, which the rounding of replies takes away here.
    """
    rng, job = np.random.default_rng(7), sizes(N)
    twin, queries = Twin.of(job), job.queries_per_second_half
    a, a0, inside = twin.public(rng), twin.public(rng), half_of(rng)
    dropped, per_word = twin.modulus_bits - twin.reply_bits, job.places_per_word - 1
    step = (3 << job.flood_bits) + (2 << dropped)  # wider than the flood and the rounding of replies
    for answer in range(trees * queries * job.words):
        if not answer % ((trees if kept else 1) * queries * job.words):
            u, read, at = ternary(rng, N), np.zeros(N, int), 0
            second = twin.reply(twin.second_half([a], [inside], (a0, u, errors(rng, N))))
        places = range(at, min(at + per_word, N))
        at = places.stop
        block = whole([0] * N)
        for power, place in enumerate(places):
            block[N - 1 - place] = 3**power * step
        words = whole(errors(rng, N)) % twin.q  # the secret is zero
        first = twin.reply(twin.first_half(words, inside, (block, u), int(flood(rng, 1, job.flood_bits)[0])))
        rest = ((int(centred(whole([first]), twin.reply_bits)[0]) << dropped) + step // 2) // step
        for place in places:
            read[place] = (rest + 1) % 3 - 1
            rest = (rest - read[place]) // 3
    assert (read[:at] == u[:at]).all()
    left = (second - twin.reply(product(a0, read) % twin.q)) % (1 << twin.reply_bits)
    assert fits(twin, left, a, inside) == broken
    assert not fits(twin, left, a, half_of(rng))
    assert at == (N if broken else 4 * job.words * per_word)


@pytest.mark.parametrize("joint_seed", [False, True])
def test_public_polynomials_of_the_label_holder_show_sets_outright(joint_seed):
    """a0 = 0 and a = 2^k for each block: the k-th bit of each place of a second half is a record of that block."""
    rng, job = np.random.default_rng(8), sizes(6 * N)
    twin = Twin.of(job)
    sets = half_of(rng, job.records).reshape(-1, N)
    shifts = range(70, 70 + 5 * len(sets), 5)
    chosen = [whole([1 << shift] + [0] * (N - 1)) for shift in shifts]
    a = [twin.public(rng) for _ in sets] if joint_seed else chosen
    a0 = twin.public(rng) if joint_seed else whole([0] * N)
    second = twin.reply(twin.second_half(a, sets, (a0, ternary(rng, N), errors(rng, N))))
    near = second + (1 << (70 - 104 + twin.reply_bits - 1))
    read = np.array([[int(x) >> (shift - 104 + twin.reply_bits) & 1 for x in near[::-1]] for shift in shifts])
    right = (read == sets).mean()
    assert (right == 1.0) if not joint_seed else (abs(right - 0.5) < 0.02)


@pytest.mark.parametrize("same", [True, False])
def test_a_secret_used_for_other_values_shows_their_difference(same):
    """The feature party subtracts the words of two queries, or of two trees: a·s cancels, and t/q times the rest is
    m - m' modulo t. All words together show by how much every record's g and h have changed.
    """
    rng, job = np.random.default_rng(9), sizes(N)
    twin, slots = Twin.of(job), Slots(job.widths)
    a, columns = twin.public(rng), [[rng.integers(-(1 << 32), 1 << 32, N), rng.integers(0, 1 << 30, N)] for _ in "12"]
    plain, read = [whole(slots.encode([*both, np.ones(N, int)])) for both in columns], []
    for t in job.moduli:
        secret = ternary(rng, N)
        words = [twin.words(a, secret, errors(rng, N), twin.encoded(plain[0], t, rng))]
        secret = secret if same else ternary(rng, N)
        words.append(twin.words(a, secret, errors(rng, N), twin.encoded(plain[1], t, rng)))
        read.append(((words[0] - words[1]) * t + twin.q // 2) // twin.q % t)
    right = np.array([combined(residues, job.moduli) for residues in zip(*read, strict=True)]) == plain[0] - plain[1]
    assert right.mean() == (1.0 if same else 0.0)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("repeats", "read"), [(1000, True), (1, False)])
def test_fresh_errors_under_a_secret_used_again_are_averaged_away(repeats, read):
    """A zero block encrypted anew a thousand times gives the secret; one whose randomness is derived is one block."""
    rng, twin = np.random.default_rng(10), Twin.of(sizes(N))
    a0, secret = twin.public(rng), ternary(rng, N)
    error = errors(rng, repeats, N)
    first = twin.words(a0, secret, error[0])
    mean = np.rint((error - error[0]).mean(axis=0)).astype(int)  # of the differences of blocks, which are what they are
    guess = centred(product(-(first + mean) % twin.q, inverse(a0, 104)) % twin.q, 104)
    assert (guess == secret).all() == read


def matched(twin, widths, seconds, queries, records):
    """The second half that each first half belongs to by its errors and by whether its plaintext may be one, (k,)."""
    slots = Slots(widths)
    unlikely = np.zeros((len(queries[0][0]), len(seconds)))
    for firsts, secrets in queries:
        for row, halves in enumerate(firsts):
            for column, second in enumerate(seconds):
                opened = [
                    twin.opened(first, second, secret, t)
                    for first, secret, t in zip(halves, secrets, twin.moduli, strict=True)
                ]
                plain = combined([residue for residue, _ in opened], twin.moduli)
                g, h, count = slots.decode(plain, 1)[0].tolist() if abs(plain) < 1 << (slots.bits - 1) else (0, 0, -1)
                possible = 0 <= count <= records and abs(g) <= count << 32 and 0 <= h <= count << 30
                unlikely[row, column] += sum(error**2 for _, error in opened) + 100 * (not possible)
    return linear_sum_assignment(unlikely)[1]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("fresh", [False, True])
def test_an_order_drawn_anew_is_linked_unless_second_halves_are_new(fresh):
    """First halves in another order than the second ones find these again: only their own pairs open.

    With second halves of their own in the new order, the former ones open none. Equal counts still link candidates.
    """
    rng, job = np.random.default_rng(11), sizes(N)
    twin = Twin.of(job)
    a, a0 = twin.public(rng), twin.public(rng)
    sets = [rng.random(N) < share for share in (0.1, 0.3, 0.3, 0.6, 0.9)]

    def drawn():
        parts = [(a0, ternary(rng, N), errors(rng, N)) for _ in sets]
        halves = [twin.second_half([a], [inside], own) for inside, own in zip(sets, parts, strict=True)]
        return parts, [twin.reply(half).astype(np.int64) for half in halves]

    parts, seconds = drawn()
    order = rng.permutation(len(sets))
    used = drawn()[0] if fresh else parts
    columns = [rng.integers(-(1 << 32), 1 << 32, N), rng.integers(0, 1 << 30, N), np.ones(N, int)]
    plain = whole(Slots(job.widths).encode(columns))
    queries = []
    for _ in range(2):
        secrets = [ternary(rng, N) for _ in job.moduli]
        encoded = [twin.encoded(plain, t, rng) for t in job.moduli]
        words = [twin.words(a, s, errors(rng, N), own) for s, own in zip(secrets, encoded, strict=True)]
        zeros = [twin.words(a0, s, errors(rng, N)) for s in secrets]
        firsts = [
            [
                twin.reply(twin.first_half(word, sets[k], (b0, used[k][1]), int(flood(rng, 1, job.flood_bits)[0])))
                for word, b0 in zip(words, zeros, strict=True)
            ]
            for k in order
        ]
        queries.append((firsts, secrets))
    linked = matched(twin, job.widths, seconds, queries, N) == order
    assert linked.all() if not fresh else linked.sum() <= 2
