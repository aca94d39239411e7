"""Previews of an alignment: what they tell, what policies permit, and how they end.

- Previews of an alignment: the count is that of the sets, rows are each party's own.
- Policies on previews: what they permit, least numbers of records, and a limit a day.
- Wrong input to previews, and their ends: breaks, bad networks, cancelling.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.alignment.previews import COUNTS, ROWS, asked, drawn_ids
from tests.alignment.test_protocol import NAMES, PARAMS, Tables, job, tables
from tests.blindness.comparison import PLAIN, between_parties, of_coordinator
from tests.blindness.observed import Crossed, Observed, observed
from tests.simulator import COORDINATOR, Faults, Federation, failed, finished
from treetap.commands.jobs import progress_view
from treetap.coordinator.runtime.progress import Progress
from treetap.errors import ConfigError, Conflict, Overloaded
from treetap.party.policy import Policy
from treetap.party.runtime.ledger import DAY_S, ledger_of
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2


@pytest.mark.parametrize("parties", [2, 3, 4])
async def test_the_count_is_that_of_the_sets(parties: int, tmp_path: Path) -> None:
    ids, common = drawn_ids(parties, parties)
    status = await asked(tmp_path, ids, COUNTS)
    assert (status.state, status.error) == ("finished", "")
    assert (status.common.records, status.common.fewer_than) == (len(common), 0)


@pytest.mark.parametrize("parties", [2, 3])
async def test_records_are_the_own_rows_in_a_file_at_each_party(parties: int, tmp_path: Path) -> None:
    ids, common = drawn_ids(parties, parties)
    status = await asked(tmp_path, ids, ROWS, answer="records")
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
    federation.restart(row.party)
    assert list(whole.parent.iterdir()) == [whole]
    whole.unlink()
    assert (await federation.preview(answer="records", job="p2")).state == "finished"


async def test_several_key_columns_are_one_id_each_after_its_length(tmp_path: Path) -> None:
    """`a` and `bc` are not `ab` and `c`, nor `bc` and `a`: in a count, in rows, in a training and its predictions."""
    common = [(f"n{number}", f"{number % 3}") for number in range(40)]
    rows = [[*common, ("a", "bc")], [("ab", "c"), ("bc", "a"), *reversed(common)], [("abc", "x"), *common]]

    # A table per party whose records are known by two columns together; the first party has labels.
    made: Tables = {}
    for name, own in zip(NAMES, rows, strict=False):
        first, second = (list(column) for column in zip(*own, strict=True))
        content = {f"key-{name}": first, "key2": second, name[0]: [float(number % 7) for number in range(len(own))]}
        if not made:
            content["y"] = [number % 2 for number in range(len(own))]
        made[name] = ([name[0]], {"train": pa.table(content), "predict": pa.table(content)})
    federation = Federation(tmp_path, made, policies=ROWS)
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


@pytest.mark.parametrize("answer", ["count", "records"])
@pytest.mark.parametrize("preview", ["off", "count", "records"])
async def test_a_policy_permits_previews_up_to_its_own(preview: str, answer: str, tmp_path: Path) -> None:
    """The refusal names party, setting and remedy, is wrong input, and no identifier has left; off is the default."""
    assert Policy().columns.preview == "off"
    ids, common = drawn_ids(2, 1)
    other, words = NAMES[1], set[str]()

    policies = {**ROWS, other: {"columns": {"preview": preview}}}
    federation = Federation(tmp_path, tables(ids), policies=policies)
    status = await federation.preview(answer=answer)
    words.update(message.word for message in federation.log)
    assert not ledger_of(federation.state(NAMES[0])).previews() or status.state == "finished"
    await federation.close()
    order = ["off", "count", "records"]
    if order.index(answer) <= order.index(preview):
        assert (status.state, status.common.records) == ("finished", len(common))
        return
    assert (status.state, status.bad_input) == ("failed", True)
    assert f"{other} takes no part in a preview" in status.error
    assert f'its policy says preview = "{preview}"; if it should, write preview = "{answer}"' in status.error
    assert words <= {"open_preview", "leave"}


@pytest.mark.parametrize("number", [0, 29, 30])
async def test_below_the_greatest_minimum_no_number_leaves_the_combiner(number: int, tmp_path: Path) -> None:
    """Whoever's minimum it is: the answer, the messages and the accounts have that number alone."""
    ids = [[*(f"c{each}" for each in range(number)), *(f"{place}{each}" for each in range(5))] for place in range(3)]
    policies = {**COUNTS, NAMES[1]: {"columns": {"preview": "count", "min_common_records": 30}}}
    counts: list[tuple[int, int]] = []

    federation = Federation(tmp_path, tables(ids), policies=policies)

    def look(_sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "shared_count":
            common = parcel.alignment.shared_count.common
            counts.append((common.records, common.fewer_than))

    federation.tamper = look
    status = await federation.preview()
    told = {ledger_of(state).previews()[0][1] for state in federation.states.values()}
    assert told == {"30" if number == 30 else "fewer than 30"}
    await federation.close()
    expected = (30, 0) if number == 30 else (0, 30)
    assert (status.state, status.common.records, status.common.fewer_than) == ("finished", *expected)
    assert counts == [expected] * 2


@pytest.mark.parametrize("number", [0, 29])
async def test_rows_of_fewer_records_are_refused_in_one_sentence(number: int, tmp_path: Path) -> None:
    ids = [[*(f"c{each}" for each in range(number)), *(f"{place}{each}" for each in range(5))] for place in range(2)]
    policies = {name: {"columns": {"preview": "records", "min_common_records": 30}} for name in NAMES}
    status = await asked(tmp_path, ids, policies, answer="records")
    assert (status.state, status.bad_input) == ("failed", True)
    assert "fewer than 30 records are common to all parties" in status.error
    assert str(number) not in status.error.replace("30", "")
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("minima", "refusing"), [((30, 100, 30), 1), ((30, 100), 2), ((100, 30), 2)])
def test_rows_below_the_greatest_minimum_show_no_number(
    minima: tuple[int, ...], refusing: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever's minimum it is: with one common record more, all that crosses is the same, and so are the accounts."""
    policies = {
        name: {"columns": {"preview": "records", "min_common_records": least}}
        for name, least in zip(NAMES, minima, strict=False)
    }

    async def act(federation: Observed) -> tuple[jobs_pb2.JobStatus, list[str]]:
        status = await federation.preview(answer="records")
        return status, [ledger_of(state).previews()[0][1] for state in federation.states.values()]

    def with_common(number: int) -> tuple[list[Crossed], tuple[jobs_pb2.JobStatus, list[str]]]:
        ids = [
            [*(f"c{n}" for n in range(number)), *(f"{place}-{n}" for n in range(130 - number))]
            for place in range(len(minima))
        ]
        return observed(tmp_path / "f", tables(ids), act, policies=policies)

    (first, (status, told)), (second, (same, again)) = with_common(50), with_common(51)
    assert (status.state, status.bad_input, status.error) == ("failed", True, same.error)
    assert "fewer than 100 records are common to all parties" in status.error
    assert of_coordinator(first) == of_coordinator(second)
    classes = PLAIN | {"OVERLAP"}
    assert between_parties(first, classes) == between_parties(second, classes)
    assert told == again == ["fewer than 100"] * refusing + [""] * (len(minima) - refusing)
    for number in (50, 51):
        assert not [line for line in caplog.messages if f" {number} " in f" {line} "]
    assert not list(tmp_path.rglob("*.csv"))
    enough, (status, told) = with_common(120)
    assert (status.state, status.common.records, told) == ("finished", 120, ["120"] * len(minima))
    assert {"least_count", "blinded_ids"} <= {step for _, _, step, _ in between_parties(enough)}


async def test_previews_with_a_partner_are_limited_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a restart nor a preview that failed gives one back, and other partners have their own; a day does."""
    ids = [[f"c{number}" for number in range(5)]] * 3
    two, began = {"columns": {"preview": "count"}, "partners": {"*": {"previews_per_day": 2}}}, time.time()

    federation = Federation(tmp_path, tables(ids), policies={**COUNTS, NAMES[1]: two})

    async def asked(name: str, *parties: str) -> jobs_pb2.JobStatus:
        return await federation.preview(*parties, job=name)

    assert (await asked("p1", *NAMES[:2])).state == "finished"
    federation.hook = lambda message: federation.kill(NAMES[0]) if message.word == "blinded_ids" else None
    assert (await asked("p2", *NAMES[:2])).state == "failed"
    federation.hook = None
    federation.start(NAMES[0])
    federation.restart(NAMES[1])
    before = len(federation.log)
    status = await asked("p3", NAMES[1], NAMES[0])
    assert (status.state, status.bad_input) == ("failed", True)
    said = f"{NAMES[1]} takes no part: the previews_per_day of its policy are used up; its log says until when"
    assert status.error == f"LimitReached: {said}"  # not how many, when and with whom: others may have asked for them
    assert f"previews_per_day = 2, and in 24 hours there were as many with {NAMES[0]}" in caplog.text
    assert "blinded_ids" not in {message.word for message in federation.log[before:]}
    assert (await asked("p4", *NAMES[:3])).error == status.error
    assert (await asked("p5", *NAMES[1:3])).state == "finished"
    monkeypatch.setattr(time, "time", lambda: began + DAY_S + 60)
    assert (await asked("p6", *NAMES[:2])).state == "finished"
    await federation.close()
    assert Policy().previews_per_day == 5


async def test_a_damaged_account_is_no_empty_one(tmp_path: Path) -> None:
    """A party whose account was changed by hand takes part in no preview."""
    ids = [["a", "b"], ["a", "c"]]

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)
    assert (await federation.preview(job="p1")).state == "finished"
    path = ledger_of(federation.state(NAMES[1])).path
    path.write_text(path.read_text().replace('"count"', '"no one"'))
    failed(await federation.preview(job="p2"), f"{path}", "damaged", bad_input=True)


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"parties": NAMES[:1]}, "name two or more"),
        ({"parties": [NAMES[0], NAMES[0]]}, f"{NAMES[0]!r} is named twice"),
        ({"parties": [NAMES[0], "lap"]}, "knows no party 'lap'"),
        ({"parties": NAMES[:2], "table": "No table"}, "table: "),
        ({"parties": NAMES[:2], "answer": "counts"}, "answer = 'counts': must be one of count, records"),
    ],
)
async def test_a_preview_that_no_federation_could_do(asked: dict[str, Any], fault: str, tmp_path: Path) -> None:
    federation = Federation(tmp_path, tables([["a"], ["a"]]), policies=COUNTS)
    with pytest.raises(ConfigError, match=fault):
        federation.jobs.submit(jobs_pb2.AlignRequest(job="p", **asked))
    assert federation.log == []


async def test_a_table_that_a_job_would_refuse(tmp_path: Path) -> None:
    """An id that is there twice, and a table that is not there, are named before any preview is charged."""
    ids = [["a", "b", "b"], ["a", "c"]]

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)
    failed(await federation.preview(job="p1"), f"{NAMES[0]}: ", "the id is there already", bad_input=True)
    failed(await federation.preview(job="p2", table="tran"), "has no table 'tran'", bad_input=True)
    assert not any(ledger_of(state).previews() for state in federation.states.values())


async def test_a_preview_that_breaks_down_is_asked_anew_and_not_resumed(tmp_path: Path) -> None:
    """A party's loss and the coordinator's end it; nothing of it stays with the parties but the charge."""
    ids = [[f"c{number}" for number in range(8)]] * 2

    federation = Federation(tmp_path, tables(ids), policies=COUNTS, silence_s=5.0)
    federation.hook = lambda message: federation.kill(NAMES[1]) if message.word == "relay_ids" else None
    status = await federation.preview(job="p1")
    assert (status.state, status.bad_input) == ("failed", False)
    assert status.error.endswith("then: treetap align, as a new preview")
    federation.hook = None
    federation.start(NAMES[1])
    with pytest.raises(Conflict, match="p1 is a preview, which is not resumed"):
        federation.jobs.resume("p1")
    assert federation.jobs.prune(["p1"], 0, dry_run=True) == ["p1"]

    federation.kill_at(COORDINATOR, lambda message: message.word == "relay_ids")
    await federation.preview(job="p2")
    federation.start(COORDINATOR)
    (status,) = federation.jobs.status("p2")
    assert (status.kind, status.state) == ("align", "failed")
    assert status.error == "the coordinator stopped; go on with: treetap align, as a new preview"
    assert (await federation.preview(job="p3")).state == "finished"
    for state in federation.states.values():
        assert list((state / "jobs").iterdir()) == []
        assert not (state / "previews").exists()


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("seed", range(8))
async def test_a_bad_network_charges_once(seed: int, tmp_path: Path) -> None:
    """Requests are lost, doubled and late: the count is the same, and a step that is repeated is no second preview."""
    ids, common = drawn_ids(2 + seed % 2, seed)

    faults = Faults(drop=0.1, lose_reply=0.1, double=0.3, delay_s=0.5, late_s=3.0, seed=seed)
    federation = Federation(tmp_path, tables(ids), policies=COUNTS, faults=faults)
    status = await federation.preview()
    assert (status.state, status.error, status.common.records) == ("finished", "", len(common))
    assert [len(ledger_of(state).previews()) for state in federation.states.values()] == [1] * len(ids)


async def test_a_party_with_too_many_jobs_has_a_preview_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put off as a job is, and charged once, when it begins."""
    ids = [[f"c{number}" for number in range(8)]] * 2

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)
    refusals = [Overloaded(f"{NAMES[1]} has 2 jobs under way")]

    def full() -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(federation.node(NAMES[1]), "_check_room", full)
    status = await federation.preview()
    assert (status.state, status.attempt, status.common.records) == ("finished", 2, 8)
    assert [len(ledger_of(state).previews()) for state in federation.states.values()] == [1, 1]


async def test_progress_on_long_lists() -> None:
    """The status has the turn, and how many identifiers all parties have raised in it; a terminal shows the latter."""

    progress = Progress(jobs_pb2.JobStatus(job="p", kind="align", state="running"))
    progress.phase("align")
    progress.round(0, 6)
    progress.on_progress(NAMES[0], control_pb2.Progress(done=7, total=7))
    progress.round(1, 6)
    progress.on_progress(NAMES[0], control_pb2.Progress(done=5, total=20))
    progress.on_progress(NAMES[1], control_pb2.Progress(done=10, total=30))
    done, total, where, _ = progress_view._described(progress.status)
    assert (done, total, where) == (15, 50, "compared 15 of 50")


async def test_no_column_but_the_ids_is_read(tmp_path: Path) -> None:
    """A column that a training could not use does not matter, nor does a label of one class."""
    own = tables([["a", "b", "c"], ["b", "c", "d"]])
    columns, content = own[NAMES[1]]
    content["train"] = content["train"].set_column(1, columns[0], pa.array([b"\xff", None, b""]))

    federation = Federation(tmp_path, own, policies=COUNTS)
    assert (await federation.preview()).common.records == 2
