"""Policies on previews: what they permit, least numbers of records, and a limit a day."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.alignment.previews import COUNTS, ROWS, asked, drawn_ids
from tests.alignment.test_protocol import NAMES, tables
from tests.blindness.comparison import PLAIN, between_parties, of_coordinator
from tests.blindness.observed import Crossed, Observed, observed
from tests.simulator import Federation, failed
from treetap.party.policy import Policy
from treetap.party.runtime.ledger import DAY_S, ledger_of
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2


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
def test_rows_of_fewer_records_are_refused_in_one_sentence(number: int, tmp_path: Path) -> None:
    ids = [[*(f"c{each}" for each in range(number)), *(f"{place}{each}" for each in range(5))] for place in range(2)]
    policies = {name: {"columns": {"preview": "records", "min_common_records": 30}} for name in NAMES}
    status = asked(tmp_path, ids, policies, answer="records")
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
    assert Policy().previews_per_day == 5


async def test_a_damaged_account_is_no_empty_one(tmp_path: Path) -> None:
    """A party whose account was changed by hand takes part in no preview."""
    ids = [["a", "b"], ["a", "c"]]

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)
    assert (await federation.preview(job="p1")).state == "finished"
    path = ledger_of(federation.state(NAMES[1])).path
    path.write_text(path.read_text().replace('"count"', '"no one"'))
    failed(await federation.preview(job="p2"), f"{path}", "damaged", bad_input=True)
