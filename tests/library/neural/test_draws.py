"""Named draws: a stream that stays what it is, in any order, under private and public keys."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from treetap.neural.draws import KEY_BYTES, Draws, new_key


def test_the_stream_is_fixed() -> None:
    """Another stream would change every model: the first numbers of each kind are written down."""
    draws = Draws.of_job(7)
    assert draws.keys(2, "a", 1).tolist() == [7485038223997456037, 2396089495733024545]
    assert draws.integers(10, 8, "b").tolist() == [1, 3, 3, 7, 4, 3, 2, 4]
    assert draws.order(6, "c", 2).tolist() == [2, 1, 5, 3, 4, 0]
    assert draws.uniform(2, "d").tolist() == [0.6751415277681381, 0.883862497606247]
    assert draws.laplace(2.0, 2, "e").tolist() == pytest.approx([-1.0544900821628205, -0.05222567125924996], rel=1e-12)


def test_a_key_is_shake_256_of_key_and_name() -> None:
    """The definition, worked out without the class: the length of the key, the key, the parts with their kinds."""
    name = b"s:weights\x1fi:3"
    digest = hashlib.shake_256((4).to_bytes(4, "little") + b"seed" + name).digest(16)
    expected = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")]
    assert Draws(b"seed").keys(2, "weights", 3).tolist() == expected


def test_draws_do_not_depend_on_their_order() -> None:
    """A name's draw is the same after any others, and a longer one begins with the shorter."""
    one, other = Draws(b"k"), Draws(b"k")
    first, second = one.uniform(5, "x"), one.uniform(5, "y")
    assert np.array_equal(other.uniform(5, "y"), second)
    assert np.array_equal(other.uniform(9, "x")[:5], first)


def test_names_do_not_collide() -> None:
    """Other parts, another split into parts, and a number instead of its text are other names."""
    draws = Draws(b"k")
    paths = [("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"), ("1",), (1,), (11,), (1, 1), ()]
    assert len({draws.keys(1, *path)[0] for path in paths}) == len(paths)


def test_private_keys_differ_and_parties_of_a_reproducible_job_too() -> None:
    """Two parties never begin with the same weights; a reproducible one begins twice with the same."""
    assert (len(new_key()), repr(Draws(b"secret"))) == (KEY_BYTES, "<Draws>")
    keys = [Draws(new_key()), Draws(new_key()), Draws.of_job(1), Draws.of_job(11)]
    keys += [Draws.reproducible(1, "a"), Draws.reproducible(1, "b"), Draws.reproducible(11, "a")]
    assert len({each.keys(1, "bottom")[0] for each in keys}) == len(keys)
    again = Draws.reproducible(1, "a").uniform(4, "bottom")
    assert np.array_equal(Draws.reproducible(1, "a").uniform(4, "bottom"), again)


def test_uniform_and_whole_numbers_fill_their_range() -> None:
    """Means and extremes of 20,000 numbers, six standard errors wide."""
    uniform = Draws(b"k").uniform(20_000, "u")
    assert uniform.min() >= 0.0
    assert uniform.max() < 1.0
    assert abs(uniform.mean() - 0.5) < 6 * np.sqrt(1 / 12 / 20_000)
    counts = np.bincount(Draws(b"k").integers(4, 20_000, "i"), minlength=4)
    assert len(counts) == 4
    assert np.abs(counts - 5_000).max() < 6 * np.sqrt(20_000 * 3 / 16)


def test_laplace_has_its_moments() -> None:
    """Mean 0, variance 2 b², mean size b, and half of the numbers below 0."""
    scale, count = 0.3, 40_000
    noise = Draws(b"k").laplace(scale, count, "n")
    assert abs(noise.mean()) < 6 * scale * np.sqrt(2 / count)
    assert abs(np.abs(noise).mean() - scale) < 6 * scale / np.sqrt(count)
    assert noise.var() == pytest.approx(2 * scale**2, rel=0.1)
    assert abs((noise < 0).mean() - 0.5) < 3 / np.sqrt(count)


@pytest.mark.parametrize("key", [0, 2**64 - 1, 2**63, 2**63 - 1])
def test_laplace_is_finite_at_the_ends_of_the_uniform_numbers(monkeypatch: pytest.MonkeyPatch, key: int) -> None:
    """The smallest, largest and middle number of 64 bits give noise with a sign, and none that is infinite."""
    monkeypatch.setattr(Draws, "keys", lambda *_: np.array([key], dtype=np.uint64))
    (noise,) = Draws(b"k").laplace(1.0, 1, "n")
    assert np.isfinite(noise)
    assert 0.0 < abs(noise) < 40.0
    assert (noise < 0) == (key < 2**63)


def test_an_order_is_a_permutation_with_ties_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place once; records with equal keys keep their order on every machine."""
    assert sorted(Draws(b"k").order(100, "o").tolist()) == list(range(100))
    monkeypatch.setattr(Draws, "keys", lambda *_: np.array([5, 1] * 50, dtype=np.uint64))
    assert Draws(b"k").order(100, "o").tolist() == [*range(1, 100, 2), *range(0, 100, 2)]


def test_what_has_probability_0_never_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by the smallest of all numbers; a probability of 1 always does, others as often as they say."""
    draws = Draws(b"k")
    assert all(draws.happens(1.0, number) for number in range(50))
    share = np.mean([draws.happens(0.3, "p", number) for number in range(2000)])
    assert abs(share - 0.3) < 6 * np.sqrt(0.21 / 2000)
    monkeypatch.setattr(Draws, "keys", lambda *_: np.zeros(1, dtype=np.uint64))
    assert not Draws(b"k").happens(0.0, "p")
    assert Draws(b"k").happens(2.0**-53, "p")
