"""Lists of points in files: shuffled uniformly and intersected exactly, whatever the groups that they are taken by."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from typing import IO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.errors import Malformed
from treetap.psi import lists
from treetap.psi.group import POINT_BYTES
from treetap.psi.lists import PointList, common, permutation, shuffled


class _Files:
    """Opens files, and knows which are open still."""

    def __init__(self) -> None:
        self.made: list[IO[bytes]] = []

    def __call__(self) -> IO[bytes]:
        self.made.append(io.FileIO(os.memfd_create("points"), "r+"))
        return self.made[-1]

    @property
    def open(self) -> int:
        return sum(not each.closed for each in self.made)


@pytest.fixture
def files() -> Iterator[_Files]:
    """Files of one test."""
    found = _Files()
    yield found
    for each in found.made:
        each.close()


def _points(values: list[int]) -> list[bytes]:
    """A point that begins with the byte of each value, and differs from the others' at its end."""
    return [bytes([value % 256]) + value.to_bytes(POINT_BYTES - 1, "big") for value in values]


def _list(files: _Files, points: list[bytes]) -> PointList:
    made = PointList(files())
    made.append(b"".join(points))
    return made


def _content(points: PointList) -> list[bytes]:
    block = b"".join(points.blocks())
    return [block[at : at + POINT_BYTES] for at in range(0, len(block), POINT_BYTES)]


def _met(files: _Files, *held: list[bytes]) -> tuple[list[bytes], list[int]]:
    found, places = [], []
    for points, rows in common(files, *(_list(files, each) for each in held)):
        block = points.tobytes()
        found += [block[at : at + POINT_BYTES] for at in range(0, len(block), POINT_BYTES)]
        places += rows.tolist()
    return found, places


@pytest.fixture(params=[1 << 16, 5, 1], ids=["one group", "some groups", "most groups"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks that hold all points of a test, and ones that hold few."""
    monkeypatch.setattr(lists, "BLOCK", request.param)
    return int(request.param)


def test_a_list_is_written_in_any_order(files: _Files) -> None:
    """Parts are put at their places; a read ends with the list; a file that was cut is not taken for one."""
    points = _points(list(range(10)))
    made = PointList(files(), 10)
    for first in (8, 0, 4):
        made.put(first, b"".join(points[first : first + 4]))
    assert len(made) == 10
    assert b"".join(made.blocks(3)) == b"".join(points)
    assert made.take(8, 5) == b"".join(points[8:])
    files.made[0].truncate(100)
    with pytest.raises(OSError, match="68 of 128 bytes"):
        made.take(1, 4)


def test_what_all_lists_hold_is_found_in_order(files: _Files, block: int) -> None:
    """Sorted by the points' bytes, with places of the first list, by any number of groups."""
    rng = np.random.default_rng(block)
    universe = _points(list(range(700)))
    held = [[universe[i] for i in rng.permutation(700)[:600]] for _ in range(3)]
    expected = sorted(set.intersection(*map(set, held)))
    found, places = _met(files, *held)
    assert found == expected
    assert [held[0][place] for place in places] == expected
    assert files.open == 3


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 40), unique=True),
    st.lists(st.integers(0, 40), unique=True),
    st.sampled_from([1, 3, 1 << 16]),
    st.booleans(),
)
def test_lists_of_any_shape(one: list[int], other: list[int], size: int, alike: bool) -> None:
    """Empty ones, equal ones, and points whose first eight bytes are equal, as a spoilt list may have them."""
    files = _Files()
    made = [
        [bytes(8) + value.to_bytes(24, "big") for value in each] if alike else _points(each) for each in (one, other)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "BLOCK", size)
        found, places = _met(files, *made)
    assert found == sorted(set(made[0]) & set(made[1]))
    assert [made[0][place] for place in places] == found
    for each in files.made:
        each.close()


def test_a_point_twice_is_malformed(files: _Files, block: int) -> None:
    """In whichever list: ids are distinct, hence so are their points."""
    good = _points([1, 2, 3, 300, 301, 302])
    for pair in ([[*good, good[2]], good], [good, [*good, good[4]]]):
        with pytest.raises(Malformed, match="a list of blinded identifiers holds one twice"):
            _met(files, *pair)


def test_a_list_of_which_too_many_points_begin_alike_is_malformed(
    files: _Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that chooses its points so cannot fill this party's memory with one group; hashed ids never do it."""
    monkeypatch.setattr(lists, "BLOCK", 256)
    points = [bytes([7]) + value.to_bytes(POINT_BYTES - 1, "big") for value in range(5000)]
    with pytest.raises(Malformed, match="too many of its points begin alike"):
        _met(files, _points([7]), points)


def test_a_shuffle_keeps_the_points(files: _Files, block: int) -> None:
    """All of them, in another order; the former list's file and the groups' are gone."""
    points = _points(list(range(500)))
    made = shuffled(_list(files, points), files)
    assert _content(made) != points
    assert sorted(_content(made)) == sorted(points)
    assert files.open == 1
    assert sorted(permutation(500).tolist()) == list(range(500))


@pytest.mark.parametrize("size", [1 << 16, 1])
def test_shuffles_are_uniform(files: _Files, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each order of four things comes about equally often: chi-square below its 99.9999th percentile."""
    monkeypatch.setattr(lists, "BLOCK", size)
    points = _points(list(range(4)))
    rounds = 24 * 40
    for draw in (
        lambda: tuple(permutation(4).tolist()),
        lambda: tuple(point[0] for point in _content(shuffled(_list(files, points), files))),
    ):
        seen = Counter(draw() for _ in range(rounds))
        expected = rounds / 24
        assert set(seen) <= set(permutations(range(4)))
        assert sum((count - expected) ** 2 / expected for count in seen.values()) < 71  # 23 degrees of freedom


def test_groups_are_bounded() -> None:
    """One for a short list, at most 256 for a long one."""
    sizes = (0, 1, lists.BLOCK, lists.BLOCK + 1, 1_000_000, 10_000_000, 1 << 27)
    assert [lists._groups_of(size) for size in sizes] == [1, 1, 1, 2, 16, 256, 256]
