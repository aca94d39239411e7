"""Whatever a coordinator asks, a party's policy decides: each rule, broken by a job that would need it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.boosting.categories import categorical_world
from tests.growth.evaluated import with_eval_table
from tests.needs import needs_library_of
from tests.pivodl.jobs import SMALL, SPREAD
from tests.replay import HERE, JOB, PARAMS
from tests.simulator import Federation, failed, finished
from tests.splitnn.jobs import PARAMS as NETWORK
from tests.trainings import oracle
from tests.trainings import policies as policies_for
from tests.worlds import PARTIES, World, assert_oracles_model, spec, world
from treetap.party.defences.settings import ColumnPrivacyTable, Defences
from treetap.party.policy import merged
from treetap.party.policy_tables import PLACES
from treetap.protocols.job_spec import params_of
from treetap.protocols.key_options import LATTICE
from treetap.protocols.registry import training_name
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import setup_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")

LABEL_HOLDER, FEATURE, OTHER = PARTIES


class Rule(NamedTuple):
    """A policy's lines at a party, a job that breaks them, and what the refusal names."""

    party: str
    policy: dict[str, Any]
    named: str
    job: setup_pb2.JobSpec = JOB
    here: World = HERE
    options: dict[str, Any] = {}


_EVALUATED = with_eval_table(world(40, (1, 1, 1), seed=3, fresh=30)).here
_CATEGORIES: dict[str, Any] = {
    "job": spec(BoostingParams(n_estimators=1, max_depth=2, max_bin=8, max_cat_to_onehot=1)),
    "here": categorical_world(),
    "options": {"encode": "categorical"},
}
_NOISED = {FEATURE: Defences(column_privacy=ColumnPrivacyTable(epsilon=500.0, delta=1e-6, trees=2))}
_ON_LATTICE = spec(PARAMS, scheme=LATTICE)
_PIVODL = spec(SMALL, key_bits=512, obfuscation="standard")
_PUBLISHED = spec(replace(SMALL, as_published=True), key_bits=512, obfuscation="standard")
RULES: dict[str, Rule] = {
    "key floor at a feature party": Rule(FEATURE, {"keys": {"min_key_bits": 2048}}, "min_key_bits = 2048"),
    "key floor at the label holder": Rule(LABEL_HOLDER, {"keys": {"min_key_bits": 2048}}, "min_key_bits = 2048"),
    "common records": Rule(OTHER, {"columns": {"min_common_records": 1000}}, "min_common_records = 1000"),
    "instance spaces of the owner": Rule(FEATURE, {"columns": {"min_instance_space": 15}}, "min_instance_space = 15"),
    "instance spaces of the label holder": Rule(
        LABEL_HOLDER, {"columns": {"min_instance_space": 15}}, "min_instance_space = 15"
    ),
    "gradients": Rule(LABEL_HOLDER, {"emits": {"CIPHERTEXT": []}}, "emits.CIPHERTEXT = []"),
    "gradients to one": Rule(LABEL_HOLDER, {"emits": {"CIPHERTEXT": [FEATURE]}}, f"CIPHERTEXT to {OTHER}"),
    "sums": Rule(FEATURE, {"emits": {"CANDIDATE_SUM": [OTHER]}}, f"emits.CANDIDATE_SUM = ['{OTHER}']"),
    "children": Rule(FEATURE, {"emits": {"INSTANCE_SPACE": []}}, "emits.INSTANCE_SPACE = []"),
    "digests": Rule(OTHER, {"emits": {"BLINDED_ID": []}}, "emits.BLINDED_ID = []"),
    "metrics": Rule(LABEL_HOLDER, {"emits": {"METRIC": []}}, "METRIC to coordinator"),
    "topology": Rule(LABEL_HOLDER, {"emits": {"TOPOLOGY": ["parties"]}}, "TOPOLOGY to coordinator"),
    "directions of constraints": Rule(
        *(FEATURE, {"emits": {"MONOTONE_DIRECTION": []}}, f"MONOTONE_DIRECTION to {LABEL_HOLDER}"),
        options={"constraints": {FEATURE: {"b0": 1}}},
    ),
    "scheme": Rule(OTHER, {"keys": {"schemes": ["paillier"]}}, "schemes = [", _ON_LATTICE),
    "secrecy at the label holder": Rule(
        LABEL_HOLDER,
        {"keys": {"min_lattice_bits": 135}},
        "secrecy of a key of which no place was told (134 bits)",
        _ON_LATTICE,
    ),
    "secrecy at a feature party": Rule(
        OTHER,
        {"keys": {"min_lattice_bits": 135}},
        "secrecy of a key of which no place was told (134 bits)",
        _ON_LATTICE,
    ),
    "order of splits": Rule(
        *(LABEL_HOLDER, {"labels": {"expansion_order": False}}, "expansion_order = false"),
        spec(replace(PARAMS, grow_policy="lossguide", max_leaves=3), obfuscation="standard"),
    ),
    "withheld spaces": Rule(
        *(FEATURE, {"columns": {"withheld_spaces": False}}, "withheld_spaces = false"),
        spec(replace(PARAMS, instance_spaces="withheld"), scheme=LATTICE),
    ),
    "records to measure": Rule(
        *(LABEL_HOLDER, {"labels": {"min_evaluated_records": 31}}, "min_evaluated_records = 31"),
        *(spec(PARAMS, eval_table="eval"), _EVALUATED),
    ),
    "records to score": Rule(
        *(FEATURE, {"columns": {"min_prediction_records": 31}}, "min_prediction_records = 31"),
        *(spec(PARAMS, eval_table="eval"), _EVALUATED),
    ),
    "categories at their owner": Rule(
        *(
            FEATURE,
            {"columns": {"category_partitions": False}},
            f"does not send {LABEL_HOLDER} the sums over each category",
        ),
        **_CATEGORIES,
    ),
    "categories at the label holder": Rule(
        *(LABEL_HOLDER, {"columns": {"category_partitions": False}}, f"does not partition the categories of {FEATURE}"),
        **_CATEGORIES,
    ),
    "noised sums": Rule(
        LABEL_HOLDER, {"labels": {"noised_sums": False}}, "noised_sums = false", options={"defences": _NOISED}
    ),
    "labels in clear": Rule(LABEL_HOLDER, {"labels": {"label_budget": 2.0}}, "label_budget = 2"),
    "parties that share labels": Rule(
        FEATURE, {"labels": {"min_label_parties": 4}}, "min_label_parties = 4", _PIVODL, SPREAD
    ),
    **{
        f"the paper's steps at {party}": Rule(
            *(party, {"labels": {"pivodl_as_published": False}}, "pivodl_as_published = false", _PUBLISHED, SPREAD)
        )
        for party in PARTIES
    },
    "a seed that all know": Rule(OTHER, {"networks": {"reproducible": False}}, "reproducible = false", spec(NETWORK)),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", RULES)
async def test_a_step_that_breaks_a_rule_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """The job ends, the operator reads whose rule it was; nothing of the class left; a wider policy lets it go on."""
    party, policy, named, job, here, options = RULES[name]
    needs_library_of(training_name(job))
    wide = {name: policies_for(job).get(name, {}) for name in here.tables}
    policies = {**wide, party: merged(wide[party], policy)}
    federation = Federation(tmp_path, here.tables, policies=policies, **options)
    failed(await federation.train(job), "Refused", party, named)
    federation.kill(party)
    federation.policies = wide
    federation.configs[party] = federation.configs[party].under(federation.policy(party))
    federation.start(party)
    finished(await federation.resume())
    if not options.keys() & {"defences", "constraints"} and training_name(job) != "splitnn":
        params: Any = params_of(job)
        assert_oracles_model(federation.states, here.oracle(params) if here.categories else oracle(here, params))


def test_every_key_has_a_rule() -> None:
    """Here, or in a test of predictions, previews, approvals or what is kept: a new key cannot be left out."""
    here = {key for rule in RULES.values() for table in rule.policy.values() for key in table}
    tests = (path for path in Path(__file__).parents[1].rglob("test_*.py") if path != Path(__file__))
    others = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [key for key in PLACES if key not in here and key not in others] == []


async def test_a_coordinator_that_the_policy_does_not_name_is_not_obeyed(tmp_path: Path) -> None:
    """Accepted coordinators are part of the policy."""
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"people": {"coordinators": ["boss"]}}})
    failed(await federation.train(JOB), f"coordinator is not a coordinator that {FEATURE} obeys")
