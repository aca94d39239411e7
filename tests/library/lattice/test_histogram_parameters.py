"""Sizes of encrypted histograms: every bound computed anew, exact distributions, borders of refusal, and the page."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lattice.histogram_twin import Twin, at_end, centred, combined, errors, flood, ternary, whole
from tools.renderers.rendering import page_with
from treetap.errors import BadInput
from treetap.lattice.histogram_parameters import (
    ATTEMPTS,
    MOST_REPLY_BITS,
    SLOT_WIDTHS,
    HistogramParameters,
    secrecy_bits,
    secrecy_words,
)
from treetap.lattice.histogram_scheme import first_halves_bytes
from treetap.lattice.parameters import Parameters
from treetap.native.histogram_arrays import MOST_WORDS
from treetap.trees.slots import LARGEST_WIDTH, Slots, width_for

PAGE = page_with("sizes")
RNG = np.random.default_rng(35)


def sizes_of(records, columns, bins, depth, trees, classes=1, **changes):
    """Sizes of boosting at one feature party with that many columns, as on the page."""
    widths = (width_for(records, 1 << 32), width_for(records, 1 << 30)) * classes + (width_for(records, 1),)
    return HistogramParameters.choose(records, widths, bins, columns * (bins - 1), trees * 2 ** (depth - 1), **changes)


#: A job whose sizes the borders are tried at.
USUAL = sizes_of(30_000, 11, 32, 3, 5)
jobs = st.builds(
    dict,
    records=st.integers(1, 10**8),
    widths=st.lists(st.integers(2, 60), min_size=1, max_size=7),
    bins=st.integers(2, 256),
    candidates=st.integers(1, 10**5),
    queries=st.integers(1, 10**4),
    attempts=st.integers(1, 64),
    hiding=st.integers(40, 46),
)


def fits(noise, first_halves, word_bits, flood_bits, reply_bits, hiding):
    """True for a distance of at most 2^-hiding, true if every sum decrypts: in decimals of 60 places."""
    with localcontext(prec=60):
        distance = noise * (Decimal(457) / 100 * first_halves).sqrt() / (2 * Decimal(2) ** flood_bits)
        reply = (Decimal(3) / 2 * 2**flood_bits + noise) * Decimal(2) ** (reply_bits - 104)
        rounding = (Decimal(14**2 * 4096) / 6).sqrt().to_integral_value("ROUND_CEILING") + Decimal("0.5")
        return distance <= Decimal(2) ** -hiding, reply + rounding < Decimal(2) ** (reply_bits - word_bits - 1)


@settings(max_examples=60)
@given(jobs)
def test_sizes_hide_and_decrypt_and_none_is_larger_than_it_must_be(job):
    """Each size of a job is enough by the page's formulas, and one bit or word less is not."""
    chosen = HistogramParameters.choose(**job)
    with localcontext(prec=60):
        least = 14 * (Decimal("10.75") * chosen.records + Decimal("10.5") * 2 * 3072).sqrt()
        bias = chosen.records * (Decimal(2) ** -22 + Decimal(2) ** -20)
        assert least + bias + Decimal("0.5") <= chosen.noise < least + bias + 4
    assert chosen.first_halves == math.prod(job[name] for name in ("candidates", "queries", "attempts")) * chosen.words
    figures = (chosen.noise, chosen.first_halves)
    bits = (chosen.word_bits, chosen.flood_bits, chosen.reply_bits)
    assert fits(*figures, *bits, job["hiding"]) == (True, True)
    assert fits(*figures, bits[0], bits[1] - 1, bits[2], job["hiding"]) == (False, True) or chosen.flood_bits == 10
    assert fits(*figures, bits[0], bits[1], bits[2] - 1, job["hiding"]) == (True, False)
    assert chosen.hiding_bits >= chosen.hiding == job["hiding"]
    plain = sum(job["widths"])
    assert all(math.gcd(x, y) == 1 for x, y in combinations(chosen.moduli, 2))
    assert chosen.moduli == tuple(2**chosen.word_bits - c for c in chosen.complements)
    assert math.prod(chosen.moduli) >= 1 << plain == 1 << chosen.plain_bits
    assert chosen.word_bits == 16 or chosen.words * (chosen.word_bits - 1) < plain + 1
    if chosen.words > 1:  # with one word less no width decrypts
        fewer, less = chosen.words - 1, chosen.first_halves // chosen.words * (chosen.words - 1)
        flood_bits = math.ceil(math.log2(chosen.noise * math.sqrt(4.57 * less)) + job["hiding"] - 1 - 1e-9)
        narrow = max(16, plain if fewer == 1 else plain // fewer + 1)  # the moduli are below 2^tb, but for one
        assert (
            narrow > 42
            or not any(
                fits(chosen.noise, less, narrow, flood_bits, reply, job["hiding"])[1] for reply in range(narrow, 53)
            )
            or 4 * chosen.candidates > 420 * 3**fewer
        )
    assert chosen.nodes_per_secret == 420 * 3**chosen.words // (4 * chosen.candidates) > 0
    places = chosen.places_per_word
    assert 3 ** (places + 1) <= 2 ** (104 - chosen.flood_bits) < 3 ** (places + 2)
    assert chosen.queries_per_second_half <= 4
    assert chosen.queries_per_second_half * places * chosen.words <= 1792


def test_sizes_in_bytes():
    """13 bytes a word of each record and of the block of zeros; replies in whole bits."""
    assert (USUAL.words, USUAL.word_bits, USUAL.complements) == (3, 37, (0, 1, 3))
    assert USUAL.query_bytes == 13 * 3 * (30_000 + 4096)
    assert USUAL.second_half_bytes == 4096 * USUAL.reply_bits // 8
    assert first_halves_bytes(USUAL, 341) == math.ceil(341 * 3 * USUAL.reply_bits / 8)
    assert USUAL.attempts == ATTEMPTS == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flood_bits": USUAL.flood_bits - 1}, "flood_bits 61 would hide the sets of records by 39.1 bits, 40 are"),
        ({"queries": USUAL.queries * 2}, "would hide"),
        ({"attempts": 10}, "would hide"),
        ({"hiding": 41}, "flood_bits 62 would hide .* by 40.1 bits, 41 are required"),
        ({"hiding": 39}, "hiding 39 is outside of what the lattice scheme takes: 40 to 64"),
        ({"hiding": 65}, "hiding 65 is outside"),
        ({"records": USUAL.records * 2}, "would hide"),
        ({"word_bits": USUAL.word_bits - 1}, "a plaintext of 110 bits does not fit 3 words of 36 bits"),
        ({"widths": (49, 48, 14)}, "a plaintext of 111 bits does not fit 3 words of 37 bits"),  # 2^111 less a little
        ({"words": 2}, "does not fit 2 words"),
        ({"widths": (64,)}, "must be of 1 to 63 bits each"),
        ({"widths": ()}, "must be of 1 to 63 bits each"),
        ({"widths": (50, 50, 50)}, "a plaintext of 150 bits does not fit"),
        ({"reply_bits": USUAL.reply_bits - 1}, "would not decrypt"),
        ({"flood_bits": USUAL.flood_bits + 2}, "would not decrypt"),
        ({"reply_bits": MOST_REPLY_BITS + 1}, "reply_bits 53 is outside of what the kernels take: 38 to 52"),
        ({"word_bits": 43}, "word_bits 43 is outside"),
        ({"words": MOST_WORDS + 1}, "words 82 is outside"),
        ({"bins": 257}, "bins 257, one for missing values counted"),
        ({"bins": 1}, "bins 1, one for"),
        ({"records": 0}, "records 0 is outside"),
        ({"records": 1 << 31}, "records 2147483648 is outside"),
        ({"candidates": 0}, "candidates 0 is outside"),
        ({"queries": (1 << 24) + 1}, "queries 16777217 is outside"),
        ({"attempts": 1025}, "attempts 1025 is outside"),
    ],
)
def test_what_is_too_weak_or_too_large_is_refused_by_name(change, message):
    """One step beyond each border of a job that fits: the figure, its border and what to do."""
    with pytest.raises(BadInput, match=message):
        replace(USUAL, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": -1}, "records -1 is outside of what the lattice scheme takes, 1 to 2147483647: take another"),
        ({"candidates": -5}, "candidates -5"),
        ({"bins": 300}, "bins 300"),
        ({"widths": (0, 5)}, "widths"),
        ({"widths": (60,) * 50}, "a plaintext of 3000 bits does not fit 81 words beside a flood of 71 bits"),
        (
            {"widths": (60,) * 43, "records": 1000, "candidates": 1, "queries": 1, "attempts": 1},
            "words 62 of 42 bits are more than one second half may serve: at most 61",
        ),
        ({"hiding": 65}, "hiding 65"),
    ],
)
def test_a_job_that_no_sizes_fit_is_refused_by_name(change, message):
    """The choice names the figure too, before it computes with it."""
    job = {"records": 10**6, "widths": (52, 50, 21), "bins": 255, "candidates": 10**4, "queries": 160}
    assert HistogramParameters.choose(**job)
    with pytest.raises(BadInput, match=message):
        HistogramParameters.choose(**{**job, **change})


def test_candidates_that_lie_are_told_apart_by_more_words():
    """A word more where a node would tell too much of the secrets of one word less; the figures are the page's."""
    job = {"records": 1000, "widths": (12, 12), "bins": 256, "queries": 1}
    chosen = {count: HistogramParameters.choose(candidates=count, **job) for count in (1, 315, 316, 945, 946, 2835)}
    assert {count: sizes.words for count, sizes in chosen.items()} == {1: 1, 315: 1, 316: 2, 945: 2, 946: 3, 2835: 3}
    assert [sizes.nodes_per_secret for sizes in chosen.values()] == [315, 1, 2, 1, 2, 1]
    with pytest.raises(BadInput, match=r"words 1 let a party that lies read more than 420 places .* by 316 candidates"):
        replace(chosen[315], candidates=316, flood_bits=70)


def test_guesses_tell_no_more_places_than_the_page_says():
    """Of M equal values one is found by at least M/2 guesses of one value each, on average: all orders of guesses."""
    for values in (3, 9, 27, 81):
        guesses = Fraction(sum(range(1, values)) + values - 1, values)  # the last value needs no guess of its own
        assert guesses == Fraction(values + 1, 2) - Fraction(1, values) >= Fraction(values, 2)


def test_borders_themselves_are_taken():
    """The largest figures that are not refused."""
    assert replace(USUAL, attempts=9).hiding_bits >= 40
    assert replace(USUAL, bins=256)
    assert SLOT_WIDTHS[-1] == LARGEST_WIDTH
    assert replace(USUAL, widths=(49, 47, 14)).plain_bits == 110


# ---- the flood ----


def flooded(w):
    """Probabilities of the sum of three uniform numbers below w, by convolution, without those that are 0."""
    steps = np.pad(np.ones(w, dtype=np.int64), (0, 2 * w - 2))
    for _ in range(2):  # convolution with w ones is a difference of running sums
        running = np.cumsum(steps)
        steps = running - np.pad(running, (w, 0))[: len(running)]
    return steps / float(w) ** 3


def shifted(p, v, room):
    """p and p shifted by v, on one axis."""
    return np.pad(p, (room, room)), np.pad(p, (room + v, room - v))


def information(w):
    """J = Σ(√p(k+1) - √p(k))²."""
    return float((np.diff(np.sqrt(np.pad(flooded(w), 1))) ** 2).sum())


@pytest.mark.parametrize("w", [1 << bits for bits in (1, 2, 4, 6, 8, 10, 12, 16)])
def test_the_information_of_a_flood_is_within_the_proven_bound(w):
    """J·4w² tends to 4.5621 from above, as fast as the page proves, and is below 4.57 from w = 1024 on."""
    root = math.sqrt(3) / 2
    limit = 4 + 4 * (root * math.log((root + 0.5) / (root - 0.5)) - 1)
    exact = information(w) * 4 * w * w
    assert 4.562 < limit < 4.5621
    assert limit < exact <= limit + 4.8 / w + 1 / w**2
    assert exact <= 4.57 or w < 1024


@pytest.mark.parametrize("w", [4, 16, 64, 256])
def test_a_shift_of_the_flood_is_as_hard_to_see_as_the_page_says(w):
    """The affinity of a flood and its shift is at least 1 - v²J/2, the distance at most v·√J, for every shift."""
    p, j = flooded(w), information(w)
    for v in range(1, w + 1):
        here, there = shifted(p, v, w)
        assert np.sqrt(here * there).sum() >= 1 - v * v * j / 2 - 1e-12
        assert np.abs(here - there).sum() / 2 <= v * math.sqrt(j) + 1e-12


def test_answers_that_depend_on_earlier_ones_are_covered():
    """Two answers whose second shift is chosen by the first answer, in every way that is worst: V·√(2J) holds."""
    w, most = 8, 2
    p, j = flooded(w), information(w)
    here, there = shifted(p, most, w)
    later = []
    for v in range(-most, most + 1):
        x, y = shifted(p, v, w) if v >= 0 else shifted(p, -v, w)[::-1]
        later.append((x, y))
    # the distance of pairs is a sum over first answers, so that each takes its own worst shift
    distance = sum(max(np.abs(h * x - t * y).sum() / 2 for x, y in later) for h, t in zip(here, there, strict=True))
    assert 0.9 * most * math.sqrt(j) < distance <= most * math.sqrt(2 * j)


# ---- noise ----


@pytest.mark.parametrize("count", [1, 3, 20])
def test_tails_of_errors_and_of_secrets_are_below_theirs(count):
    """Exact tails of sums of `count` errors, and of as many ternary numbers, against 2·exp(-τ²/2) for every τ."""
    halves = [math.comb(42 * count, k) for k in range(42 * count + 1)]
    tops = np.ones(1, dtype=object)
    for _ in range(count):
        tops = np.convolve(tops, np.ones(3, dtype=object))
    for weights, variance in ((halves, Fraction(21, 2)), (tops.tolist(), Fraction(2, 3))):
        total, middle = sum(weights), len(weights) // 2
        for far in range(1, middle + 1):
            tail = 2 * sum(weights[middle + far :])
            assert (
                math.log(tail or 1) - math.log(total) <= math.log(2) - far**2 / (2 * float(variance * count))
                or not tail
            )


def test_a_heavy_secret_is_rarer_than_the_page_says():
    """P(weight of n ternary numbers > 3n/4) < 2^-102, exactly."""
    heavy = sum(math.comb(4096, weight) << weight for weight in range(3073, 4097))
    assert heavy << 102 < 3**4096 < heavy << 103
    assert all(np.count_nonzero(ternary(RNG, 64)) <= 48 for _ in range(200))


@pytest.mark.parametrize("records", [1000, 30_000, 10**6])
def test_noise_of_the_heaviest_secrets_is_fourteen_deviations_within_v(records):
    """All records in a set, the heaviest u_k and s_j, rounding up for a half: V is neither left nor idle."""
    sizes = sizes_of(records, 10, 32, 3, 5)
    halves = RNG.binomial(42 * (records + 2 * 3072), 0.5, 100_000) - 21 * (records + 2 * 3072)
    noise = halves + RNG.binomial(records, 0.5, 100_000) - records / 2
    assert abs(noise).max() < sizes.noise / 2
    bias = 3 + records * 1.2e-6
    assert noise.std() * 14 == pytest.approx(sizes.noise - bias, rel=0.01)


def test_random_rounding_has_no_mean_and_nearest_rounding_has():
    """(q/t)·m of one m for many records: the mean error at random is within 2^-20, to the nearest up to a half."""
    twin, t = Twin.of(USUAL), USUAL.moduli[2]
    value = next(m for m in range(1, t) if 0.4 < m * twin.q % t / t < 0.49)
    exact = Fraction(value * twin.q, t)
    values = whole([value] * 40_000)
    means = [float(Fraction(int((twin.encoded(values, t, rng)).sum()), 40_000) - exact) for rng in (RNG, None)]
    assert abs(means[0]) < 4 * 0.5 / 200
    assert means[1] < -0.4


def test_errors_have_their_distribution():
    """Mean 0 and variance 21/2, fourth moment that of 42 halves."""
    drawn = errors(RNG, 200_000).astype(float)
    assert abs(drawn.mean()) < 6 * math.sqrt(10.5 / 200_000)
    assert drawn.var() == pytest.approx(10.5, rel=0.02)
    assert (drawn**4).mean() == pytest.approx(3 * 10.5**2 - 42 / 8, rel=0.05)


# ---- opening ----


@pytest.mark.parametrize("sizes", [USUAL, sizes_of(10**6, 25, 255, 6, 5)], ids=["30,000", "1 M"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_honest_error_opens_and_half_a_step_does_not(sizes, sign):
    """At every modulus: the widest flood, V and the rounding of replies together, and one step beyond what decrypts."""
    twin, dropped = Twin.of(sizes), 104 - sizes.reply_bits
    largest = (3 << (sizes.flood_bits - 1)) + sizes.noise
    rounding = math.ceil(14 * math.sqrt(4096 / 6)) + 1
    nothing = whole([0] * 4096)
    for t in sizes.moduli:
        for m in (0, 1, t // 2, t - 1):
            sent = (m << 104) // t + sign * (largest + (rounding << dropped))
            opened, share = twin.opened(twin.reply(sent % twin.q), nothing, nothing, t)
            assert opened == m
            assert 0.9 * sizes.noise_share < share <= sizes.noise_share + Fraction(2 * t, 1 << sizes.reply_bits)
            beyond = twin.reply(((m << 104) // t + sign * ((1 << 103) // t + (2 << dropped))) % twin.q)
            assert twin.opened(beyond, nothing, nothing, t)[0] == (m + sign) % t


def test_the_twin_opens_every_sum_within_v():
    """Two blocks, sets of all kinds, negative values: sums equal the definition, and noise stays within its bounds."""
    n, rng = 4096, np.random.default_rng(36)
    sizes = sizes_of(2 * n, 11, 32, 3, 5)
    twin, slots = Twin.of(sizes), Slots(sizes.widths)
    a, a0 = [twin.public(rng) for _ in range(2)], twin.public(rng)
    columns = [rng.integers(-(1 << 32), 1 << 32, 2 * n), rng.integers(0, 1 << 30, 2 * n), np.ones(2 * n, int)]
    plain = whole(slots.encode(columns))
    sets = [np.zeros(2 * n, bool), np.ones(2 * n, bool), rng.random(2 * n) < 0.5, np.arange(2 * n) == 4095]
    zeros = [(a0, ternary(rng, n), errors(rng, n)) for _ in sets]
    seconds = [twin.second_half(a, places.reshape(2, n), zero) for places, zero in zip(sets, zeros, strict=True)]
    residues = []
    for t in sizes.moduli:
        secret = ternary(rng, n)
        encoded = twin.encoded(plain, t, rng).reshape(2, n)
        words = np.concatenate(
            [twin.words(block, secret, errors(rng, n), own) for block, own in zip(a, encoded, strict=True)]
        )
        b0 = twin.words(a0, secret, errors(rng, n))
        for places, second, (_, u, _) in zip(sets, seconds, zeros, strict=True):
            exact = twin.first_half(words, places, (b0, u)) + at_end(second, secret)
            assert abs(centred(whole([exact - int(plain[places].sum()) % t * twin.q // t]), 104)[0]) <= sizes.noise
            noise = int(flood(rng, 1, sizes.flood_bits)[0])
            first = twin.first_half(words, places, (b0, u), noise)
            residue, error = twin.opened(twin.reply(first), twin.reply(second), secret, t)
            assert error < sizes.noise_share
            residues.append(residue)
    for place, inside in enumerate(sets):
        opened = combined(residues[place :: len(sets)], sizes.moduli)
        assert slots.decode(opened, 1)[0].tolist() == [column[inside].sum() for column in columns]


def test_rounding_of_second_halves_stays_within_its_bound():
    """(ρ·s)[n-1] of rounding errors at their worst, ±1/2 at all places, for secrets drawn afterwards."""
    halves = RNG.choice([-0.5, 0.5], 4096)
    drawn = np.array([halves @ ternary(RNG, 4096) for _ in range(500)])
    assert abs(drawn).max() < 366 / 2
    assert drawn.std() * 14 == pytest.approx(365.8, rel=0.1)


# ---- noise that a party adds ----


def test_noise_that_a_party_adds_is_within_v():
    """One more in V, for the rounding of a further plaintext: a flood that just hides sums without noise does not."""
    job = {"records": 30_000, "widths": (48, 46, 16), "bins": 32, "candidates": 341, "queries": 20}
    plain, noised = HistogramParameters.choose(**job), HistogramParameters.choose(**job, noised=True)
    assert noised.noise == plain.noise + 1
    assert noised.plain_bits == plain.plain_bits == 110
    assert noised.hiding_bits < plain.hiding_bits or noised.flood_bits > plain.flood_bits


# ---- the page ----

JOBS = {
    "30,000 × 11, 32 bins, depth 3": (30_000, 11, 32, 3, 5),
    "the same, 255 bins": (30_000, 11, 255, 3, 5),
    "the same, 32 bins, depth 6, 100 trees": (30_000, 11, 32, 6, 100),
    "1 M × 25, 32 bins, depth 3": (10**6, 25, 32, 3, 5),
    "the same, 255 bins, depth 6": (10**6, 25, 255, 6, 5),
    "10 M × 25, 32 bins, depth 3": (10**7, 25, 32, 3, 5),
    "10 M × 500, 255 bins, depth 6, 100 trees": (10**7, 500, 255, 6, 100),
    "1 M × 25, 32 bins, depth 3, 3 classes": (10**6, 25, 32, 3, 5, 3),
    "the same, 19 classes": (10**6, 25, 32, 3, 5, 19),
}


def table():
    """The page's table of sizes."""
    head = "job|bits|r × tb|log₂ V|fb|qp|hidden, bits|chosen errors|places a query|queries under one uₖ|nodes a secret"
    head += "|second half, kB"
    lines = [f"| {head.replace('|', ' | ')} |\n", "|---" * (head.count("|") + 1) + "|\n"]
    for name, job in JOBS.items():
        sizes = sizes_of(*job)
        chosen = 22 * sizes.records + 21 * 3072 + 2515
        cells = (
            name,
            sizes.plain_bits,
            f"{sizes.words} × {sizes.word_bits}",
            f"{math.log2(sizes.noise):.1f}",
            sizes.flood_bits,
            sizes.reply_bits,
            f"{math.floor(sizes.hiding_bits * 10) / 10}",
            f"{math.floor((sizes.hiding_bits - math.log2(chosen / sizes.noise)) * 10) / 10}",
            sizes.places_per_word * sizes.words,
            sizes.queries_per_second_half,
            sizes.nodes_per_secret,
            f"{sizes.second_half_bytes / 1000:.1f}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |\n")
    return "".join(lines)


def test_the_page_has_the_sizes_that_the_class_chooses():
    """The table between its two markers is this one."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.split("<!-- sizes: begin -->\n")[1].split("<!-- sizes: end -->")[0] == table()


def estimated(n, log_q, sigma):
    """Bits of the primal attack by the page's formula, and by MATZOV's cost."""
    secret, least = min(sigma, math.sqrt(2 / 3)), (math.inf, math.inf)
    most = max(n, 4096) - n * (sigma < math.sqrt(2 / 3))
    for samples in range(n // 2, most + 1, 32):
        d = n + samples + 1
        volume = (samples * log_q + n * math.log2(sigma / secret)) / d
        low, high = 60, 2000
        while low < high:
            beta = (low + high) // 2
            root = ((math.pi * beta) ** (1 / beta) * beta / (2 * math.pi * math.e)) ** (1 / (2 * (beta - 1)))
            if math.log2(sigma * math.sqrt(beta)) <= (2 * beta - d - 1) * math.log2(root) + volume:
                high = beta
            else:
                low = beta + 1
        free = low * math.log(4 / 3) / math.log(low / (2 * math.pi * math.e))
        gates = 5.46**2 * (d - low) * 2 ** (0.29613500308205365 * (low - free) + 20.387885985467914)
        least = min(least, (0.292 * low + 16.4 + math.log2(8 * d), math.log2(gates)))
    return least


def test_the_page_has_the_estimates_of_its_formula():
    """Every row of unknown places, modulus, deviation, and bits by two costs."""
    cells = r"^\| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$"
    rows = re.findall(cells, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 4
    for places, log_q, sigma, *bits in rows:
        exact = math.sqrt(10.5) if sigma == "3.24" else 1 / math.sqrt(12)
        assert estimated(int(places), int(log_q), exact) == pytest.approx([float(each) for each in bits], abs=0.15)


def test_secrecy_is_estimated_by_the_formula_of_the_page():
    """Of this lattice and of every modulus of the prediction's that is not refused."""
    bits, gates = estimated(4096 - 420, 104, math.sqrt(10.5))
    assert secrecy_bits() == pytest.approx(estimated(4096, 104, math.sqrt(10.5))[0], abs=0.15)
    assert secrecy_words() == (
        f"of a key of which no place was told ({math.floor(secrecy_bits())} bits); {min(bits, gates):.0f} after the "
        "420 places that a lying feature party may have"
    )
    for degree, primes, members in ((8192, 4, 1), (8192, 5, 2), (8192, 7, 3), (16384, 14, 8)):
        bits = Parameters(degree, primes, 22, 30, members).secrecy_bits
        assert bits == pytest.approx(estimated(degree, 30 * primes, math.sqrt(10.5))[0], abs=0.3)
        assert bits >= 128
