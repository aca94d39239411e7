"""Exact draws of the discrete Gaussian distribution: P(x) proportional to exp(−x² / 2σ²) over all integers x.

Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithms 1 to 3. Whole numbers
with this noise have the same ρ of zero-concentrated differential privacy as real numbers with Gaussian noise of that σ
(Theorem 4 there). Floating-point noise has not: the low bits of a sum of floats can tell which value was under it
(Mironov 2012). The variance is below σ², by less than 10⁻⁶ of it for σ ≥ 1. Time depends on what is drawn.

`discrete_gaussian` draws one, of any σ, as those algorithms are written. `discrete_gaussians` draws millions with the
same distribution. It takes Algorithm 3 as one rejection: with t = ⌊σ⌋ + 1, a sign, a uniform `low` below t and a `high`
with P(high ≥ h) = exp(−h) propose y = low + t · high, which is accepted with the probability exp(−x),
x = (y − σ²/t)² / 2σ² + low/t. That is the product of the probabilities of the two acceptances there.

Every event is U < exp(−x) for a uniform real number U in [0, 1), of which 64 bits are drawn first. Where these bits and
bounds of exp(−x) decide it, nothing more is needed; where not, the proposal is decided from the same bits, and as many
further ones as it takes, in exact arithmetic (`_Uniform`). So no approximation is in the distribution:

- P(high ≥ h): 64 bits decide against ⌊2⁶⁴ exp(−h)⌋ unless they are equal to it.
- x, in float64, with u = 2⁻⁵³ and r = |y − σ²/t| / σ: y < 2⁵³ is exact; σ²/t < σ, 1/2σ² and 1/t are rounded once. So
  y − σ²/t is wrong by at most (1 + r)uσ and x by (3r² + r + 3)u, to first order. As exp(−x) ≤ exp(−r²/2), that makes
  exp(−x) wrong by less than 5u, whatever r is.
- exp(−x) of such an x, `_exp`: x = n/64 + s, s < 1/64, without an error. exp(−n/64) is from a table, wrong by u/2; the
  Taylor polynomial of degree 6 at s leaves out less than s⁷/5040 < u/2, its sums and products are wrong by less than u,
  the last product by u/2: in all less than 3u. Beyond x = 44 both exp(−x) and what stands for it are below 2⁻⁶³.
- U: its first 53 bits are compared, which leaves out less than u. In all that is below 16u = 2⁻⁴⁹. Differences up to
  `_UNDECIDED` = 2⁻⁴⁶, those of one proposal in 2⁴⁵, count as undecided.

These bounds rest on IEEE 754 sums, products and a table of this module, not on a library's exponential function.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from treetap.arrays import Floats, Ints, Words

#: Returns a uniform whole number below its argument.
RandBelow = Callable[[int], int]
#: Returns as many uniform bytes as its argument says.
Source = Callable[[int], bytes]

#: σ² of `discrete_gaussians`: up to σ = 2⁴⁵, y below 45t is a whole number in float64 and nothing overflows. Larger y,
#: of which P < exp(−44), are drawn in Python's whole numbers; int64 holds all but those of which P < exp(−2³⁴).
SMALLEST_VARIANCE, LARGEST_VARIANCE = Fraction(1, 1 << 40), Fraction(1 << 90)
#: Proposals at a time: their arrays stay in a core's cache.
_BLOCK = 1 << 14
_UNDECIDED = 2.0**-46
_CUT = 44.0
#: Steps of the table of `_exp` in 1.
_STEPS = 64


def discrete_gaussian(variance: Fraction, randbelow: RandBelow = secrets.randbelow) -> int:
    """One draw with the parameter σ² = `variance` > 0 (Algorithm 3); from the operating system's randomness."""
    scale = math.isqrt(math.floor(variance)) + 1
    while True:
        drawn = _discrete_laplace(scale, randbelow)
        if _below_exp((abs(drawn) - variance / scale) ** 2 / (2 * variance), randbelow):
            return drawn


def discrete_gaussians(count: int, variance: Fraction, source: Source = os.urandom) -> Ints:
    """Independent draws (count,) with the parameter σ² = `variance`; from the operating system's randomness.

    Some millions a second, whatever σ is. Raises `ValueError` if σ is below 2⁻²⁰ or above 2⁴⁵.
    """
    if not SMALLEST_VARIANCE <= variance <= LARGEST_VARIANCE:
        raise ValueError(f"the variance is to be from 2^-40 to 2^90, not {variance}")
    proposals = _Proposals(variance, source)
    drawn, done = np.empty(count, dtype=np.int64), 0
    while done < count:
        accepted = proposals.accepted(min(_BLOCK, 2 * (count - done) + 16))[: count - done]
        drawn[done : done + len(accepted)] = accepted
        done += len(accepted)
    return drawn


class _Proposals:
    """Proposals of draws, and which of them are accepted, for one σ."""

    def __init__(self, variance: Fraction, source: Source) -> None:
        self._variance, self._source = variance, source
        self._scale = scale = math.isqrt(math.floor(variance)) + 1
        self._centre, self._half = float(variance / scale), float(1 / (2 * variance))
        self._step = float(Fraction(1, scale))
        # the largest number of 64 bits below which all remainders by 2t are as likely
        self._last = np.uint64((1 << 64) // (2 * scale) * (2 * scale) - 1)

    def accepted(self, count: int) -> Ints:
        """Propose `count` draws, 24 random bytes each; those that are accepted, in their order."""
        words = np.frombuffer(self._source(24 * count), dtype="<u8").astype(np.uint64, copy=False).reshape(3, count)
        lows, highs, uniforms = words
        sided = (lows % np.uint64(2 * self._scale)).view(np.int64)
        low = sided >> 1
        below = np.searchsorted(_HIGHS, highs, side="right")
        sizes = (len(_HIGHS) - below) * self._scale + low
        gaps = self._probabilities(sizes, low)
        gaps -= (uniforms >> np.uint64(11)) * 2.0**-53
        taken = gaps > _UNDECIDED
        undecided = (np.abs(gaps) <= _UNDECIDED) | (_HIGHS[below - 1] == highs)
        for place in np.flatnonzero(undecided):
            size = self._decided(int(low[place]), int(highs[place]), int(uniforms[place]))
            taken[place] = size is not None
            sizes[place] = size or 0
        negative = (sided & 1).astype(np.bool_)
        taken &= ~(negative & (sizes == 0))  # else zero would come twice as often
        taken &= lows <= self._last
        return np.where(negative, -sizes, sizes)[taken]

    def _probabilities(self, sizes: Ints, low: Ints) -> Floats:
        """The probability with which each proposal is accepted, wrong by less than 2⁻⁴⁹."""
        offsets = sizes.astype(np.float64)
        offsets -= self._centre
        offsets *= offsets
        offsets *= self._half
        offsets += low * self._step
        return _exp(offsets)

    def _decided(self, low: int, high_bits: int, accept_bits: int) -> int | None:
        """The size of a proposal if it is accepted, from its bits and, if need be, further ones; exact."""
        number, high = _Uniform(high_bits, self._source), 0
        while number.below_exp(Fraction(high + 1)):
            high += 1
        size = low + self._scale * high
        centre = self._variance / self._scale
        exponent = (size - centre) ** 2 / (2 * self._variance) + Fraction(low, self._scale)
        return size if _Uniform(accept_bits, self._source).below_exp(exponent) else None


class _Uniform:
    """A uniform real number in [0, 1), by its first bits: more are drawn where a comparison needs them."""

    def __init__(self, drawn: int, source: Source) -> None:
        self._drawn, self._bits, self._source = drawn, 64, source

    def below_exp(self, exponent: Fraction) -> bool:
        """True if the number is below exp(−exponent), exponent ≥ 0."""
        while True:
            least, most = exp_bounds(exponent, self._bits)
            if self._drawn < least:
                return True
            if self._drawn >= most:
                return False
            self._drawn = self._drawn << 64 | int.from_bytes(self._source(8), "little")
            self._bits += 64


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Whole numbers that 2^bits · exp(−exponent) lies between, exponent ≥ 0: 0 or 1 apart for 0, at most 2 elsewhere.

    exp(exponent) is at least the sum of its series' first terms. When a term is at least twice the next one, the rest
    of the series is at most that term. Terms are whole numbers of 2^-(bits + 64), rounded down and rounded up.
    """
    if exponent > bits:
        return 0, 1
    one = 1 << (bits + 64)
    term = total = upper_term = upper = one
    turn = 0
    while turn + 1 < 2 * exponent or upper_term << bits > one:
        turn += 1
        divisor = exponent.denominator * turn
        term = term * exponent.numerator // divisor
        upper_term = -(-upper_term * exponent.numerator // divisor)
        total += term
        upper += upper_term
    return (one << bits) // (upper + upper_term), -(-(one << bits) // total)


def _exp(arguments: Floats) -> Floats:
    """exp(−x), wrong by less than 3 · 2⁻⁵³, of x ≥ 0 up to 44 and of 44 beyond; `arguments` is overwritten."""
    np.minimum(arguments, _CUT, out=arguments)
    steps = (arguments * _STEPS).astype(np.int64)
    arguments -= steps * (1 / _STEPS)
    series: Floats = arguments * _TAYLOR[0]
    for coefficient in _TAYLOR[1:]:
        series += coefficient
        series *= arguments
    series += 1.0
    series *= _TABLE[steps]
    return series


def _powers(exponent: Fraction, count: int) -> list[int]:
    """exp(−n · exponent), n from 0 to `count`, in whole numbers of 2⁻²⁵⁶: too small by less than 2 · count of them."""
    step, powers = exp_bounds(exponent, 256)[0], [1 << 256]
    for _ in range(count):
        powers.append(powers[-1] * step >> 256)
    return powers


#: ⌊2⁶⁴ exp(−h)⌋ for h from 45, where it is 0, down to 1.
_HIGHS: Words = np.array([power >> 192 for power in _powers(Fraction(1), 45)[:0:-1]], dtype=np.uint64)
#: exp(−n/64) for n from 0 to 44 · 64.
_TABLE: Floats = np.array([math.ldexp(power, -256) for power in _powers(Fraction(1, _STEPS), int(_CUT) * _STEPS)])
#: Coefficients of exp(−s) from s⁶ to s¹.
_TAYLOR = [(-1) ** power / math.factorial(power) for power in range(6, 0, -1)]


def _discrete_laplace(scale: int, randbelow: RandBelow) -> int:
    """P(x) proportional to exp(−|x| / scale) (Algorithm 2, with s = 1)."""
    while True:
        low = randbelow(scale)
        if not _below_exp(Fraction(low, scale), randbelow):
            continue
        high = 0
        while _below_exp(Fraction(1), randbelow):
            high += 1
        size = low + scale * high
        negative = randbelow(2) == 1
        if not (negative and size == 0):  # else zero would come twice as often
            return -size if negative else size


def _below_exp(exponent: Fraction, randbelow: RandBelow) -> bool:
    """True with the probability exp(−exponent), exponent ≥ 0 (Algorithm 1)."""
    while exponent > 1:
        if not _below_exp(Fraction(1), randbelow):
            return False
        exponent -= 1
    turns = 1
    while randbelow(exponent.denominator * turns) < exponent.numerator:
        turns += 1
    return turns % 2 == 1
