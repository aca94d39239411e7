"""Scores of blocks in any order come back in the order of the ids, a part at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.library.process.test_grouped_rows import FILE
from treetap.errors import DataError
from treetap.party.prediction.scores_on_disk import ScoreStore
from treetap.party.runtime.job_store import JobStore

RECORDS, BLOCK = 60, 7


def _store(folder: Path) -> JobStore:
    return JobStore(folder / "jobs" / "p", folder / "models" / "p")


def _scored(folder: Path) -> tuple[ScoreStore, dict[str, Any]]:
    """A store of blocks whose records are in the order of an alignment, and all arrays by place in the own table."""
    draws = np.random.default_rng(3)
    arrays = {
        "scores": draws.normal(size=(RECORDS, 2)),
        "guessed": draws.random(RECORDS),
        "open_leaves": draws.integers(0, 256, size=(RECORDS, 3), dtype=np.uint8),
        "attributions": draws.normal(size=(RECORDS, 4, 2)),
    }
    scored = ScoreStore(_store(folder), "submission", "d", FILE)
    scored.open("digest", folder)
    order = draws.permutation(RECORDS)
    for first in range(0, RECORDS - BLOCK, BLOCK):  # the last records have no score
        rows = order[first : first + BLOCK]
        further = {name: arrays[name][rows] for name in ("open_leaves", "attributions")}
        scored.add(rows, arrays["scores"][rows], arrays["guessed"][rows], further)
    return scored, arrays


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_arrays_in_the_order_of_ids(at_once: int, tmp_path: Path) -> None:
    """All of them or some, of all records or some, also in a later attempt."""
    scored, arrays = _scored(tmp_path)
    again = ScoreStore(_store(tmp_path), "submission", "d", FILE)
    again.open("digest", tmp_path)
    assert len(scored.records()) == 56
    assert np.array_equal(scored.records(), again.records())
    for known in (scored.records(), scored.records()[::3], scored.records()[:0]):
        for names in (list(arrays), ["guessed"], ["attributions", "scores"]):
            parts = list(again.in_order(names, known, at_once))
            assert [len(part[names[0]]) for part in parts[:-1]] == [at_once] * (len(parts) - 1)
            for name in names if len(known) else ():
                assert np.array_equal(np.concatenate([part[name] for part in parts]), arrays[name][known])
                assert np.array_equal(again.rows(name, known), arrays[name][known])


def test_a_block_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """No record is left out silently."""
    scored, _ = _scored(tmp_path)
    (_store(tmp_path).folder / "block-2.npz").unlink()
    with pytest.raises(DataError, match="block 2 of the scores is gone"):
        list(scored.in_order(["scores"], scored.records()))
