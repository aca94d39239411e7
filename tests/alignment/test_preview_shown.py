"""Contents of a preview at each party and at the coordinator, and lists and counts that are false."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.alignment.previews import COUNTS, ROWS, drawn_ids
from tests.alignment.test_protocol import NAMES, tables
from tests.blindness.comparison import PLAIN, between_parties, of_coordinator
from tests.blindness.observed import Observed, observed
from tests.simulator import COORDINATOR, Federation, Message, failed, finished, run
from treetap.party.alignment import lists
from treetap.party.alignment import lists as work
from treetap.party.runtime.ledger import ledger_of
from treetap.protocols.alignment import MOST_IDS
from treetap.psi.lists import PointList, raise_points
from treetap.wire.frame import name_of
from treetap.wire.transcript import TranscriptReader, summarise
from treetap.wire.v2 import exchange_pb2, types_pb2


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
                    raised = raise_points(part._exponent.for_kernel(), b"".join(came))
                    own = {_whole(part._held[-1])[at : at + 32] for at in range(0, 32 * 21, 32)}
                    guess.extend(other[at // 32] for at in range(0, len(raised), 32) if raised[at : at + 32] in own)

            federation.tamper, federation.hook = look, attack
            assert (await federation.preview()).common.records == 20

        run(main())
        return guess

    guess = guessed(tmp_path / "drawn")
    assert len(guess) == 20
    assert guess != common  # by chance once in 10^11
    monkeypatch.setattr(lists, "permutation", np.arange)
    assert guessed(tmp_path / "as in the table") == common


def test_a_count_shows_the_coordinator_and_the_parties_no_membership(tmp_path: Path) -> None:
    """Other ids are common, as many of them, in tables as long: all messages are equal but for fresh points."""
    shared, own = [f"c{number}" for number in range(15)], [f"o{number}" for number in range(15)]

    async def act(federation: Observed) -> int:
        status = finished(await federation.preview())
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


async def test_no_party_but_the_combiner_sees_a_point_twice(tmp_path: Path) -> None:
    """Lists that pass a party have other exponents each, so that it cannot compare them."""
    ids = [[f"c{number}" for number in range(12)]] * 4
    seen: dict[str, list[bytes]] = {name: [] for name in NAMES[:4]}

    federation = Federation(tmp_path, tables(ids), policies=COUNTS)

    def look(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        block = parcel.alignment.blinded_ids.points
        seen[to] += [block[at : at + 32] for at in range(0, len(block), 32)]
        return parcel

    federation.tamper = look
    assert (await federation.preview()).common.records == 12
    await federation.close()
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

    policies = {**COUNTS, NAMES[2]: {"columns": {"preview": "count", "min_common_records": 5}}}
    assert says in _tampered(tmp_path, 3, changed, policies)


@pytest.mark.parametrize("least", [0, MOST_IDS + 1, 2**64 - 1])
def test_a_least_count_that_no_policy_can_have(least: int, tmp_path: Path) -> None:
    def changed(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "least_count" and to == NAMES[1]:
            parcel.alignment.least_count.records = least

    says = f"{NAMES[0]} sent min_common_records = {least}: must be from 1 to {MOST_IDS}"
    assert says in _tampered(tmp_path, 2, changed)


@pytest.mark.parametrize("step", ["counted_ids", "written_rows"])
async def test_a_coordinator_takes_no_answer_that_cannot_be(step: str, tmp_path: Path) -> None:
    """A combiner may tell the coordinator another thing than the parties: what it says is bounded."""
    ids = [["a", "b"], ["a", "c"]]

    federation = Federation(tmp_path, tables(ids), policies=ROWS)
    for name in NAMES[:2]:
        node = federation.node(name)

        async def changed(caller: str, request: Any, conducted: Any = node.step) -> Any:
            async for event in conducted(caller, request):
                if event.HasField("result") and name_of(event.result) == step:
                    getattr(event.result.alignment, step).common.records = 2**63
                yield event

        node.step = changed  # type: ignore[method-assign]
    failed(
        await federation.preview(answer="count" if step == "counted_ids" else "records"),
        f"{NAMES[0]} says that {2**63} records are common",
    )


async def test_each_end_says_what_it_has_learnt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log, the account of previews and the transcript of each party have the count as a leak, by its class."""
    ids, common = drawn_ids(3, 5)

    federation = Federation(tmp_path, tables(ids), policies=COUNTS, record="both")
    assert (await federation.preview()).state == "finished"
    await federation.close()
    for name, state in federation.states.items():
        ((charge, told),) = ledger_of(state).previews()
        assert told == str(len(common))
        assert sorted([name, *charge.occasion.parties]) == sorted(NAMES[:3])
        leaks = [row for row in summarise(state / "transcripts" / "p")["rows"] if row["class"] == "OVERLAP"]
        assert {row["step"] for row in leaks} == {"shared_count"}
        assert {row["kind"] for row in leaks} == {"sent" if name == NAMES[0] else "received"}
        messages = b"".join(record.message for record in TranscriptReader(state / "transcripts" / "p"))
        assert not any(value.encode() in messages for value in common)
    said = [record.getMessage() for record in caplog.records if "a leak by preview" in record.getMessage()]
    assert len(said) == 3
    assert all(f"has {len(common)} records in common" in line for line in said)
    assert f"this coordinator knows of {len(common)} records in common" in caplog.text
