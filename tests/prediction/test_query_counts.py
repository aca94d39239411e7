"""Counts of predictions by record: exact, durable, by partner, under a key, no larger than the records asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treetap.errors import Refused
from treetap.models import line_file
from treetap.party.prediction import query_counts
from treetap.party.prediction.query_counts import QueryCounts, counts_of
from treetap.party.runtime.job_store import Store
from treetap.tables.record_ids import Ids

IDS = Ids.of(f"r{number:05d}" for number in range(50))


class PowerCut(BaseException):
    """Stands for the moment at which a process ends."""


def _enter(state: Path, places: list[int], most: int = 2, partner: str = "bank") -> None:
    QueryCounts(state, partner).enter("shop", IDS.take(np.array(places)), most)


def test_each_record_has_its_own_count_and_partner(tmp_path: Path) -> None:
    """At the edge, over processes: a refused block counts for none of its records, another partner has its own."""
    for _ in range(2):
        _enter(tmp_path, [3, 4])
    with pytest.raises(Refused, match=r"shop answers bank no more about 1 of the .* queries_per_record = 2 under"):
        _enter(tmp_path, [4, 5])
    _enter(tmp_path, [5, 6])
    _enter(tmp_path, [5])
    with pytest.raises(Refused, match="about 1 of"):
        _enter(tmp_path, [5])
    _enter(tmp_path, [3, 4, 5], most=3)
    _enter(tmp_path, [4], partner="telco")
    assert QueryCounts(tmp_path, "bank").most() == 3
    assert QueryCounts(tmp_path, "telco").most() == 1
    assert QueryCounts(tmp_path, "shop").most() == 0


def test_of_a_served_block_the_permitted_records_count(tmp_path: Path) -> None:
    """At the edge: those of which a query is left count, the others are named and do not; none changes no file."""
    counts = QueryCounts(tmp_path, "bank")
    for expected in ([False, False], [False, False]):
        assert counts.enter_permitted(IDS.take(np.array([3, 4])), 2).tolist() == expected
    assert counts.enter_permitted(IDS.take(np.array([2, 3, 5])), 2).tolist() == [False, True, False]
    before = counts.path.read_bytes()
    assert counts.enter_permitted(IDS.take(np.array([3, 4])), 2).tolist() == [True, True]
    assert counts.path.read_bytes() == before
    again = QueryCounts(tmp_path, "bank")
    assert again.most() == 2
    assert again.enter_permitted(IDS.take(np.array([2, 3, 4, 5])), 1).tolist() == [True] * 4
    assert again.enter_permitted(IDS.take(np.array([2, 3, 4, 5])), 3).tolist() == [False] * 4


def test_ids_are_not_in_the_file_and_keys_differ(tmp_path: Path) -> None:
    """The same records of two partners, or of two parties, have other hashes; the file is the party's user's alone."""
    lines = []
    for state in (tmp_path / "a", tmp_path / "b"):
        for partner in ("bank", "telco"):
            _enter(state, [0, 1], partner=partner)
            path = QueryCounts(state, partner).path
            assert b"r00000" not in path.read_bytes()
            assert path.stat().st_mode & 0o077 == 0
            lines.append(path.read_bytes().splitlines()[1])
    assert len(set(lines)) == 4


def test_lines_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has a number for each record, however often it is asked for; counts stay."""
    monkeypatch.setattr(query_counts, "MOST_LINES", 5)
    counts = counts_of(tmp_path, "bank")
    expected = np.zeros(len(IDS), dtype=np.int64)
    rng, lines = np.random.default_rng(3), []
    for _ in range(30):
        places = np.sort(rng.choice(len(IDS), 7, replace=False))
        counts.enter("shop", IDS.take(places), 100)
        expected[places] += 1
        lines.append(len(counts.path.read_bytes().splitlines()))
    assert max(lines) == 5
    again = QueryCounts(tmp_path, "bank")
    assert again.most() == counts.most() == expected.max()
    for place, count in enumerate(expected.tolist()):
        with pytest.raises(Refused):
            again.enter("shop", IDS.take(np.array([place])), count)
        again.enter("shop", IDS.take(np.array([place])), count + 1)
    assert counts_of(tmp_path, "bank") is counts


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_while_lines_are_merged_counts_a_block_whole_or_not(
    after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the process that goes on agrees with the next one."""
    monkeypatch.setattr(query_counts, "MOST_LINES", 2)
    counts = QueryCounts(tmp_path, "bank")
    counts.enter("shop", IDS.take(np.array([1, 2])), 9)
    write = line_file.write_whole

    def killed(path: Path, content: bytes) -> None:
        if after:
            write(path, content)
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(line_file, "write_whole", killed)
        with pytest.raises(PowerCut):
            counts.enter("shop", IDS.take(np.array([2, 3])), 9)
    assert counts.most() == QueryCounts(tmp_path, "bank").most() == 1 + after
    counts.enter("shop", IDS.take(np.array([2])), 9)
    assert QueryCounts(tmp_path, "bank").most() == 2 + after


def test_a_start_deletes_the_draft_of_a_file_that_was_merged(tmp_path: Path) -> None:
    """The file itself stays."""
    _enter(tmp_path, [1])
    (tmp_path / "queries" / "bank.jsonl.part").write_bytes(b"{")
    Store(tmp_path)
    assert [path.name for path in (tmp_path / "queries").iterdir()] == ["bank.jsonl"]
