"""Whatever a coordinator asks, a party's policy decides: each rule, broken by a job that would need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation, run
from tests.worlds import PARTIES, assert_oracles_model

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
        federation.configs[party] = federation.configs[party].under(federation.law(party))
        federation.start(party)
        assert (await federation.resume()).state == "finished"
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())


def test_a_coordinator_that_the_policy_does_not_name_is_not_obeyed(tmp_path: Path) -> None:
    """Accepted coordinators are part of the law."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"coordinators": ["boss"]}})
        status = await federation.train(JOB)
        assert status.state == "failed"
        assert f"coordinator is not a coordinator that {FEATURE} obeys" in status.error
        await federation.close()

    run(main())
