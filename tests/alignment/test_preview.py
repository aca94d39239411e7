"""Previews of an alignment: the count is that of the sets, rows are each party's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.alignment.previews import COUNTS, ROWS, asked, drawn_ids
from tests.alignment.test_protocol import NAMES, PARAMS, Tables, job, tables
from tests.simulator import Federation, finished
from treetap.protocols.prediction import predict_request


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_the_count_is_that_of_the_sets(parties: int, tmp_path: Path) -> None:
    ids, common = drawn_ids(parties, parties)
    status = asked(tmp_path, ids, COUNTS)
    assert (status.state, status.error) == ("finished", "")
    assert (status.common.records, status.common.fewer_than) == (len(common), 0)


@pytest.mark.parametrize("parties", [2, 3])
def test_records_are_the_own_rows_in_a_file_at_each_party(parties: int, tmp_path: Path) -> None:
    ids, common = drawn_ids(parties, parties)
    status = asked(tmp_path, ids, ROWS, answer="records")
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


async def test_a_start_deletes_rows_of_which_a_kill_has_left_a_part(tmp_path: Path) -> None:
    """As of every file; whole ones stay until the party deletes them, and may be deleted at any time."""
    ids = [["a", "b"], ["a", "c"]]

    federation = Federation(tmp_path, tables(ids), policies=ROWS)
    (row, _) = (await federation.preview(answer="records")).rows
    whole = Path(row.path)
    draft = whole.with_name("q.csv.part")
    draft.write_text("row,id\n0,a\n")
    federation.kill(row.party)
    federation.start(row.party)
    assert list(whole.parent.iterdir()) == [whole]
    whole.unlink()
    assert (await federation.preview(answer="records", job="p2")).state == "finished"


def _keyed(rows: list[list[tuple[str, str]]]) -> Tables:
    """A table per party whose records are known by two columns together; the first party has labels."""
    made: Tables = {}
    for name, own in zip(NAMES, rows, strict=False):
        first, second = (list(column) for column in zip(*own, strict=True))
        content = {f"key-{name}": first, "key2": second, name[0]: [float(number % 7) for number in range(len(own))]}
        if not made:
            content["y"] = [number % 2 for number in range(len(own))]
        made[name] = ([name[0]], {"train": pa.table(content), "predict": pa.table(content)})
    return made


async def test_several_key_columns_are_one_id_each_after_its_length(tmp_path: Path) -> None:
    """`a` and `bc` are not `ab` and `c`, nor `bc` and `a`: in a count, in rows, in a training and its predictions."""
    common = [(f"n{number}", f"{number % 3}") for number in range(40)]
    rows = [[*common, ("a", "bc")], [("ab", "c"), ("bc", "a"), *reversed(common)], [("abc", "x"), *common]]

    federation = Federation(tmp_path, _keyed(rows), policies=ROWS)
    assert (await federation.preview(job="p1")).common.records == 40
    status = await federation.preview(job="p2", answer="records")
    written = pacsv.read_csv(status.rows[0].path, convert_options=pacsv.ConvertOptions(column_types={"key2": "string"}))
    assert written.column_names == ["row", f"key-{NAMES[0]}", "key2"]
    assert list(zip(*written.to_pydict().values(), strict=True)) == [(row, *key) for row, key in enumerate(common)]
    status = finished(await federation.train(job(3, replace(PARAMS, max_bin=4))))
    predicted = pq.read_table((await federation.predict(predict_request(model="job", explain=True))).predictions)
    assert predicted.column_names[:2] == [f"key-{NAMES[0]}", "key2"]
    keys = list(zip(*predicted.select([0, 1]).to_pydict().values(), strict=True))
    scores = predicted.column("prediction").to_pylist()
    assert sorted(keys) == sorted(rows[0])
    assert [key for key, score in zip(keys, scores, strict=True) if score is None] == [("a", "bc")]
