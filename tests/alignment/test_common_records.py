"""The least number of common records, which each party sets for itself: one for trainings, one for predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.alignment.test_protocol import NAMES, job, tables
from tests.simulator import Federation, run
from treetap.party.policy import Policy, merged
from treetap.protocols.prediction import predict_request

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
