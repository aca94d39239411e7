"""Policies that a split network does not fit: refused when the job is opened, by the rule's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from party.defences.settings import Defences, Gradient, LabelDp
from tests.simulator import run
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.splitnn.networks import federation
from tests.worlds import PARTIES, World, world
from treetap.neural.params import SplitnnParams
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.second_tier

HOLDER, FEATURE, OTHER = PARTIES
HERE = world(49, (2, 2, 1), seed=3)
NUMBERS = world(49, (2, 2, 1), seed=3, objective="reg:squarederror")
REGRESSION = replace(PARAMS, objective="reg:squarederror")
ALLOWED = {"reproducible": True}
#: Changes of the policies, and the refusal.
POLICIES: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "embeddings": ({FEATURE: ALLOWED}, "feature-b does not send EMBEDDING to label-holder: its policy does not let"),
    "embeddings to another party": (
        {FEATURE: {**ALLOWED, "emits": {"EMBEDDING": [OTHER]}}},
        "feature-b does not send EMBEDDING to label-holder: its policy says emits.EMBEDDING = ['feature-c']",
    ),
    "gradients": ({HOLDER: ALLOWED}, "label-holder does not send EMBEDDING_GRADIENT to feature-b: its policy does not"),
    "gradients to one party": (
        {HOLDER: {**ALLOWED, "emits": {"EMBEDDING_GRADIENT": [FEATURE]}}},
        "label-holder does not send EMBEDDING_GRADIENT to feature-c: its policy says emits.EMBEDDING_GRADIENT = ",
    ),
    "draws from the seed, label holder": (
        {HOLDER: {"emits": EMITS[HOLDER]["emits"]}},
        "label-holder takes no part in a job with reproducible = true: its policy says reproducible = false",
    ),
    "draws from the seed, feature party": (
        {OTHER: {"emits": EMITS[OTHER]["emits"]}},
        "feature-c takes no part in a job with reproducible = true: its policy says reproducible = false",
    ),
    "bounded sets": (
        {HOLDER: {**EMITS[HOLDER], "max_leakage": 0.5}},
        "by its policy: max_leakage and protocol 'splitnn' do not go together",
    ),
}
#: Parameters, the label holder's defences, and the refusal.
DEFENCES: dict[str, tuple[SplitnnParams, dict[str, Any], str]] = {
    "a party that is none of the job's": (
        PARAMS,
        {"dimip": {"feature-x": 0.3, FEATURE: 0.3}},
        "dimip of feature-x under [defences]: the feature parties of the job are feature-b, feature-c; name some of",
    ),
    "the label holder itself": (
        PARAMS,
        {"dimip": {HOLDER: 0.3}},
        "dimip of label-holder under [defences]: the",
    ),
    "numbers": (
        REGRESSION,
        {"dimip": {FEATURE: 0.3}},
        "dimip and a regression do not go together: it protects classes, and labels are numbers; train on",
    ),
    "noisy numbers": (REGRESSION, {"label_dp": {"epsilon": 1.0}}, "label_dp and a regression do not go"),
    "sets of records": (
        PARAMS,
        {"id_lmid": {"xi": 1.0}},
        "id_lmid and protocol 'splitnn' do not go together: it has no such defence of labels",
    ),
    "own trees": (PARAMS, {"reduced_leakage": {"trees": 1}}, "reduced_leakage and protocol 'splitnn' do not"),
    "repaired trees": (
        PARAMS,
        {"label_dp": {"epsilon": 1.0}, "grafting": True, "refit": True},
        "grafting and protocol 'splitnn' do not go together: it has no such defence of labels",
    ),
}


@pytest.mark.parametrize("case", POLICIES)
def test_a_job_that_a_policy_forbids_does_no_step(case: str, tmp_path: Path) -> None:
    """The party refuses at its opening, by the rule's name."""
    policies, says = POLICIES[case]
    status = _refused(tmp_path, HERE, PARAMS, policies={**EMITS, **policies})
    assert says in status.error


@pytest.mark.parametrize("case", DEFENCES)
def test_a_defence_that_the_job_cannot_have_is_refused_by_its_name(case: str, tmp_path: Path) -> None:
    """As wrong input, at the opening."""
    params, own, says = DEFENCES[case]
    here = NUMBERS if params.regression else HERE
    status = _refused(tmp_path, here, params, defences={HOLDER: Defences(**own)})
    assert says in status.error
    assert status.bad_input


def test_further_stages_need_columns_of_the_label_holder(tmp_path: Path) -> None:
    """Its own model gives the priors; one stage needs none."""
    here = world(49, (0, 2, 1), seed=3)
    for stages, says in ((2, "a table without columns of features do not go together"), (1, "")):
        own = {HOLDER: Defences(label_dp=LabelDp(epsilon=4.0, stages=stages))}
        status = (_refused if says else _ended)(tmp_path / str(stages), here, PARAMS, defences=own)
        assert says in status.error
        assert status.state == ("failed" if says else "finished")


def test_regressions_have_changed_gradients(tmp_path: Path) -> None:
    """A change of gradients does not ask for classes."""
    own = {HOLDER: Defences(gradient=Gradient(kind="compression", share=0.5))}
    assert _ended(tmp_path, NUMBERS, REGRESSION, defences=own).state == "finished"


def test_a_job_with_private_draws_needs_no_switch(tmp_path: Path) -> None:
    """The default of a policy suffices."""
    policies = {name: {"emits": lines["emits"]} for name, lines in EMITS.items()}
    assert _ended(tmp_path, HERE, replace(PARAMS, reproducible=False), policies=policies).state == "finished"


def _refused(folder: Path, here: World, params: SplitnnParams, **options: Any) -> jobs_pb2.JobStatus:
    """The status of a job that is refused when it is opened."""
    status = _ended(folder, here, params, **options)
    assert status.state == "failed"
    return status


def _ended(folder: Path, here: World, params: SplitnnParams, **options: Any) -> jobs_pb2.JobStatus:
    """The status of a job that has ended."""

    async def main() -> jobs_pb2.JobStatus:
        running = federation(folder, here, **options)
        status = await running.train(spec(params))
        await running.close()
        if status.state == "failed":
            assert {message.word for message in running.log} <= {"prepare", "leave"}
        return status

    return run(main())
