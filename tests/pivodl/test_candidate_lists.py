"""Lists of records left of candidates, as published: the sums that bins give, however lists are cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from treetap.errors import Malformed
from treetap.party.pivodl import label_owner
from treetap.party.pivodl.label_owner import SourceBins, candidate_sets, left_sums_of_sets
from treetap.trees.candidates import CandidateList
from treetap.trees.tree_bins import left_sums
from treetap.wire.v2 import pivodl_pb2

Change = Callable[[list[pivodl_pb2.CandidateSet]], None]
RNG = np.random.default_rng(3)
BINS = SourceBins(RNG.integers(0, 4, size=(40, 2)).astype(np.int32), CandidateList([(4, False), (3, True)]))
VALUES = RNG.integers(-50, 50, size=(40, 3))
NODES = [(4, np.arange(0, 40, 2)), (5, np.array([], dtype=np.int64)), (6, np.array([1, 3, 39]))]


def _received(change: Change = lambda sets: None) -> list[np.ndarray]:
    """What an owner sums of the lists as they arrive."""
    sets = [each for message in candidate_sets(BINS, NODES) for each in message.sets]
    change(sets)

    async def contents() -> AsyncIterator[pivodl_pb2.CandidateRecords]:
        for each in sets:
            yield pivodl_pb2.CandidateRecords(sets=[each])

    return asyncio.run(left_sums_of_sets(contents(), "bank", VALUES, NODES))


@pytest.mark.parametrize("listed", [1, 4, 1000])
def test_lists_give_the_sums_of_bins(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one set or in many, of nodes with and without records of the owner."""
    monkeypatch.setattr(label_owner, "_LISTED", listed)
    expected = list(left_sums(BINS.codes, BINS.candidates, VALUES, [places for _, places in NODES]))
    for found, sums in zip(_received(), expected, strict=True):
        assert np.array_equal(found, sums)


def _repeated(sets: list[pivodl_pb2.CandidateSet]) -> None:
    sets.insert(1, sets[0])


def _skipped(sets: list[pivodl_pb2.CandidateSet]) -> None:
    del sets[:2]


def _elsewhere(sets: list[pivodl_pb2.CandidateSet]) -> None:
    sets[0].records[:] = [1]


def _emptied_and_repeated(sets: list[pivodl_pb2.CandidateSet]) -> None:
    again = pivodl_pb2.CandidateSet()
    again.CopyFrom(sets[0])
    del sets[0].records[:]
    sets.insert(1, again)


@pytest.mark.parametrize("change", [_repeated, _skipped, _elsewhere, _emptied_and_repeated])
def test_lists_that_are_none_are_refused(change: Change) -> None:
    """A record that counts twice, a candidate without a list, and records outside the node."""
    with pytest.raises(Malformed):
        _received(change)
