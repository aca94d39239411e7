"""Previews of an alignment: the count is that of the sets, rows are each party's own, and a policy decides."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from coordinator.runtime.progress import Progress
from party.alignment import lists as work
from party.alignment import raised_lists
from party.alignment.preview_account import DAY_S, PreviewAccount
from party.policy import Policy
from tests.alignment.test_protocol import NAMES, PARAMS, Tables, job, tables
from tests.blindness.comparison import PLAIN, between_parties, of_coordinator
from tests.blindness.observed import Crossed, Observed, observed
from tests.simulator import COORDINATOR, Faults, Federation, Message, run
from treetap.commands.jobs import progress_view
from treetap.errors import ConfigError, Conflict, Overloaded
from treetap.protocols.alignment import MOST_IDS
from treetap.protocols.prediction import predict_request
from treetap.psi import kernels
from treetap.psi.lists import PointList
from treetap.wire.frame import name_of
from treetap.wire.transcript import TranscriptReader, summarise
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2, types_pb2

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


def test_a_start_deletes_rows_of_which_a_kill_has_left_a_part(tmp_path: Path) -> None:
    """As of every file; whole ones stay until the party deletes them, and may be deleted at any time."""
    ids = [["a", "b"], ["a", "c"]]

    async def main() -> None:
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
        await federation.close()

    run(main())


# ---- what a count shows


def _guessed(folder: Path, ids: list[list[str]]) -> set[str]:
    """The common ids by the combiner's guess: points of its list stand where it put their ids before it sent them."""
    guessed: set[str] = set()

    async def main() -> None:
        federation = Federation(folder, tables(ids), policies=COUNTS)

        def attack(message: Message) -> None:
            if message.word != "count_ids" or message.served:
                return
            part = federation.node(NAMES[0])._sessions["p"].role._part  # type: ignore[attr-defined]
            points = [[at[place : place + 32] for place in range(0, len(at), 32)] for at in map(_whole, part._held)]
            common = set(points[0]).intersection(*points[1:])
            places = [place for place, point in enumerate(points[-1]) if point in common]
            guessed.update(part._ids.take(part._shuffle[places]))

        federation.hook = attack
        assert (await federation.preview()).state == "finished"
        await federation.close()

    run(main())
    return guessed


def _whole(points: PointList) -> bytes:
    return points.take(0, len(points))


@pytest.mark.parametrize("parties", [2, 3])
def test_the_owner_of_a_list_cannot_say_which_of_its_ids_are_common(
    parties: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the places of its points it can, where no party shuffles a list; as it is, the guess is one of many sets."""
    common = {f"c{number}" for number in range(20)}
    ids = [[*common, *(f"{place}-{number}" for number in range(20))] for place in range(parties)]
    guess = _guessed(tmp_path / "shuffled", ids)
    assert len(guess) == 20
    assert guess != common  # by chance once in 10^11
    monkeypatch.setattr(work, "shuffled", lambda points, _files: points)
    assert _guessed(tmp_path / "as they came", ids) == common


def test_the_combiner_cannot_say_which_ids_of_another_list_are_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list leaves its owner in a drawn order; left in the order of the table, places would name the common ids."""
    common = [f"c{number:02d}" for number in range(20)]
    other = sorted([*common, *(f"b{number:02d}" for number in range(20))])

    def guessed(folder: Path) -> list[str]:
        came: list[bytes] = []
        guess: list[str] = []

        async def main() -> None:
            federation = Federation(folder, tables([[*common, "own"], other]), policies=COUNTS)

            def look(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
                if to == NAMES[0] and parcel.stage == 1:
                    came.append(parcel.alignment.blinded_ids.points)
                return parcel

            def attack(message: Message) -> None:
                if message.word == "count_ids" and not message.served:
                    part = federation.node(NAMES[0])._sessions["p"].role._part  # type: ignore[attr-defined]
                    raised = kernels.raise_points({}, part._exponent.for_kernel(), b"".join(came))
                    own = {_whole(part._held[-1])[at : at + 32] for at in range(0, 32 * 21, 32)}
                    guess.extend(other[at // 32] for at in range(0, len(raised), 32) if raised[at : at + 32] in own)

            federation.tamper, federation.hook = look, attack
            assert (await federation.preview()).common.records == 20
            await federation.close()

        run(main())
        return guess

    guess = guessed(tmp_path / "drawn")
    assert len(guess) == 20
    assert guess != common  # by chance once in 10^11
    monkeypatch.setattr(raised_lists, "permutation", np.arange)
    assert guessed(tmp_path / "as in the table") == common


def test_a_count_shows_the_coordinator_and_the_parties_no_membership(tmp_path: Path) -> None:
    """Other ids are common, as many of them, in tables as long: all messages are equal but for fresh points."""
    shared, own = [f"c{number}" for number in range(15)], [f"o{number}" for number in range(15)]

    async def act(federation: Observed) -> int:
        status = await federation.preview()
        assert (status.state, status.error) == ("finished", "")
        return status.common.records

    runs = []
    for common in (shared, own):  # the third party holds one half of what the two others hold
        ids = [[*shared, *own], [*own, *shared], [*common, *(f"x{number}" for number in range(9))]]
        runs.append(observed(tmp_path / "f", tables(ids), act, policies=COUNTS))
    (first, count), (second, same) = runs
    assert count == same == 15
    assert {crossed.to for crossed in first} == {COORDINATOR, *NAMES[:3]}
    assert of_coordinator(first) == of_coordinator(second)
    shown = between_parties(first, PLAIN | {"OVERLAP"})
    assert shown == between_parties(second, PLAIN | {"OVERLAP"})
    assert {step for _, _, step, _ in shown} == {"least_count", "blinded_ids", "shared_count"}


def test_no_party_but_the_combiner_sees_a_point_twice(tmp_path: Path) -> None:
    """Lists that pass a party have other exponents each, so that it cannot compare them."""
    ids = [[f"c{number}" for number in range(12)]] * 4
    seen: dict[str, list[bytes]] = {name: [] for name in NAMES[:4]}

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies=COUNTS)

        def look(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            block = parcel.alignment.blinded_ids.points
            seen[to] += [block[at : at + 32] for at in range(0, len(block), 32)]
            return parcel

        federation.tamper = look
        assert (await federation.preview()).common.records == 12
        await federation.close()

    run(main())
    for name in NAMES[1:4]:
        assert len(set(seen[name])) == len(seen[name]) == 3 * 12
    assert len(set(seen[NAMES[0]])) < len(seen[NAMES[0]])


def _tampered(
    folder: Path,
    parties: int,
    tamper: Callable[[str, str, exchange_pb2.PeerMessage], None],
    policies: dict[str, dict[str, Any]] = COUNTS,
) -> str:
    """The error of a count whose messages are changed on their way."""
    ids = [[f"c{number}" for number in range(12)]] * parties

    async def main() -> str:
        federation = Federation(folder, tables(ids), policies=policies)

        def changed(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            tamper(sender, to, parcel)
            return parcel

        federation.tamper = changed
        status = await federation.preview()
        assert status.state == "failed"
        await federation.close()
        return status.error

    return run(main())


def test_a_list_that_marks_an_id_by_repeating_it_is_refused(tmp_path: Path) -> None:
    """Its owner would know that point wherever it returns: the next party on the way refuses the list."""

    def twice(sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
        block = parcel.alignment.blinded_ids.points
        if sender == NAMES[0] and parcel.stage == 1 and block:
            parcel.alignment.blinded_ids.points = block[:32] + block[:32] + block[64:]

    assert "holds one twice" in _tampered(tmp_path, 2, twice)


@pytest.mark.parametrize(("sender", "owner"), [(1, 2), (2, 0)])
def test_a_list_from_which_another_party_takes_points_is_refused(sender: int, owner: int, tmp_path: Path) -> None:
    """The combiner has raised every list once, or it is its own, and compares their lengths at the end."""

    def fewer(who: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if (who, to) == (NAMES[sender], NAMES[0]) and parcel.stage == 5:
            parcel.alignment.blinded_ids.points = parcel.alignment.blinded_ids.points[32:]

    says = _tampered(tmp_path, 3, fewer)
    assert says == (
        "Malformed: of 12 blinded identifiers 11 came back"
        if owner == 0
        else f"Malformed: {NAMES[sender]} sent 11 blinded identifiers of {NAMES[owner]}: they were 12 before"
    )


@pytest.mark.parametrize(
    ("records", "fewer_than", "says"),
    [
        (4, 0, "clinic sent a count below min_common_records = 5, the greatest of the parties"),
        (13, 0, "clinic counts more common records than the own 12"),
        (0, 6, "clinic says fewer than 6, but the greatest min_common_records is 5"),
        (0, 4, "clinic says fewer than 4, but the greatest min_common_records is 5"),
        (0, 0, f"0 records are common, or fewer than 0: one must be from 1 to {MOST_IDS}, the other 0"),
        (12, 5, "12 records are common, or fewer than 5: one must be"),
        (0, 2**64 - 1, f"or fewer than {2**64 - 1}: one must be"),
    ],
)
def test_a_count_that_cannot_be_is_refused_by_who_gets_it(
    records: int, fewer_than: int, says: str, tmp_path: Path
) -> None:
    """A combiner that ignores another party's min_common_records is found out, and so is one that makes one up."""

    def changed(_sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "shared_count":
            common = types_pb2.CommonCount(records=records, fewer_than=fewer_than)
            parcel.alignment.shared_count.common.CopyFrom(common)

    policies = {**COUNTS, NAMES[2]: {"preview": "count", "min_common_records": 5}}
    assert says in _tampered(tmp_path, 3, changed, policies)


@pytest.mark.parametrize("least", [0, MOST_IDS + 1, 2**64 - 1])
def test_a_least_count_that_no_policy_can_have(least: int, tmp_path: Path) -> None:
    def changed(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "least_count" and to == NAMES[1]:
            parcel.alignment.least_count.records = least

    says = f"{NAMES[0]} sent min_common_records = {least}: must be from 1 to {MOST_IDS}"
    assert says in _tampered(tmp_path, 2, changed)


@pytest.mark.parametrize("step", ["counted_ids", "written_rows"])
def test_a_coordinator_takes_no_answer_that_cannot_be(step: str, tmp_path: Path) -> None:
    """A combiner may tell the coordinator another thing than the parties: what it says is bounded."""
    ids = [["a", "b"], ["a", "c"]]

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies=ROWS)
        for name in NAMES[:2]:
            node = federation.node(name)

            async def changed(caller: str, request: Any, conducted: Any = node.step) -> Any:
                async for event in conducted(caller, request):
                    if event.HasField("result") and event.result.HasField("alignment"):
                        getattr(event.result.alignment, step).common.records = 2**63
                    yield event

            node.step = changed  # type: ignore[method-assign]
        status = await federation.preview(answer="count" if step == "counted_ids" else "records")
        assert status.state == "failed"
        assert f"{NAMES[0]} says that {2**63} records are common" in status.error
        await federation.close()

    run(main())


def test_each_end_says_what_it_has_learnt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log, the account of previews and the transcript of each party have the count as a leak, by its class."""
    ids, common = _ids(3, 5)

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies=COUNTS, record="both")
        assert (await federation.preview()).state == "finished"
        await federation.close()
        for name, state in federation.states.items():
            ((charge, told),) = PreviewAccount(state).charges()
            assert told == str(len(common))
            assert sorted([name, *charge.partners]) == sorted(NAMES[:3])
            leaks = [row for row in summarise(state / "transcripts" / "p")["rows"] if row["class"] == "OVERLAP"]
            assert {row["step"] for row in leaks} == {"shared_count"}
            assert {row["kind"] for row in leaks} == {"sent" if name == NAMES[0] else "received"}
            messages = b"".join(record.message for record in TranscriptReader(state / "transcripts" / "p"))
            assert not any(value.encode() in messages for value in common)

    run(main())
    said = [record.getMessage() for record in caplog.records if "a leak by preview" in record.getMessage()]
    assert len(said) == 3
    assert all(f"has {len(common)} records in common" in line for line in said)
    assert f"this coordinator knows of {len(common)} records in common" in caplog.text


# ---- policies


@pytest.mark.parametrize("answer", ["count", "records"])
@pytest.mark.parametrize("preview", ["off", "count", "records"])
def test_a_policy_permits_previews_up_to_its_own(preview: str, answer: str, tmp_path: Path) -> None:
    """The refusal names party, setting and remedy, is wrong input, and no identifier has left; off is the default."""
    assert Policy().preview == "off"
    ids, common = _ids(2, 1)
    other, words = NAMES[1], set[str]()

    async def main() -> jobs_pb2.JobStatus:
        policies = {**ROWS, other: {"preview": preview}}
        federation = Federation(tmp_path, tables(ids), policies=policies)
        status = await federation.preview(answer=answer)
        words.update(message.word for message in federation.log)
        assert not PreviewAccount(federation.state(NAMES[0])).charges() or status.state == "finished"
        await federation.close()
        return status

    status = run(main())
    order = ["off", "count", "records"]
    if order.index(answer) <= order.index(preview):
        assert (status.state, status.common.records) == ("finished", len(common))
        return
    assert (status.state, status.bad_input) == ("failed", True)
    assert f"{other} takes no part in a preview" in status.error
    assert f'its policy says preview = "{preview}"; if it should, write preview = "{answer}"' in status.error
    assert words <= {"open_preview", "leave"}


@pytest.mark.parametrize("number", [0, 29, 30])
def test_below_the_greatest_minimum_no_number_leaves_the_combiner(number: int, tmp_path: Path) -> None:
    """Whoever's minimum it is: the answer, the messages and the accounts have that number alone."""
    ids = [[*(f"c{each}" for each in range(number)), *(f"{place}{each}" for each in range(5))] for place in range(3)]
    policies = {**COUNTS, NAMES[1]: {"preview": "count", "min_common_records": 30}}
    counts: list[tuple[int, int]] = []

    async def main() -> jobs_pb2.JobStatus:
        federation = Federation(tmp_path, tables(ids), policies=policies)

        def look(_sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if name_of(parcel) == "shared_count":
                common = parcel.alignment.shared_count.common
                counts.append((common.records, common.fewer_than))
            return parcel

        federation.tamper = look
        status = await federation.preview()
        told = {PreviewAccount(state).charges()[0][1] for state in federation.states.values()}
        assert told == {"30" if number == 30 else "fewer than 30"}
        await federation.close()
        return status

    status = run(main())
    expected = (30, 0) if number == 30 else (0, 30)
    assert (status.state, status.common.records, status.common.fewer_than) == ("finished", *expected)
    assert counts == [expected] * 2


@pytest.mark.parametrize("number", [0, 29])
def test_rows_of_fewer_records_are_refused_in_one_sentence(number: int, tmp_path: Path) -> None:
    ids = [[*(f"c{each}" for each in range(number)), *(f"{place}{each}" for each in range(5))] for place in range(2)]
    policies = {name: {"preview": "records", "min_common_records": 30} for name in NAMES}
    status = _asked(tmp_path, ids, policies, answer="records")
    assert (status.state, status.bad_input) == ("failed", True)
    assert "fewer than 30 records are common to all parties" in status.error
    assert str(number) not in status.error.replace("30", "")
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.parametrize(("minima", "refusing"), [((30, 100, 30), 1), ((30, 100), 2), ((100, 30), 2)])
def test_rows_below_the_greatest_minimum_show_no_number(
    minima: tuple[int, ...], refusing: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever's minimum it is: with one common record more, all that crosses is the same, and so are the accounts."""
    policies = {
        name: {"preview": "records", "min_common_records": least} for name, least in zip(NAMES, minima, strict=False)
    }

    async def act(federation: Observed) -> tuple[jobs_pb2.JobStatus, list[str]]:
        status = await federation.preview(answer="records")
        return status, [PreviewAccount(state).charges()[0][1] for state in federation.states.values()]

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


def test_previews_with_a_partner_are_limited_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a restart nor a preview that failed gives one back, and other partners have their own; a day does."""
    ids = [[f"c{number}" for number in range(5)]] * 3
    two, began = {"preview": "count", "previews_per_day": 2}, time.time()

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies={**COUNTS, NAMES[1]: two})

        async def asked(name: str, *parties: str) -> jobs_pb2.JobStatus:
            return await federation.preview(*parties, job=name)

        assert (await asked("p1", *NAMES[:2])).state == "finished"
        federation.hook = lambda message: federation.kill(NAMES[0]) if message.word == "blinded_ids" else None
        assert (await asked("p2", *NAMES[:2])).state == "failed"
        federation.hook = None
        federation.start(NAMES[0])
        federation.kill(NAMES[1])
        federation.start(NAMES[1])
        before = len(federation.log)
        status = await asked("p3", NAMES[1], NAMES[0])
        assert (status.state, status.bad_input) == ("failed", True)
        said = f"{NAMES[1]} takes no part: the previews_per_day of its policy are used up; its log says until when"
        assert status.error == f"Refused: {said}"  # not how many, when and with whom: others may have asked for them
        assert f"previews_per_day = 2, and in 24 hours there were as many with {NAMES[0]}" in caplog.text
        assert "blinded_ids" not in {message.word for message in federation.log[before:]}
        assert (await asked("p4", *NAMES[:3])).error == status.error
        assert (await asked("p5", *NAMES[1:3])).state == "finished"
        monkeypatch.setattr(time, "time", lambda: began + DAY_S + 60)
        assert (await asked("p6", *NAMES[:2])).state == "finished"
        await federation.close()

    run(main())
    assert Policy().previews_per_day == 5


def test_a_damaged_account_is_no_empty_one(tmp_path: Path) -> None:
    """A party whose account was changed by hand takes part in no preview."""
    ids = [["a", "b"], ["a", "c"]]

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies=COUNTS)
        assert (await federation.preview(job="p1")).state == "finished"
        path = PreviewAccount(federation.state(NAMES[1])).path
        path.write_text(path.read_text().replace('"count"', '"no one"'))
        status = await federation.preview(job="p2")
        assert (status.state, status.bad_input) == ("failed", True)
        assert f"{path}" in status.error
        assert "damaged" in status.error
        await federation.close()

    run(main())


# ---- wrong input, and ends


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
def test_a_preview_that_no_federation_could_do(asked: dict[str, Any], fault: str, tmp_path: Path) -> None:
    async def main() -> None:
        federation = Federation(tmp_path, tables([["a"], ["a"]]), policies=COUNTS)
        with pytest.raises(ConfigError, match=fault):
            federation.jobs.align(jobs_pb2.AlignRequest(job="p", **asked))
        assert federation.log == []
        await federation.close()

    run(main())


def test_a_table_that_a_job_would_refuse(tmp_path: Path) -> None:
    """An id that is there twice, and a table that is not there, are named before any preview is charged."""
    ids = [["a", "b", "b"], ["a", "c"]]

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies=COUNTS)
        status = await federation.preview(job="p1")
        assert (status.state, status.bad_input) == ("failed", True)
        assert f"{NAMES[0]}: " in status.error
        assert "the id is there already" in status.error
        status = await federation.preview(job="p2", table="tran")
        assert (status.state, status.bad_input) == ("failed", True)
        assert "has no table 'tran'" in status.error
        assert not any(PreviewAccount(state).charges() for state in federation.states.values())
        await federation.close()

    run(main())


def test_a_preview_that_breaks_down_is_asked_anew_and_not_resumed(tmp_path: Path) -> None:
    """A party's loss and the coordinator's end it; nothing of it stays with the parties but the charge."""
    ids = [[f"c{number}" for number in range(8)]] * 2

    async def main() -> None:
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

        def stop(message: Message) -> None:
            if message.word == "relay_ids":
                federation.hook = None
                federation.kill(COORDINATOR)

        federation.hook = stop
        await federation.preview(job="p2")
        federation.start(COORDINATOR)
        (status,) = federation.jobs.status("p2")
        assert (status.kind, status.state) == ("align", "failed")
        assert status.error == "the coordinator stopped; go on with: treetap align, as a new preview"
        assert (await federation.preview(job="p3")).state == "finished"
        for state in federation.states.values():
            assert list((state / "jobs").iterdir()) == []
            assert not (state / "previews").exists()
        await federation.close()

    run(main())


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("seed", range(8))
def test_a_bad_network_charges_once(seed: int, tmp_path: Path) -> None:
    """Requests are lost, doubled and late: the count is the same, and a step that is repeated is no second preview."""
    ids, common = _ids(2 + seed % 2, seed)

    async def main() -> None:
        faults = Faults(drop=0.1, lose_reply=0.1, double=0.3, delay_s=0.5, late_s=3.0, seed=seed)
        federation = Federation(tmp_path, tables(ids), policies=COUNTS, faults=faults)
        status = await federation.preview()
        assert (status.state, status.error, status.common.records) == ("finished", "", len(common))
        assert [len(PreviewAccount(state).charges()) for state in federation.states.values()] == [1] * len(ids)
        await federation.close()

    run(main())


def test_a_party_with_too_many_jobs_has_a_preview_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put off as a job is, and charged once, when it begins."""
    ids = [[f"c{number}" for number in range(8)]] * 2

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies=COUNTS)
        refusals = [Overloaded(f"{NAMES[1]} has 2 jobs under way")]

        def full() -> None:
            if refusals:
                raise refusals.pop()

        monkeypatch.setattr(federation.node(NAMES[1]), "_check_room", full)
        status = await federation.preview()
        assert (status.state, status.attempt, status.common.records) == ("finished", 2, 8)
        assert [len(PreviewAccount(state).charges()) for state in federation.states.values()] == [1, 1]
        await federation.close()

    run(main())


def test_progress_on_long_lists() -> None:
    """The status has the turn, and how many identifiers all parties have raised in it; a terminal shows both."""

    async def main() -> jobs_pb2.JobStatus:
        progress = Progress(jobs_pb2.JobStatus(job="p", kind="align", state="running"))
        progress.phase("align")
        progress.round(0, 6)
        progress.on_progress(NAMES[0], control_pb2.Progress(done=7, total=7))
        progress.round(1, 6)
        progress.on_progress(NAMES[0], control_pb2.Progress(done=5, total=20))
        progress.on_progress(NAMES[1], control_pb2.Progress(done=10, total=30))
        return progress.status

    done, total, where, _ = progress_view._described(run(main()), [])
    assert (done, total, where) == (15, 50, "turn 2/6, 15/50 identifiers")


def test_a_preview_is_cancelled_as_a_job_is(tmp_path: Path) -> None:
    ids = [[f"c{number}" for number in range(8)]] * 2

    async def main() -> None:
        federation = Federation(tmp_path, tables(ids), policies=COUNTS)
        ended: list[Any] = []

        def cancel(message: Message) -> None:
            if message.word == "relay_ids" and not ended:
                ended.append(federation.process(COORDINATOR).run(federation.jobs.cancel("p")))

        federation.hook = cancel
        status = await federation.preview()
        assert status.state == "cancelled"
        assert (await ended[0]).state == "cancelled"
        assert not any(federation.node(name)._sessions for name in NAMES[:2])
        await federation.close()

    run(main())


def test_no_column_but_the_ids_is_read(tmp_path: Path) -> None:
    """A column that a training could not use does not matter, nor does a label of one class."""
    own = tables([["a", "b", "c"], ["b", "c", "d"]])
    columns, content = own[NAMES[1]]
    content["train"] = content["train"].set_column(1, columns[0], pa.array([b"\xff", None, b""]))

    async def main() -> None:
        federation = Federation(tmp_path, own, policies=COUNTS)
        assert (await federation.preview()).common.records == 2
        await federation.close()

    run(main())


# ---- several key columns


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


def test_several_key_columns_are_one_id_each_after_its_length(tmp_path: Path) -> None:
    """`a` and `bc` are not `ab` and `c`, nor `bc` and `a`: in a count, in rows, in a training and its predictions."""
    common = [(f"n{number}", f"{number % 3}") for number in range(40)]
    rows = [[*common, ("a", "bc")], [("ab", "c"), ("bc", "a"), *reversed(common)], [("abc", "x"), *common]]

    async def main() -> None:
        federation = Federation(tmp_path, _keyed(rows), policies=ROWS)
        assert (await federation.preview(job="p1")).common.records == 40
        status = await federation.preview(job="p2", answer="records")
        written = pacsv.read_csv(
            status.rows[0].path, convert_options=pacsv.ConvertOptions(column_types={"key2": "string"})
        )
        assert written.column_names == ["row", f"key-{NAMES[0]}", "key2"]
        assert list(zip(*written.to_pydict().values(), strict=True)) == [(row, *key) for row, key in enumerate(common)]
        status = await federation.train(job(3, replace(PARAMS, max_bin=4)))
        assert (status.state, status.error) == ("finished", "")
        predicted = pq.read_table((await federation.predict(predict_request(model="job", explain=True))).predictions)
        assert predicted.column_names[:2] == [f"key-{NAMES[0]}", "key2"]
        keys = list(zip(*predicted.select([0, 1]).to_pydict().values(), strict=True))
        scores = predicted.column("prediction").to_pylist()
        assert sorted(keys) == sorted(rows[0])
        assert [key for key, score in zip(keys, scores, strict=True) if score is None] == [("a", "bc")]
        await federation.close()

    run(main())
