"""Whatever a coordinator asks, a party's policy decides: each rule, broken by a job that would need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation, run
from tests.worlds import PARTIES, assert_oracles_model
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import jobs_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES

RULES: dict[str, tuple[str, dict[str, Any], str]] = {
    "key floor at a feature party": (FEATURE, {"min_key_bits": 2048}, "min_key_bits = 2048"),
    "key floor at the label holder": (LABEL_HOLDER, {"min_key_bits": 2048}, "min_key_bits = 2048"),
    "common records": (OTHER, {"min_common_records": 1000}, "min_common_records = 1000"),
    "instance spaces of the owner": (FEATURE, {"min_instance_space": 15}, "min_instance_space = 15"),
    "instance spaces of the label holder": (LABEL_HOLDER, {"min_instance_space": 15}, "min_instance_space = 15"),
    "gradients": (LABEL_HOLDER, {"emits": {"CIPHERTEXT": []}}, "emits.CIPHERTEXT = []"),
    "gradients to one": (LABEL_HOLDER, {"emits": {"CIPHERTEXT": [FEATURE]}}, f"CIPHERTEXT to {OTHER}"),
    "sums": (FEATURE, {"emits": {"CANDIDATE_SUM": [OTHER]}}, f"emits.CANDIDATE_SUM = ['{OTHER}']"),
    "children": (FEATURE, {"emits": {"INSTANCE_SPACE": []}}, "emits.INSTANCE_SPACE = []"),
    "digests": (OTHER, {"emits": {"BLINDED_ID": []}}, "emits.BLINDED_ID = []"),
    "metrics": (LABEL_HOLDER, {"emits": {"METRIC": []}}, "METRIC to coordinator"),
    "topology": (LABEL_HOLDER, {"emits": {"TOPOLOGY": ["parties"]}}, "TOPOLOGY to coordinator"),
}


#: What a party sends in predictions, who, with which receivers it may not, and what the refusal names.
PREDICTIONS: dict[str, tuple[dict[str, Any], str, dict[str, list[str]], str]] = {
    "queries": ({}, LABEL_HOLDER, {"INSTANCE_SPACE": [FEATURE]}, f"INSTANCE_SPACE to {OTHER}"),
    "directions": ({}, FEATURE, {"SPLIT_DIRECTION": []}, f"SPLIT_DIRECTION to {LABEL_HOLDER}"),
    "entries": ({"protocol": "eini"}, FEATURE, {"CIPHERTEXT": [LABEL_HOLDER]}, f"CIPHERTEXT to {OTHER}"),
    "sums": ({"protocol": "eini"}, OTHER, {"PREDICTION": ["clients"]}, f"PREDICTION to {LABEL_HOLDER}"),
    "keys": ({"protocol": "eini"}, LABEL_HOLDER, {"PUBLIC_KEY": []}, f"PUBLIC_KEY to {FEATURE}"),
    "attributions": (
        {"protocol": "eini", "attributions": True},
        OTHER,
        {"EXPLANATION": ["clients"]},
        f"EXPLANATION to {LABEL_HOLDER}",
    ),
}
EXPLAINS = {party: {"emits": {"EXPLANATION": [LABEL_HOLDER]}} for party in (FEATURE, OTHER)}


def _refused_at_once(federation: Federation, status: jobs_pb2.JobStatus, party: str, named: str) -> None:
    """The job failed by a refusal that names party, class, receiver and key, and no step but its opening was done."""
    disclosure = named.partition(" to ")[0]
    assert status.state == "failed"
    assert f"Refused: {party} does not send {named}: its policy" in status.error
    assert f"under emits.{disclosure} in {party}'s policy file" in status.error
    assert {message.word for message in federation.log} <= {"prepare", "open_model", "leave"}


@pytest.mark.parametrize("rule", [rule for rule, (_, policy, _) in RULES.items() if "emits" in policy])
def test_a_training_that_the_policy_forbids_is_refused_at_its_opening(rule: str, tmp_path: Path) -> None:
    """No table has been read, no identifier sent: that of the party which refuses is not even there."""
    party, policy, _ = RULES[rule]

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies={party: policy})
        federation.configs[party].tables["train"].path.unlink()
        status = await federation.train(JOB)
        (disclosure,) = policy["emits"]
        receiver = status.error.partition(f"does not send {disclosure} to ")[2].partition(":")[0]
        _refused_at_once(federation, status, party, f"{disclosure} to {receiver}")
        assert list((federation.state(party) / "jobs").iterdir()) == []
        await federation.close()

    run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("rule", PREDICTIONS)
def test_a_prediction_that_the_policy_forbids_is_refused_at_its_opening(rule: str, tmp_path: Path) -> None:
    """Before the table to predict is read, and before any alignment or key."""
    asked, party, emits, named = PREDICTIONS[rule]

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies=EXPLAINS)
        assert (await federation.train(JOB)).state == "finished"
        federation.kill(party)
        federation.policies = {**EXPLAINS, party: {"emits": emits}}
        federation.configs[party] = federation.configs[party].under(federation.policy(party))
        federation.configs[party].tables["predict"].path.unlink()
        federation.start(party)
        federation.log.clear()
        status = await federation.predict(predict_request(model="job", **asked))
        _refused_at_once(federation, status, party, named)
        await federation.close()

    run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("rule", RULES)
def test_a_step_that_breaks_a_rule_is_refused_by_its_name(rule: str, tmp_path: Path) -> None:
    """The job ends, the operator reads whose rule it was; nothing of the class left; a wider policy lets it go on."""
    party, policy, named = RULES[rule]

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies={party: policy})
        status = await federation.train(JOB)
        assert status.state == "failed"
        assert "Refused" in status.error
        assert party in status.error
        assert named in status.error
        federation.kill(party)
        federation.policies = {}
        federation.configs[party] = federation.configs[party].under(federation.policy(party))
        federation.start(party)
        assert (await federation.resume()).state == "finished"
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())


def test_a_coordinator_that_the_policy_does_not_name_is_not_obeyed(tmp_path: Path) -> None:
    """Accepted coordinators are part of the policy."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"coordinators": ["boss"]}})
        status = await federation.train(JOB)
        assert status.state == "failed"
        assert f"coordinator is not a coordinator that {FEATURE} obeys" in status.error
        await federation.close()

    run(main())
