"""Sizes of encrypted histograms on ring LWE: what decrypts, and how far sets of records are hidden from the key holder.

Ring Z[X]/(X^n + 1) modulo q = 2^104, n = 4096. A record's plaintext m has r words b_j = -(a·s_j)[i] + e + (q/t_j)·m,
one for each modulus t_j = 2^tb - c_j. A feature party answers candidate k with r first halves, sums of words of its
records and of an encrypted zero times a fresh ternary u_k, flooded, and with one second half: a times the set's
indicator, plus a0·u_k + e'. `docs/cryptography.md` derives every bound below and says what is not claimed;
equations are numbered as there. Bounds are decided in integers and rounded against the job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from treetap.errors import BadInput, refuse
from treetap.lattice.parameters import (
    ERROR_BOUND,
    ERROR_DEVIATION,
    STATISTICAL_BITS,
    TAIL,
    estimated_bits,
    matzov_bits,
)
from treetap.native.histogram_arrays import (
    DEGREE,
    FLOOD_BITS,
    HALF_BITS,
    LARGEST_WEIGHT,
    LIMB_BITS,
    LIMBS,
    MOST_BINS,
    MOST_WORDS,
    WORD_BITS,
)
from treetap.trees.slots import LARGEST_WIDTH

MODULUS_BITS = LIMBS * LIMB_BITS
#: Attempts of a job that the flood allows for; each doubling costs half a bit of it.
ATTEMPTS = 8
#: Largest mean error of a record's randomly rounded (q/t)·m: 22 random bits, and a reciprocal of tb + 20 bits.
ROUNDING_BIAS = Fraction(1, 1 << 22) + Fraction(1, 1 << 20)
#: J·4w² of three uniform numbers below w, for every w ≥ 1024 (equation 4; its limit is 4.5621).
FLOOD_INFORMATION = Fraction(457, 100)
MOST_REPLY_BITS = HALF_BITS
SLOT_WIDTHS = range(1, LARGEST_WIDTH + 1)
MOST_QUERIES_PER_SECOND_HALF = 4
#: Places of a u_k that a label holder with bad zero blocks may read (equation 9).
MOST_PLACES = 1792
#: Bits of hiding that may be asked for: from what every job has to what leaves room for words.
HIDING = range(STATISTICAL_BITS, 65)
#: Places of each secret that a feature party which lies may read from comparisons, on average (equation 10).
MOST_TOLD = 420
MOST = {"records": (1 << 31) - 1, "candidates": 1 << 24, "queries": 1 << 24, "attempts": 1 << 10}


@dataclass(frozen=True)
class HistogramParameters:
    """One agreed set of sizes; all parties of a job compute equal ones from its layout (`choose`).

    Attributes:
        records: N, the most records in a candidate.
        widths: bits of each slot of a plaintext (`Slots.widths`), with room for noise that a party adds to sums.
        bins: most bins of a column, one for missing values included.
        candidates: candidate sums that one feature party answers at a node; the most of any party.
        queries: nodes answered in an attempt, in all trees.
        words: r, first halves of a candidate.
        word_bits: tb; moduli are just below 2^tb.
        flood_bits: fb; a flood is three uniform numbers below w = 2^fb, less their mean.
        reply_bits: qp; both halves are rounded to multiples of 2^(104 - qp).
        attempts: attempts of the job that the hiding holds for, all together.
        noised: True if a party adds noise or masks to its sums.
        hiding: bits by which the sets of records are hidden, in all attempts of the job together.

    Raises:
        BadInput: a figure out of range, hiding below `hiding` for the job, or
            a plaintext that the words do not hold.
    """

    records: int
    widths: tuple[int, ...]
    bins: int
    candidates: int
    queries: int
    words: int
    word_bits: int
    flood_bits: int
    reply_bits: int
    attempts: int = ATTEMPTS
    noised: bool = False
    hiding: int = STATISTICAL_BITS

    def __post_init__(self) -> None:
        _check_job(self.records, self.widths, self.bins, self.candidates, self.queries, self.attempts)
        _check_hiding(self.hiding)
        for name, values in (
            ("words", range(1, MOST_WORDS + 1)),
            ("word_bits", WORD_BITS),
            ("flood_bits", FLOOD_BITS),
            ("reply_bits", range(self.word_bits + 1, MOST_REPLY_BITS + 1)),
        ):
            if (value := getattr(self, name)) not in values:
                raise BadInput(f"{name} {value} is outside of what the kernels take: {values[0]} to {values[-1]}")
        if self.flood_bits < (needed := _flood_bits(self.noise, self.first_halves, self.hiding)):
            hidden = math.floor(10 * self.hiding_bits) / 10
            raise BadInput(
                f"flood_bits {self.flood_bits} would hide the sets of records by {hidden} bits, "
                f"{self.hiding} are required for all {self.attempts} attempts of a job: take {needed}"
            )
        refuse(
            (
                not _holds(self.moduli, self.plain_bits),
                f"a plaintext of {self.plain_bits} bits does not fit {self.words} words of {self.word_bits} bits: take "
                "more words, or wider ones",
            ),
            (
                self.noise_share >= 1,
                f"word_bits {self.word_bits} with flood_bits {self.flood_bits} and reply_bits {self.reply_bits} would "
                "not decrypt: take narrower words, or longer replies",
            ),
            (
                not self.nodes_per_secret,
                f"words {self.words} let a party that lies read more than {MOST_TOLD} places of a secret by "
                f"{self.candidates} candidates: take more words",
            ),
            (
                not self.queries_per_second_half,
                f"words {self.words} of {self.word_bits} bits are more than one second half may serve: at most "
                f"{MOST_PLACES // self.places_per_word}; give each class its own trees, or take another scheme",
            ),
            kind=BadInput,
        )

    @classmethod
    def choose(
        cls,
        records: int,
        widths: Sequence[int],
        bins: int,
        candidates: int,
        queries: int,
        attempts: int = ATTEMPTS,
        hiding: int = STATISTICAL_BITS,
        *,
        noised: bool = False,
    ) -> HistogramParameters:
        """The set with the fewest words, and among these with the shortest replies.

        Raises:
            BadInput: a figure out of range, or nothing fits.
        """
        slots = tuple(widths)
        _check_job(records, slots, bins, candidates, queries, attempts)
        _check_hiding(hiding)
        noise, sums, plain_bits = _noise(records, noised), candidates * queries * attempts, sum(slots)
        for words in (words for words in range(1, MOST_WORDS + 1) if _nodes(words, candidates)):
            word_bits, flood_bits = _word_bits(words, plain_bits), _flood_bits(noise, sums * words, hiding)
            for reply_bits in range(word_bits + 1, MOST_REPLY_BITS + 1):
                if _noise_share(noise, word_bits, flood_bits, reply_bits) < 1:
                    sizes = (words, word_bits, flood_bits, reply_bits)
                    return cls(records, slots, bins, candidates, queries, *sizes, attempts, noised, hiding)
        raise BadInput(
            f"a plaintext of {plain_bits} bits does not fit {MOST_WORDS} words beside a flood of {flood_bits} bits, "
            f"which {candidates} candidates, {queries} queries, {attempts} attempts and {hiding} bits of hiding need: "
            "give each class its own trees, take fewer trees or bins, fewer bits of hiding, or another scheme"
        )

    @property
    def complements(self) -> tuple[int, ...]:
        """c_j, ascending: the smallest with which the t_j are pairwise coprime; the first is 0."""
        return _complements(self.words, self.word_bits)

    @property
    def moduli(self) -> tuple[int, ...]:
        """t_j = 2^tb - c_j."""
        return tuple((1 << self.word_bits) - c for c in self.complements)

    @property
    def plain_bits(self) -> int:
        """Bits of a signed plaintext, |m| < 2^(plain_bits - 1)."""
        return sum(self.widths)

    @property
    def first_halves(self) -> int:
        """Q: first halves that a feature party returns in all attempts of the job."""
        return self.candidates * self.queries * self.words * self.attempts

    @property
    def noise(self) -> int:
        """V: the most by which the sets shift a first half's flood, but with 2^-140 (equations 1 and 2)."""
        return _noise(self.records, self.noised)

    @property
    def hiding_bits(self) -> float:
        """-log2 of the statistical distance V·√(4.57·Q)/(2w) of all answers from simulated ones (equation 5)."""
        shift = FLOOD_INFORMATION * self.noise**2 * self.first_halves
        return self.flood_bits + 1 - (math.log2(shift.numerator) - math.log2(shift.denominator)) / 2

    @property
    def noise_share(self) -> Fraction:
        """The largest honest error of an opened word, as a part of what decrypts; a larger one is a breach."""
        return _noise_share(self.noise, self.word_bits, self.flood_bits, self.reply_bits)

    @property
    def places_per_word(self) -> int:
        """Ternary places of u_k that a first half shows to a label holder with a bad zero block: 3^(k+1) ≤ q/w."""
        places = 0
        while 3 ** (places + 2) <= 1 << (MODULUS_BITS - self.flood_bits):
            places += 1
        return places

    @property
    def queries_per_second_half(self) -> int:
        """Queries that may be answered under one u_k and second half; then both are drawn anew."""
        return min(MOST_QUERIES_PER_SECOND_HALF, MOST_PLACES // (self.places_per_word * self.words))

    @property
    def nodes_per_secret(self) -> int:
        """Summed nodes that a query's secrets may serve; then the records are encrypted anew (equation 10)."""
        return _nodes(self.words, self.candidates)

    @property
    def query_bytes(self) -> int:
        """Size of a query: r words of every record and of a block of zeros."""
        return self.words * (self.records + DEGREE) * MODULUS_BITS // 8

    @property
    def second_half_bytes(self) -> int:
        """Size of a candidate's second half."""
        return DEGREE * self.reply_bits // 8


def secrecy_bits() -> float:
    """Estimated bits of secrecy of plaintexts and sets, before a label holder that cheats reads places of u_k."""
    return estimated_bits(DEGREE, DEGREE, MODULUS_BITS, ERROR_DEVIATION)


def secrecy_words() -> str:
    """The estimated secrecy for refusals and docs; after told places by the cost that is less, to the nearest bit."""
    sizes = (DEGREE - MOST_TOLD, DEGREE, MODULUS_BITS, ERROR_DEVIATION)
    left = min(estimated_bits(*sizes), matzov_bits(*sizes))
    return (
        f"of a key of which no place was told ({math.floor(secrecy_bits())} bits); {left:.0f} after the {MOST_TOLD} "
        "places that a lying feature party may have"
    )


def _check_job(
    records: int,
    widths: tuple[int, ...],
    bins: int,
    candidates: int,
    queries: int,
    attempts: int,
) -> None:
    figures = {"records": records, "candidates": candidates, "queries": queries, "attempts": attempts}
    for name, value in figures.items():
        if not 1 <= value <= MOST[name]:
            raise BadInput(
                f"{name} {value} is outside of what the lattice scheme takes, 1 to {MOST[name]}: take another scheme"
            )
    if not 2 <= bins <= MOST_BINS:
        raise BadInput(
            f"bins {bins}, one for missing values counted, is outside of what the lattice scheme takes, 2 to "
            f"{MOST_BINS}: take other bins, or another scheme"
        )
    if not widths or not all(width in SLOT_WIDTHS for width in widths):
        raise BadInput(f"widths {widths} must be of 1 to {SLOT_WIDTHS[-1]} bits each: scale the values down")


def _check_hiding(bits: int) -> None:
    if bits not in HIDING:
        raise BadInput(f"hiding {bits} is outside of what the lattice scheme takes: {HIDING[0]} to {HIDING[-1]}")


def _root(square: Fraction) -> int:
    """⌈√square⌉."""
    whole = -(-square.numerator // square.denominator)
    return math.isqrt(whole - 1) + 1 if whole else 0


def _noise(records: int, noised: bool) -> int:
    """V (equations 1 and 2): tail of errors and rounding, bias, half a unit for ⌊(q/t)·Σm⌉, one for what is added."""
    errors = Fraction(ERROR_BOUND, 2) * (records + 2 * LARGEST_WEIGHT)
    return _root(TAIL**2 * (errors + Fraction(records, 4))) + math.ceil(records * ROUNDING_BIAS) + 1 + noised


def _flood_bits(noise: int, first_halves: int, hiding: int) -> int:
    """The least fb with V·√(4.57·Q) / 2^(fb+1) ≤ 2^-hiding (equation 5)."""
    square: int = math.ceil(FLOOD_INFORMATION * noise**2 * max(first_halves, 1) * 4 ** (hiding - 1))
    return max(FLOOD_BITS[0], ((square - 1).bit_length() + 1) // 2)


def _noise_share(noise: int, word_bits: int, flood_bits: int, reply_bits: int) -> Fraction:
    """Equation 6: of half a step 2^qp/(2t) at t = 2^tb."""
    reply = Fraction(1 << reply_bits, 1 << MODULUS_BITS)
    flood = Fraction(3 * (1 << flood_bits), 2)
    rounding = _root(Fraction(TAIL**2 * DEGREE, 6)) + Fraction(1, 2)
    return ((flood + noise) * reply + rounding) / Fraction(1 << reply_bits, 2 << word_bits)


def _nodes(words: int, candidates: int) -> int:
    """Equation 10: a candidate that lies tells at most 2·3^-r places at a node, and as many at its sibling."""
    told: int = MOST_TOLD * 3**words
    return told // (4 * candidates)


def _holds(moduli: Sequence[int], plain_bits: int) -> bool:
    """True if signed plaintexts of that many bits are told apart by their residues."""
    return math.prod(moduli) >= 1 << plain_bits


def _word_bits(words: int, plain_bits: int) -> int:
    """The least tb at which that many moduli hold a plaintext; beyond every reply if none of `WORD_BITS` does."""
    for bits in range(max(WORD_BITS[0], plain_bits // words), WORD_BITS[-1] + 1):
        if _holds([(1 << bits) - c for c in _complements(words, bits)], plain_bits):
            return bits
    return MOST_REPLY_BITS


@cache
def _complements(words: int, word_bits: int) -> tuple[int, ...]:
    kept: list[int] = []
    for c in range(1 << (word_bits - 1)):
        if all(math.gcd((1 << word_bits) - c, (1 << word_bits) - other) == 1 for other in kept):
            kept.append(c)
            if len(kept) == words:
                break
    return tuple(kept)
