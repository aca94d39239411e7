"""Previews of an alignment: the count is that of the sets, rows are each party's own, and a policy decides."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.alignment.test_protocol import NAMES, tables
from tests.simulator import Federation, run
from treetap.wire.v2 import jobs_pb2

COUNTS: dict[str, dict[str, Any]] = {name: {"preview": "count"} for name in NAMES}
ROWS: dict[str, dict[str, Any]] = {name: {"preview": "records"} for name in NAMES}


def _ids(parties: int, seed: int) -> tuple[list[list[str]], set[str]]:
    """Ids of each party, and those that all hold; others are held by one party, or by all but one."""
    rng = random.Random(seed)
    common = [f"c{number:03d}" for number in range(5 + rng.randrange(20))]
    ids = [[*common] for _ in range(parties)]
    for number in range(30):
        for own in rng.sample(ids, rng.randrange(1, parties)):
            own.append(f"{number} {'z' * rng.randrange(40)}")
    return ids, set(common)


def _asked(folder: Path, ids: list[list[str]], policies: dict[str, dict[str, Any]], **asked: Any) -> jobs_pb2.JobStatus:
    async def main() -> jobs_pb2.JobStatus:
        federation = Federation(folder, tables(ids), policies=policies)
        status = await federation.preview(**asked)
        await federation.close()
        return status

    return run(main())


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_the_count_is_that_of_the_sets(parties: int, tmp_path: Path) -> None:
    ids, common = _ids(parties, parties)
    status = _asked(tmp_path, ids, COUNTS)
    assert (status.state, status.error) == ("finished", "")
    assert (status.common.records, status.common.fewer_than) == (len(common), 0)


@pytest.mark.parametrize("parties", [2, 3])
def test_records_are_the_own_rows_in_a_file_at_each_party(parties: int, tmp_path: Path) -> None:
    ids, common = _ids(parties, parties)
    status = _asked(tmp_path, ids, ROWS, answer="records")
    assert (status.state, status.error) == ("finished", "")
    assert status.common.records == len(common)
    assert [row.party for row in status.rows] == NAMES[:parties]
    for row in status.rows:
        written = pacsv.read_csv(row.path)
        assert Path(row.path).stat().st_mode & 0o777 == 0o600
        whole = pq.read_table(tmp_path / row.party / "train.parquet").column("id").to_pylist()
        rows = written.column("row").to_pylist()
        assert rows == sorted(rows)
        assert [whole[place] for place in rows] == written.column("id").to_pylist()
        assert {whole[place] for place in rows} == common
