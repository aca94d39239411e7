"""Kernels for encrypted histograms in every form: against a twin in integers, and at the bounds of their proof."""

from __future__ import annotations

import ctypes
import math
import random
from concurrent.futures import ThreadPoolExecutor

import gmpy2
import numpy as np
import pytest

from tests.native import histogram_twin as twin
from tests.native.forms import HERE
from treetap.lattice import histogram_parameters as sizes
from treetap.native import histogram_arrays as arrays
from treetap.native import histograms, library
from treetap.native.histogram_arrays import ZERO_BLOCK, Binned, Moduli, Secrets

FORMS = [form for form in ("avx512", "avx2", "plain") if form in HERE]
pytestmark = pytest.mark.skipif(not FORMS, reason="the kernels were not compiled")
N, Q = twin.N, twin.Q
JOINT, SEED, OTHER = (bytes([start, *range(31)]) for start in (1, 2, 3))


@pytest.fixture(params=FORMS)
def kernels(request):
    """The kernels in each form that the processor has."""
    return histograms.Histograms(request.param)


def rng():
    return np.random.default_rng(35)


def joined(halves):
    """Integers from pairs (..., 2) of 52 bits."""
    return [int(low) | int(high) << 52 for low, high in halves.reshape(-1, 2).tolist()]


def words_of(values, count):
    """Two's complement in rows of 64-bit words."""
    return np.array([[value >> 64 * row & (1 << 64) - 1 for value in values] for row in range(count)], dtype=np.uint64)


@pytest.fixture(scope="module")
def dense():
    """a of blocks 0, 1 and the block of zeros."""
    return {block: twin.public(JOINT, block) for block in (0, 1, ZERO_BLOCK)}


def test_public_polynomials_come_from_their_seed(kernels, dense):
    """Limbs of all numbers are those of another ChaCha20, uniform in 26 bits around 0."""
    limbs = kernels.limbs(JOINT, 0, 2).astype(object)
    for block in (0, 1):
        assert [sum(int(x) << 26 * k for k, x in enumerate(row)) % Q for row in limbs[block]] == dense[block]
    counts = np.histogram(limbs.astype(float), bins=32, range=(-(2**25), 2**25))[0]
    expected = limbs.size / 32
    assert ((counts - expected) ** 2 / expected).sum() < 31 + 8 * math.sqrt(62)
    assert (kernels.limbs(JOINT, ZERO_BLOCK, 1) != limbs[:1]).mean() > 0.99


@pytest.mark.parametrize(("records", "bins"), [(4096, 1), (4095, 2), (1, 256), (4097, 13), (0, 5)])
def test_second_halves_are_products_of_integers(kernels, dense, records, bins):
    """a·I of a cell, added over blocks, at odd sizes; cells without records have nothing added."""
    codes = rng().integers(0, bins, (1, records)).astype(np.uint8)
    binned, blocks = Binned(codes, (bins,)), -(-records // N)
    out = np.zeros((bins, 2, N), dtype=np.uint64)
    farthest = kernels.cells(kernels.public(JOINT, 0, blocks), binned, 0, range(bins), out)
    assert 0 <= farthest < 1e-4
    for cell in {0, bins // 2, bins - 1}:
        expected = [0] * N
        for block in range(blocks):
            more = twin.product(dense[block], twin.indicator(codes[0, block * N :][:N].tolist(), cell))
            expected = [(x + y) % Q for x, y in zip(expected, more, strict=True)]
        assert joined(out[cell].T) == expected


def test_parts_of_cells_and_records_add_up(kernels):
    """Columns of odd sizes in groups across them, ranges of cells, blocks one by one and records outside of a node."""
    random_numbers, bins, records = rng(), (3, 255, 2, 1, 17), 2 * N + 77
    codes = np.stack([random_numbers.integers(0, count, records) for count in bins]).astype(np.uint8)
    binned, public = Binned(codes, bins), kernels.public(JOINT, 0, 3)
    every = np.zeros((binned.cells, 2, N), dtype=np.uint64)
    kernels.cells(public, binned, 0, range(binned.cells), every)
    inside = random_numbers.integers(0, 3, records).astype(np.uint8)
    parts = np.zeros((77, 2, N), dtype=np.uint64)
    for block in range(3):
        for half in (inside, (inside == 0).astype(np.uint8)):
            kernels.cells(public[block : block + 1], binned, block, range(200, 277), parts, half)
    assert (parts == every[200:277]).all()
    assert every[:3].sum() > 0
    total = [sum(x) % Q for x in zip(*(joined(every[cell].T) for cell in range(3)), strict=True)]
    assert total == [sum(x) % Q for x in zip(*(joined(every[cell].T) for cell in range(258, 260)), strict=True)]


@pytest.mark.parametrize(
    ("bits", "less", "width"), [(38, (0, 1, 3), 2), (32, (0, 1, 3, 5, 9), 3), (42, (0, 1), 1), (16, (0, 777), 8)]
)
def test_words_are_those_of_the_twin(kernels, dense, bits, less, width):
    """Byte for byte, of a whole and a part of a block, for values of both signs in up to eight words."""
    numbers, count = random.Random(bits), N + 5
    largest = 1 << (64 * width - 1)
    values = [numbers.randrange(-largest, largest) for _ in range(count)]
    values[:4] = [0, -1, largest - 1, -largest]
    moduli, secrets = Moduli(bits, less), kernels.secrets(SEED, len(less))
    made, farthest = kernels.encrypt(kernels.public(JOINT, 0, 2), 0, secrets, SEED, moduli, words_of(values, width))
    assert farthest < 1e-4
    word = len(less) - 1
    s = twin.secret(SEED, word)
    assert secrets.small[word].tolist() == s.tolist()
    expected = twin.encrypted(dense[0], s, SEED, 0, word, bits, less[word], values[:N])
    expected += twin.encrypted(dense[1], s, SEED, 1, word, bits, less[word], values[N:])
    assert made[:, word].tobytes() == b"".join(x.to_bytes(13, "little") for x in expected)
    read = kernels.unpack(made.reshape(-1), len(less))
    assert joined(read[:, word]) == expected


@pytest.mark.parametrize("bits", [52, 41])
def test_second_halves_are_hidden_as_by_the_twin(kernels, dense, bits):
    """u_k, a0·u_k + e' and the rounding of a number that is no multiple of the lanes; sums may lack carries."""
    sums = rng().integers(0, 2**63, (3, 2, N), dtype=np.uint64)
    zero = kernels.public(JOINT, ZERO_BLOCK, 1)
    u, second, farthest = kernels.hide(sums, zero, bits, SEED, 9)
    assert farthest < 1e-4
    for place in (0, 2):
        low, high = sums[place].tolist()
        total = [(x + (y << 52)) % Q for x, y in zip(low, high, strict=True)]
        expected_u, expected = twin.hidden(total, dense[ZERO_BLOCK], SEED, 9 + place, bits)
        assert u[place].tolist() == expected_u.tolist()
        assert second[place].tolist() == expected
    again = kernels.hide(sums[1:2], zero, bits, SEED, 10)
    assert (again[0] == u[1:2]).all()
    assert (again[1] == second[1:2]).all()


@pytest.mark.parametrize(("words", "flood", "bits"), [(3, 62, 48), (11, 73, 38), (1, 10, 52)])
def test_first_halves_are_those_of_the_twin(kernels, words, flood, bits):
    """Sums that lack carries, the zeros' coefficient and the flood, for more numbers than are drawn at once."""
    numbers = rng()
    sums = numbers.integers(0, 2**63, (3, words, 2), dtype=np.uint64)
    zero = numbers.integers(0, 2**52, (N, words, 2), dtype=np.uint64)
    u = numbers.integers(-1, 2, (3, N)).astype(np.int8)
    firsts = kernels.answer(sums, zero, u, flood, bits, SEED, 4)
    for place in (0, 2):
        total = [(low + (high << 52)) % Q for low, high in sums[place].tolist()]
        zeros = [joined(zero[:, word]) for word in range(words)]
        expected = twin.answered(total, zeros, u[place].tolist(), SEED, 4 + place, flood, bits)
        assert firsts[place].tolist() == expected


@pytest.mark.parametrize(("bits", "less"), [(38, (0, 1, 3)), (32, (0, 1, 3, 5))])
def test_sums_open_to_those_of_integers(kernels, bits, less):
    """From values of both signs over two blocks to candidates' sums, with hiding and flooding, and little noise."""
    numbers, records, bins, flood, reply = random.Random(3), N + 1234, (7, 3), 62, bits + 10
    values = [numbers.randrange(-(1 << 90), 1 << 90) for _ in range(records)]
    codes = np.array([[numbers.randrange(count) for _ in range(records)] for count in bins], dtype=np.uint8)
    binned, moduli, words = Binned(codes, bins), Moduli(bits, less), len(less)
    public, zero = kernels.public(JOINT, 0, 2), kernels.public(JOINT, ZERO_BLOCK, 1)
    secrets = kernels.secrets(SEED, words)
    made, _ = kernels.encrypt(public, 0, secrets, SEED, moduli, words_of(values, 2))
    zeros, _ = kernels.encrypt(zero, ZERO_BLOCK, secrets, SEED, moduli, N)
    second_sums, sums = np.zeros((10, 2, N), dtype=np.uint64), np.zeros((10, words, 2), dtype=np.uint64)
    kernels.cells(public, binned, 0, range(10), second_sums)
    for block in range(2):
        read = kernels.unpack(made[block * N : (block + 1) * N].tobytes(), words)
        kernels.sum_words(read, binned, block * N, sums)
    u, second, _ = kernels.hide(np.cumsum(second_sums, axis=0), zero, reply, OTHER, 0)
    firsts = kernels.answer(np.cumsum(sums, axis=0), kernels.unpack(zeros.tobytes(), words), u, flood, reply, OTHER, 0)
    residues, noise = kernels.open(second, firsts, secrets, reply, moduli)
    assert 0 < noise < 0.5
    total = 0
    for cell in range(10):
        column, bin_ = divmod(cell, 7)
        total += sum(value for value, code in zip(values, codes[column].tolist(), strict=True) if code == bin_)
        assert residues[cell].tolist() == [total % ((1 << bits) - c) for c in less]
    bad = firsts.copy()
    bad[4, 1] ^= np.uint64(1 << (reply - bits - 2))
    assert kernels.open(second, bad, secrets, reply, moduli)[1] > noise


@pytest.mark.parametrize(("records", "width"), [(N, 110), (2 * N + 1, 600)])
def test_agreed_sizes_are_those_of_the_kernels(kernels, records, width):
    """Sets of sizes have the kernels' bounds, and their worst plaintexts open with the noise that they allow."""
    assert (sizes.DEGREE, sizes.LARGEST_WEIGHT, sizes.MOST_BINS) == (N, arrays.LARGEST_WEIGHT, arrays.MOST_BINS)
    assert (sizes.WORD_BITS, sizes.MOST_WORDS) == (arrays.WORD_BITS, arrays.MOST_WORDS)
    assert {*sizes.FLOOD_BITS} <= {*arrays.FLOOD_BITS}
    agreed = sizes.HistogramParameters.choose(records, (width // 10,) * 10, 2, 1, 7)
    bits, moduli, blocks = agreed.reply_bits, Moduli(agreed.word_bits, agreed.complements), -(-records // N)
    values, rows = [(-1) ** i * ((1 << width - 1) // records) for i in range(records)], -(-width // 64)
    values[1::2] = values[::2][: len(values[1::2])]
    binned, secrets = Binned(np.zeros((1, records), dtype=np.uint8), (1,)), kernels.secrets(SEED, agreed.words)
    public, zero = kernels.public(JOINT, 0, blocks), kernels.public(JOINT, ZERO_BLOCK, 1)
    made, _ = kernels.encrypt(public, 0, secrets, SEED, moduli, words_of(values, rows))
    zeros, _ = kernels.encrypt(zero, ZERO_BLOCK, secrets, SEED, moduli, N)
    assert made.nbytes + zeros.nbytes == agreed.query_bytes
    sums, seconds = np.zeros((1, agreed.words, 2), dtype=np.uint64), np.zeros((1, 2, N), dtype=np.uint64)
    kernels.sum_words(kernels.unpack(made.tobytes(), agreed.words), binned, 0, sums)
    kernels.cells(public, binned, 0, range(1), seconds)
    u, second, _ = kernels.hide(seconds, zero, bits, OTHER, 0)
    assert len(kernels.write(second, bits)) == agreed.second_half_bytes
    zeros = kernels.unpack(zeros.tobytes(), agreed.words)
    residues, noise = kernels.open(
        second, kernels.answer(sums, zeros, u, agreed.flood_bits, bits, OTHER, 0), secrets, bits, moduli
    )
    assert residues.tolist() == [[sum(values) % t for t in agreed.moduli]]
    assert noise < agreed.noise_share < 1


def test_either_implementation_opens_what_the_other_encrypts(kernels, dense):
    """The twin opens words of the kernels by its own sums, and the kernels words of the twin's own randomness."""
    numbers, bits, t = random.Random(4), 38, (1 << 38) - 5
    values = [numbers.randrange(-(1 << 20), 1 << 20) for _ in range(N)]
    codes, moduli = [numbers.randrange(2) for _ in range(N)], Moduli(bits, (5,))
    expected = sum(value for value, code in zip(values, codes, strict=True) if code) % t
    secrets, indicator = kernels.secrets(SEED, 1), twin.indicator(codes, 1)
    made, _ = kernels.encrypt(kernels.public(JOINT, 0, 1), 0, secrets, SEED, moduli, words_of(values, 1))
    words = joined(kernels.unpack(made.tobytes(), 1))
    first = sum(word for word, code in zip(words, codes, strict=True) if code) % Q
    assert twin.opened(twin.product(dense[0], indicator), first, secrets.small[0].tolist(), 104, t) == expected
    words = twin.own_words(numbers, dense[0], secrets.small[0], bits, t, values)
    binned = Binned(np.array([codes], dtype=np.uint8), (2,))
    sums, second = np.zeros((2, 1, 2), dtype=np.uint64), np.zeros((2, 2, N), dtype=np.uint64)
    kernels.sum_words(
        np.array([[x & (1 << 52) - 1, x >> 52] for x in words], dtype=np.uint64)[:, np.newaxis], binned, 0, sums
    )
    kernels.cells(kernels.public(JOINT, 0, 1), binned, 0, range(2), second)
    residues, _ = kernels.open(second[1:, 1], sums[1:, :, 1], secrets, 52, moduli)
    assert residues.tolist() == [[expected]]


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("words", [1, 2, 3, 4, 5])
def test_sums_of_words_are_those_of_integers(kernels, words):
    """In two parts, the largest words without an overflow; columns of one bin and of 256."""
    numbers, records, bins = rng(), 9001, (256, 1, 5)
    codes = np.stack([numbers.integers(0, count, records) for count in bins]).astype(np.uint8)
    binned, largest = Binned(codes, bins), np.uint64((1 << 52) - 1)
    data = numbers.integers(0, 2**52, (records, words, 2), dtype=np.uint64)
    data[:, -1] = largest
    sums = np.zeros((262, words, 2), dtype=np.uint64)
    kernels.sum_words(data[:5000], binned, 0, sums)
    kernels.sum_words(data[5000:], binned, 5000, sums)
    expected = [[0] * words for _ in range(262)]
    for column, start in enumerate((0, 256, 257)):
        for code, row in zip(codes[column].tolist(), data.tolist(), strict=True):
            cell = expected[start + code]
            for word, (low, high) in enumerate(row):
                cell[word] += low | high << 52
    assert joined(sums) == [x % Q for cell in expected for x in cell]


def everything(kernels):
    """Bytes of every function from given seeds, at sizes that are multiples of nothing."""
    numbers, records, bins = rng(), 2 * N + 1, (255, 9)
    codes = np.stack([numbers.integers(0, count, records) for count in bins]).astype(np.uint8)
    binned, moduli = Binned(codes, bins), Moduli(29, (3, 0, 1, 5, 9))
    public, secrets = kernels.public(JOINT, 0, 3), kernels.secrets(SEED, 5)
    values = numbers.integers(0, 2**64, (3, records), dtype=np.uint64)
    made, _ = kernels.encrypt(public, 0, secrets, SEED, moduli, values)
    words = kernels.unpack(made.tobytes(), 5)
    sums, seconds = np.zeros((264, 5, 2), dtype=np.uint64), np.zeros((264, 2, N), dtype=np.uint64)
    kernels.sum_words(words, binned, 0, sums)
    kernels.cells(public, binned, 0, range(264), seconds)
    u, second, _ = kernels.hide(seconds[250:], public[:1], 39, OTHER, 0)
    firsts = kernels.answer(sums[250:], words[:N], u, 60, 39, OTHER, 0)
    residues, noise = kernels.open(second, firsts, secrets, 39, moduli)
    results = (kernels.limbs(JOINT, 0, 1), secrets.small, made, words, sums, seconds, u, second, firsts, residues)
    return [*(result.tobytes() for result in results), kernels.write(firsts, 39), noise]


def test_all_forms_give_the_same_words_again_and_again():
    """Every form, and two threads at once."""
    first = histograms.Histograms(FORMS[-1])
    expected = everything(first)
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(everything, [first, *map(histograms.Histograms, FORMS[:-1])]))
    assert all(other == expected for other in made)


def test_every_draw_is_another(kernels):
    """Of blocks, words, queries and candidates: none shares its errors, secrets, masks or flood with another."""
    public, secrets = kernels.public(JOINT, 0, 1).repeat(2, axis=0), kernels.secrets(SEED, 2)
    same = Secrets(secrets.small[:1].repeat(2, axis=0), secrets.values[:1].repeat(2, axis=0))
    moduli = Moduli(38, (0, 0))
    made = [kernels.encrypt(public, first, same, seed, moduli, 2 * N)[0] for first, seed in ((0, SEED), (0, OTHER))]
    made.append(kernels.encrypt(public[:1], ZERO_BLOCK, same, SEED, moduli, N)[0])
    words = np.concatenate(made).reshape(5, N, 2, 13)
    rows = [words[block, :, word, :6].tobytes() for block in range(5) for word in range(2)]
    assert len(set(rows)) == 10
    assert (secrets.small[0] != secrets.small[1]).mean() > 0.6
    u, _, _ = kernels.hide(np.zeros((2, 2, N), dtype=np.uint64), public[:1], 52, SEED, 0)
    assert (u[0] != u[1]).mean() > 0.6
    assert not {row.tobytes() for row in u} & {row.tobytes() for row in secrets.small}
    zeros = np.zeros((2, 2, 2), dtype=np.uint64)
    firsts = kernels.answer(zeros, np.zeros((N, 2, 2), dtype=np.uint64), u, 60, 52, SEED, 0)
    assert len(set(firsts.ravel().tolist())) == 4
    assert (kernels.answer(zeros, np.zeros((N, 2, 2), dtype=np.uint64), u, 60, 52, SEED, 0) == firsts).all()


def even(counts, expected):
    """χ² of counts stays below its mean by eight standard deviations."""
    freedom = len(counts) - 1
    return ((counts - expected) ** 2 / expected).sum() < freedom + 8 * math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    ("bits", "less"), [(38, (0, 1, 3)), (29, (0, 1, 3, 5)), (42, (0, 1, 3)), (16, (0, 32767, 21845)), (17, (43690,))]
)
def test_masks_of_sums_are_uniform_and_their_words_rounded_to_the_nearest(kernels, bits, less):
    """Modulo each t_j: in 64 parts of its range, and by their lowest bits; numbers taken modulo t_j would show."""
    moduli, count = Moduli(bits, less), 20_000
    masks, words = kernels.sum_masks(count, moduli, SEED)
    assert np.array_equal(masks, histograms.Histograms(FORMS[-1]).sum_masks(count, moduli, SEED)[0])
    assert not np.isin(masks[:, 0], kernels.sum_masks(count, moduli, OTHER)[0][:, 0]).all()
    random_numbers = rng().integers(0, 1 << bits, count, dtype=np.uint64)
    for place, t in enumerate((1 << bits) - c for c in less):
        r = masks[:, place]
        assert r.max() < t
        assert joined(words[:, place]) == [((x * Q * 2 + t) // (2 * t)) % Q for x in r.tolist()]
        assert _uniform(r, t)
        assert less[place] not in (21845, 43690) or not _uniform(random_numbers % t, t)
    assert all((masks[:, 0] == masks[:, place]).mean() < 0.01 for place in range(1, len(less)))
    assert words.max() < 1 << 52


def _uniform(values, t):
    """By 64 parts of the range, whose sizes differ by one at most, and by six lowest bits."""
    parts = (values.astype(float) / t * 64).astype(int), (values % np.uint64(64)).astype(int)
    return all(even(np.bincount(part, minlength=64), np.full(64, len(values) / 64)) for part in parts)


@pytest.mark.second_tier(but=1)  # all forms give the same bytes
def test_draws_have_their_distributions(kernels):
    """Secrets and masks are ternary, errors binomial, rounding has mean 0 for equal values, the flood is of three."""
    public, secrets = kernels.public(JOINT, 0, 8), kernels.secrets(SEED, 1)
    u, _, _ = kernels.hide(np.zeros((8, 2, N), dtype=np.uint64), public[:1], 52, SEED, 0)
    for small in (secrets.small, u):
        assert even(np.array([(small == value).sum() for value in (-1, 0, 1)]), np.full(3, small.size / 3))
    limbs = kernels.limbs(JOINT, 0, 8).astype(object) @ [1 << 26 * place for place in range(4)]
    masks = [x for a in limbs for x in twin.product([int(x) % Q for x in a], secrets.small[0])]
    t, count = (1 << 38) - 45, 8 * N

    def errors(values):
        made, _ = kernels.encrypt(public, 0, secrets, SEED, Moduli(38, (45,)), values)
        words = joined(kernels.unpack(made.tobytes(), 1))
        return np.array([(x + y + Q // 2) % Q - Q // 2 for x, y in zip(words, masks, strict=True)], dtype=object)

    noise = errors(count).astype(int)
    expected = np.array([math.comb(42, 21 + value) for value in range(-9, 10)]) * count / 2**42
    assert even(np.array([(noise == value).sum() for value in range(-9, 10)]), expected)
    assert np.abs(noise).max() <= 21
    value = 0x123456789
    fraction = Q * value % t / t
    rounded = (errors(np.full((1, count), value, dtype=np.uint64)) - noise - Q * value // t).astype(float)
    assert 0.1 < fraction < 0.9
    assert set(rounded) == {0.0, 1.0}
    assert abs(rounded.mean() - fraction) < 8 * math.sqrt(fraction * (1 - fraction) / count)
    floods = kernels.answer(
        np.zeros((500, 81, 2), dtype=np.uint64), np.zeros((N, 81, 2), dtype=np.uint64),
        np.zeros((500, N), dtype=np.int8), 48, 52, OTHER, 0,
    )  # fmt: skip
    assert (floods == 0).mean() > 0.4  # of 104 bits the flood's 48 are below what is kept
    zero = np.zeros((2, 81, 2), dtype=np.uint64)
    wide = kernels.answer(zero.repeat(250, axis=0), np.zeros((N, 81, 2), dtype=np.uint64),
                          np.zeros((500, N), dtype=np.int8), 100, 52, OTHER, 0)  # fmt: skip
    scaled = wide.astype(np.int64)
    scaled[scaled >= 1 << 51] -= 1 << 52
    parts = scaled / 2.0**48
    assert np.abs(parts).max() <= 1.5
    assert abs(parts.mean()) < 8 * 0.5 / math.sqrt(parts.size)
    assert parts.var() == pytest.approx(0.25, rel=0.03)
    # P(|x| > 1) = 2·(1/2)^3/6, P(|x| < 1/2) = 2/3 of a sum of three
    assert (np.abs(parts) > 1).mean() == pytest.approx(1 / 24, rel=0.15)
    assert (np.abs(parts) < 0.5).mean() == pytest.approx(2 / 3, rel=0.02)


def test_heavy_secrets_and_masks_are_drawn_again(kernels, dense):
    """From the same stream, until at most the given number of coefficients is not 0."""
    weights = [np.count_nonzero(twin.secret(SEED, word, N)) for word in range(8)]
    most = sorted(weights)[3]
    secrets = kernels.secrets(SEED, 8, most)
    for word, weight in enumerate(weights):
        assert (np.count_nonzero(secrets.small[word]) == weight) == (weight <= most)
        assert np.count_nonzero(secrets.small[word]) <= most
    heavy = weights.index(max(weights))
    assert secrets.small[heavy].tolist() == twin.secret(SEED, heavy, most).tolist()
    zeros = np.zeros((4, 2, N), dtype=np.uint64)
    u, second, _ = kernels.hide(zeros, kernels.public(JOINT, ZERO_BLOCK, 1), 52, SEED, 0, 2700)
    expected, half = twin.hidden([0] * N, dense[ZERO_BLOCK], SEED, 3, 52, 2700)
    assert max(np.count_nonzero(row) for row in u) <= 2700
    assert (u[3].tolist(), second[3].tolist()) == (expected.tolist(), half)
    secrets.forget()
    assert not secrets.small.any()
    assert not secrets.values.any()


@pytest.mark.parametrize(("pattern", "most"), [("top", 0.06), ("turning", 0.001), ("random", 0.001)])
def test_the_largest_limbs_stay_far_from_the_bound(kernels, pattern, most):
    """Sixty-four full blocks of limbs ±2^25 in one cell, hence sums of 2^43: far from 1/4, and the sums of integers."""
    signs = {"top": np.ones(N), "turning": np.where(np.arange(N) % 2, 1, -1), "random": rng().choice([-1, 1], N)}
    one = np.repeat((signs[pattern] * (2**25 - 1)).astype(np.int32)[np.newaxis, :, np.newaxis], 4, axis=2)
    public = kernels.transformed(one).repeat(64, axis=0)
    out = np.zeros((1, 2, N), dtype=np.uint64)
    farthest = kernels.cells(public, Binned(np.zeros((1, 64 * N), dtype=np.uint8), (1,)), 0, range(1), out)
    assert 0 < farthest < most
    a = [sum(int(x) << 26 * k for k, x in enumerate(row)) % Q for row in one[0].tolist()]
    assert joined(out[0].T) == [64 * x % Q for x in twin.product(a, [1] * N)]


def test_a_limb_far_from_a_whole_number_is_refused(kernels):
    """By name, whether transforms are off by a little, not numbers, or made in another rounding mode."""
    public = kernels.public(JOINT, 0, 1)
    binned = Binned(np.zeros((1, N), dtype=np.uint8), (1,))
    for wrong in (public + 0.3, np.full_like(public, np.nan), np.full_like(public, np.inf)):
        with pytest.raises(FloatingPointError, match=r"cells: a limb is .* from a whole number"):
            kernels.cells(wrong, binned, 0, range(1), np.zeros((1, 2, N), dtype=np.uint64))
    with pytest.raises(FloatingPointError, match="hide: a limb"):
        kernels.hide(np.zeros((1, 2, N), dtype=np.uint64), np.full_like(public, np.nan), 40, SEED, 0)
    with pytest.raises(FloatingPointError, match="encrypt: a limb"):
        kernels.encrypt(np.full_like(public, np.nan), 0, kernels.secrets(SEED, 1), SEED, Moduli(38, (0,)), N)


def test_another_rounding_mode_is_refused(kernels):
    """Of the thread that calls, by every function that transforms."""
    libm = ctypes.CDLL(None)
    public, secrets = kernels.public(JOINT, 0, 1), kernels.secrets(SEED, 1)
    sums = np.zeros((1, 2, N), dtype=np.uint64)
    calls = [
        lambda: kernels.public(JOINT, 0, 1),
        lambda: kernels.secrets(SEED, 1),
        lambda: kernels.encrypt(public, 0, secrets, SEED, Moduli(38, (0,)), 1),
        lambda: kernels.cells(public, Binned(np.zeros((1, 1), dtype=np.uint8), (1,)), 0, range(1), sums),
        lambda: kernels.hide(sums, public, 40, SEED, 0),
    ]
    for call in calls:
        before = libm.fegetround()
        libm.fesetround(0x800 if before == 0 else before)
        try:
            with pytest.raises(FloatingPointError, match="rounding mode"):
                call()
        finally:
            libm.fesetround(before)


@pytest.mark.parametrize("bits", [1, 13, 37, 41, 48, 52])
def test_halves_are_written_one_after_the_other(kernels, bits):
    """Bit for bit, with the last byte filled up, and read again; what is no such text is refused."""
    for count in (0, 1, 7, 64, 333):
        halves = rng().integers(0, 1 << bits, count, dtype=np.uint64)
        whole = sum(half << bits * place for place, half in enumerate(halves.tolist()))
        data = kernels.write(halves, bits)
        assert data == whole.to_bytes(-(-count * bits // 8), "little")
        assert (kernels.read(data, (count,), bits) == halves).all()
        with pytest.raises(ValueError, match="another length"):
            kernels.read(data + b"\0", (count,), bits)
        if count * bits % 8:
            with pytest.raises(ValueError, match="beyond the last"):
                kernels.read(data[:-1] + bytes([data[-1] | 128]), (count,), bits)
    with pytest.raises(ValueError, match="more bits"):
        kernels.write(np.array([1 << bits], dtype=np.uint64), bits)


def test_roots_are_the_nearest_doubles():
    """Of all 8,192 places, by another way: half a unit of the last place from gmpy2's numbers of 200 bits."""
    with gmpy2.context(precision=200):
        exact = [(gmpy2.cos(x), gmpy2.sin(x)) for x in (gmpy2.const_pi() * k / 4096 for k in range(0, 8192, 7))]
        wanted = np.array([[float(x) for x in pair] for pair in exact])
    made = arrays.circle()[::7]
    assert (np.abs(made - wanted) < 1e-18).all()


def test_kernels_that_compute_wrongly_are_unavailable(monkeypatch):
    """A compiler or processor whose products are not those of integers: refused by name, whatever shows it."""
    for wrong in (arrays.circle() * (1 + 1e-7), arrays.circle()[::-1].copy()):
        monkeypatch.setattr(histograms, "circle", lambda wrong=wrong: wrong)
        with pytest.raises(library.Unavailable, match=r"form \w+\) give other products than integers"):
            histograms._compare.__wrapped__(FORMS[-1])
    monkeypatch.setattr(histograms, "circle", arrays.circle)
    monkeypatch.setattr(histograms, "exact", lambda *_: False)
    with pytest.raises(library.Unavailable, match="install treetap again with another compiler"):
        histograms._compare.__wrapped__(FORMS[-1])


def test_kernels_are_compared_when_they_are_first_used(monkeypatch):
    """By all who use them, not by a test alone."""
    histograms._compare.cache_clear()
    monkeypatch.setattr(histograms, "exact", lambda *_: False)
    try:
        with pytest.raises(library.Unavailable, match="give other products than integers"):
            histograms.Histograms()
    finally:
        histograms._compare.cache_clear()


def test_the_error_where_nothing_is_compiled_says_why(monkeypatch, tmp_path):
    """Before anything is computed, as the build's record has it."""
    (tmp_path / "kernels.json").write_text('{"why": "there was no C compiler"}')
    monkeypatch.setattr(library, "PATH", tmp_path / "kernels.so")
    monkeypatch.setattr(library, "RECORD", tmp_path / "kernels.json")
    library.forms.cache_clear()
    try:
        with pytest.raises(library.Unavailable, match="there was no C compiler"):
            histograms.Histograms()
    finally:
        library.forms.cache_clear()


@pytest.mark.skipif(len(FORMS) == 3, reason="the processor has every form")
def test_a_form_that_the_processor_lacks_is_named():
    """As the other kernels do."""
    with pytest.raises(library.Unavailable, match="the processor has no AVX"):
        histograms.Histograms("avx512")


def test_what_does_not_fit_never_reaches_a_kernel():
    """Other shapes, types and sizes are refused before an address is used."""
    k, public = histograms.Histograms(), np.zeros((1, 2048, 8))
    one, moduli = Binned(np.zeros((1, 5), dtype=np.uint8), (1,)), Moduli(38, (0, 1))
    secrets, u = k.secrets(SEED, 2), np.zeros((1, N), dtype=np.int8)
    words, sums = np.zeros((5, 2, 2), dtype=np.uint64), np.zeros((1, 2, 2), dtype=np.uint64)
    seconds, half = np.zeros((1, 2, N), dtype=np.uint64), np.zeros((1, N), dtype=np.uint64)
    zero = np.zeros((N, 2, 2), dtype=np.uint64)
    calls = [
        lambda: Moduli(43, (0,)),
        lambda: Moduli(15, (0,)),
        lambda: Moduli(38, (0,) * 82),
        lambda: Moduli(16, (1 << 15,)),
        lambda: Binned(np.zeros((1, 5), dtype=np.uint8), (257,)),
        lambda: Binned(np.ones((1, 5), dtype=np.uint8), (1,)),
        lambda: Binned(np.zeros((2, 5), dtype=np.uint8), (1,)),
        lambda: Binned(np.zeros((1, 5), dtype=np.int64), (1,)),
        lambda: k.limbs(SEED[1:], 0, 1),
        lambda: k.limbs(SEED, 1 << 32, 1),
        lambda: k.transformed(np.zeros((1, N, 3), dtype=np.int32)),
        lambda: k.secrets(SEED, 82),
        lambda: k.secrets(SEED, 1, 2000),
        lambda: k.encrypt(public, 0, secrets, SEED, moduli, N + 1),
        lambda: k.encrypt(public, 0, secrets, SEED, Moduli(38, (0,)), 5),
        lambda: k.encrypt(public, 0, secrets, SEED, moduli, np.zeros((65, 5), dtype=np.uint64)),
        lambda: k.encrypt(public, 0, secrets, SEED, moduli, np.zeros((1, 5), dtype=np.int64)),
        lambda: k.encrypt(public, 0, secrets, SEED, moduli, np.zeros((5, 2), dtype=np.uint64).T),
        lambda: k.encrypt(public, 0, secrets, SEED, moduli, np.zeros((2, 5), dtype=np.uint64)[::-1]),
        lambda: k.encrypt(public.astype(np.float32), 0, secrets, SEED, moduli, 5),
        lambda: k.unpack(bytes(27), 2),
        lambda: k.sum_words(words, one, 1, sums),
        lambda: k.sum_words(words, one, 0, np.zeros((2, 2, 2), dtype=np.uint64)),
        lambda: k.cells(np.zeros((65, 2048, 8)), one, 0, range(1), seconds),
        lambda: k.cells(public, one, 1, range(1), seconds),
        lambda: k.cells(public, one, 0, range(2), np.zeros((2, 2, N), dtype=np.uint64)),
        lambda: k.cells(public, one, 0, range(1), seconds[:, :1]),
        lambda: k.cells(public, one, 0, range(1), seconds, np.zeros(4, dtype=np.uint8)),
        lambda: k.hide(seconds, public, 53, SEED, 0),
        lambda: k.hide(seconds, np.zeros((2, 2048, 8)), 40, SEED, 0),
        lambda: k.answer(sums, zero[1:], u, 60, 40, SEED, 0),
        lambda: k.answer(sums, zero, u[:, 1:], 60, 40, SEED, 0),
        lambda: k.answer(sums, zero, u, 104, 40, SEED, 0),
        lambda: k.answer(np.asfortranarray(sums.repeat(3, 0)), zero, u.repeat(3, 0), 60, 40, SEED, 0),
        lambda: k.open(half, np.zeros((1, 3), dtype=np.uint64), secrets, 48, moduli),
        lambda: k.open(half, np.zeros((1, 2), dtype=np.uint64), secrets, 38, moduli),
        lambda: k.open(half[:, 1:], np.zeros((1, 2), dtype=np.uint64), secrets, 48, moduli),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"\w"):
            call()
