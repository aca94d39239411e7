"""Which records are common, by whichever route, and where long lists of them lie.

- The least number of common records, which each party sets for itself: one for trainings, one for predictions.
- Lists of blinded identifiers in files: any number of blocks, and nothing of them is left.
- The turns of private set intersection, checked as a plan: every list meets every exponent, and comes back.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.alignment.test_protocol import NAMES, intersect, job, tables
from tests.simulator import Federation, failed, run
from treetap.party.alignment import lists as work
from treetap.party.policy import Policy, merged
from treetap.protocols.alignment import POINT_BYTES, turns
from treetap.protocols.prediction import predict_request
from treetap.psi import group, lists
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

PARTIES = NAMES[:3]
#: The rule as it is where a policy says nothing of it.
DEFAULT: dict[str, Any] = {"columns": {"min_common_records": Policy().columns.min_common_records}}


def _federation(folder: Path, train: int, predict: int, policies: dict[str, dict[str, Any]]) -> Federation:
    """Parties that have `train` records of a training and `predict` records of a prediction in common."""
    training = tables([[f"r{i:02d}" for i in range(train)]] * 3)
    new = tables([[f"n{i:02d}" for i in range(predict)]] * 3, seed=1)
    joined = {name: (training[name][0], {**training[name][1], "new": new[name][1]["train"]}) for name in PARTIES}
    return Federation(folder, joined, policies=policies)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("mode", ["psi", "sorted-ids"])
@pytest.mark.parametrize("party", PARTIES[:2])
def test_a_training_has_thirty_common_records_unless_a_policy_says_otherwise(
    mode: str, party: str, tmp_path: Path
) -> None:
    """With 29 the party that has the default ends the job, whatever the others permit; with 30 it goes on."""
    asked = job(3)
    asked.alignment = mode

    async def main(folder: Path, records: int) -> tuple[str, str]:
        federation = _federation(folder, records, 1, {party: DEFAULT})
        status = await federation.train(asked)
        await federation.close()
        return status.state, status.error

    state, error = run(main(tmp_path / "few", 29))
    assert state == "failed"
    assert f"Refused: {party} takes no part: its policy says min_common_records = 30, and fewer records" in error
    assert "29" not in error
    assert run(main(tmp_path / "enough", 30)) == ("finished", "")


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("mode", ["psi", "sorted-ids"])
async def test_a_prediction_has_a_rule_of_its_own(mode: str, tmp_path: Path) -> None:
    """One record may be predicted under the default policy; a party may want more."""
    asked = job(3)
    asked.alignment = mode

    federation = _federation(tmp_path, 30, 1, dict.fromkeys(PARTIES, DEFAULT))
    assert (await federation.train(asked)).state == "finished"
    assert (await federation.predict(predict_request(model="job", table="new"))).state == "finished"
    federation.kill(PARTIES[1])
    federation.policies[PARTIES[1]] = merged(DEFAULT, {"columns": {"min_prediction_records": 2}})
    federation.configs[PARTIES[1]] = federation.configs[PARTIES[1]].under(federation.policy(PARTIES[1]))
    federation.start(PARTIES[1])
    status = await federation.predict(predict_request(model="job", table="new"))
    assert f"{PARTIES[1]} takes no part: its policy says min_prediction_records = 2" in status.error


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("parties", [2, 3])
def test_the_coordinator_sees_how_many_ids_there_are_and_nothing_else_of_them(parties: int, tmp_path: Path) -> None:
    """Other ids, as many of them at each party and as many common: the operations and bytes of alignment are equal."""

    def ids(word: str) -> list[list[str]]:
        common = [f"{word}{i:02d}" for i in range(12)]
        return [[*common, *(f"{word}-{party}-{i}" for i in range(3 + party))] for party in range(parties)]

    async def main(folder: Path, word: str) -> tuple[Any, Any]:
        federation = Federation(folder, tables(ids(word)))
        status = await federation.train(job(parties))
        await federation.close()
        assert (status.state, status.error) == ("finished", "")
        operations = {
            (each.party, row.name): row.count
            for each in status.accounts
            for row in each.account.operations
            if "identifiers" in row.name
        }
        traffic = sorted(
            (getattr(row, "from"), row.to, row.messages, row.bytes)
            for each in status.accounts
            for row in each.account.traffic
            if row.disclosure == "BLINDED_ID"
        )
        return operations, traffic

    seen = run(main(tmp_path / "one", "a"))
    assert seen == run(main(tmp_path / "other", "b"))
    raised = {party: seen[0][party, "raised identifiers"] for party in NAMES[:parties]}
    assert raised == ({NAMES[0]: 15 + 16, NAMES[1]: 16 + 15} if parties == 2 else _of_a_ring([15, 16, 17], 12))


def _of_a_ring(ids: list[int], common: int) -> dict[str, int]:
    """Each party raises every list twice, its own once more than that, and the common points."""
    return {name: 2 * sum(ids) + own + common for name, own in zip(NAMES, ids, strict=False)}


def _open_files(folder: Path) -> list[str]:
    """Files below a folder that this process has open without a name."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            path = os.readlink(each)
        except OSError:  # the one of this listing
            continue
        if path.startswith(str(folder)) and path.endswith("(deleted)"):
            found.append(path)
    return found


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("parties", [2, 3])
def test_lists_of_many_blocks(parties: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls, messages, blocks and groups that end in the middle of each other give the records that all hold."""
    monkeypatch.setattr(work, "POINTS_PER_CALL", 3)
    monkeypatch.setattr(work, "POINTS_PER_MESSAGE", 4)
    monkeypatch.setattr(lists, "BLOCK", 5)
    common = [f"c{number}" for number in range(31)]
    ids = [[*common, *(f"{place}-{number}" for number in range(10 + place))] for place in range(parties)]
    found = intersect(tmp_path / "federation", ids)
    assert sorted(found[0]) == sorted(common)
    assert all(each == found[0] for each in found)
    assert _open_files(tmp_path) == []


@pytest.mark.parametrize("parties", [2, 3])
async def test_nothing_is_left_of_an_alignment_that_fails(parties: int, tmp_path: Path) -> None:
    """A party that has received a spoilt list closes its files with the attempt, and so do the others."""
    ids = [[f"i{number}" for number in range(12)]] * parties
    seen: list[int] = []

    federation = Federation(tmp_path, tables(ids))

    def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "blinded_ids" and parcel.stage == 3:
            seen.append(len(_open_files(tmp_path)))
            parcel.alignment.blinded_ids.points = bytes(32) + parcel.alignment.blinded_ids.points[32:]

    federation.tamper = tamper
    failed(await federation.train(job(parties)), "not a point of the group")
    assert _open_files(tmp_path) == []
    for name in NAMES[:parties]:
        assert not [path for path in federation.state(name).iterdir() if path.name.startswith("tmp")]
    await federation.close()
    assert min(seen) >= parties


@pytest.mark.parametrize("parties", [3, 4, 5, 8])
def test_every_list_meets_every_exponent_once(parties: int) -> None:
    """Played with sets of names for exponents: what is compared in the end carries those of all parties, each once."""
    hand: dict[int, list[tuple[int, list[str]]]] = {place: [] for place in range(parties)}
    common: dict[int, list[str]] = {}
    for turn in turns(parties):
        if turn.step == "pass_ids":
            moved: dict[int, list[tuple[int, list[str]]]] = {place: [] for place in turn.places}
            for here, there in turn.routes:
                moved[there] += hand[here]
            hand |= moved
            continue
        for place in turn.places:
            if turn.step == "blind_ids":
                hand[place] = [(place, [f"first {place}"])]
            elif turn.step in ("relay_ids", "raise_ids"):
                ((owner, on),) = hand[place]
                hand[place] = [(owner, [*on, f"{'first' if turn.step == 'relay_ids' else 'fresh'} {place}"])]
            elif turn.step == "combine_ids":
                assert sorted(owner for owner, _ in hand[place]) == list(range(parties))
                everything = sorted(f"first {each}" for each in range(parties))
                assert all(sorted(on) == everything for _, on in hand[place])
                hand[place] = [(-1, [*everything[1:], "fresh 0"])]
            elif turn.step == "refresh_ids":
                ((_, on),) = hand[place]
                hand[place] = [(-1, [*(each for each in on if each != f"first {place}"), f"fresh {place}"])]
            elif turn.step == "trace_ids":
                ((_, common[place]),) = hand[place]
                hand[place] = [(place, [])]
            elif turn.step == "match_ids":
                ((owner, on),) = hand[place]
                assert owner == place
                assert sorted(on) == sorted(common[place])
    assert {tuple(sorted(each)) for each in common.values()} == {
        tuple(sorted(f"fresh {place}" for place in range(parties)))
    }


def test_a_list_is_as_long_as_its_points() -> None:
    """The bound of a list counts points of the group's encoding."""
    assert POINT_BYTES == group.POINT_BYTES
