"""Defences that a job cannot have are refused by name before it starts, with what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pivodl.jobs import PARAMS as PIVODL
from tests.pivodl.jobs import policies
from tests.simulator import Federation, failed
from tests.worlds import PARTIES, spec, spread, world
from treetap.errors import ConfigError, Refused
from treetap.party.defences.checks import check_own, check_own_trees
from treetap.party.defences.settings import Defences, ReducedLeakage
from treetap.party.policy import Policy
from treetap.tables.config import TableConfig
from treetap.trees.params import BoostingParams, ForestParams, TreeParams

LABEL_HOLDER, FEATURE, OTHER = PARTIES
LABELLED = TableConfig(path=Path("t.csv"), id="id", columns=["a"], label="y")
WITHOUT_COLUMNS = LABELLED.model_copy(update={"columns": []})
BOOSTING, NUMBERS = BoostingParams(), BoostingParams(objective="reg:squarederror")
DP: dict[str, Any] = {"label_dp": {"epsilon": 1.0}}
ACCEPTED: list[tuple[TreeParams, TableConfig | None, dict[str, Any]]] = [
    (BOOSTING, WITHOUT_COLUMNS, DP),
    (BOOSTING, WITHOUT_COLUMNS, {"id_lmid": {"xi": 1.0}}),
    (NUMBERS, LABELLED, {"reduced_leakage": {"trees": 1}}),
    (ForestParams(), LABELLED, {**DP, "grafting": True, "refit": True}),
    (ForestParams(bootstrap=True), LABELLED, {"id_lmid": {"xi": 1.0}}),
    (ForestParams(), LABELLED, {"id_lmid": {"xi": 1.0, "counts": "paper"}}),
    (PIVODL, LABELLED.model_copy(update={"label": None}), DP),
    (PIVODL, None, DP),
    (PIVODL, LABELLED, {}),
]


@pytest.mark.parametrize(("params", "own", "defences"), ACCEPTED)
def test_other_defences_are_accepted(params: TreeParams, own: TableConfig | None, defences: dict[str, Any]) -> None:
    """Also of a party of a job with one role that has no labels."""
    check_own(LABEL_HOLDER, Defences(**defences), Policy(), own, None, spec(params))


def test_a_budget_asks_for_label_privacy_wherever_the_partys_labels_are_used() -> None:
    """As label holder, and where labels are spread over the parties; not without labels."""
    policy, without = Policy(labels={"label_budget": 4.0}), LABELLED.model_copy(update={"label": None})
    for params in (BOOSTING, ForestParams(), PIVODL):
        with pytest.raises(Refused, match=r"takes no part .* label_budget = 4 under .labels.; write label_dp"):
            check_own(LABEL_HOLDER, Defences(), policy, LABELLED, None, spec(params))
    check_own(LABEL_HOLDER, Defences(**DP), policy, LABELLED, None, spec(BOOSTING))
    check_own(LABEL_HOLDER, Defences(), policy, without, None, spec(PIVODL))
    check_own(FEATURE, Defences(), policy, LABELLED, None, spec(BOOSTING))


def test_no_more_trees_alone_than_the_job_has() -> None:
    """Counted in trees: a round of three classes has three."""
    rounds = BoostingParams(n_estimators=2, objective="multi:softprob")
    for params, classes, most in ((BoostingParams(n_estimators=2), 2, 2), (rounds, 3, 6), (ForestParams(), 3, 100)):
        check_own_trees("a", Defences(reduced_leakage=ReducedLeakage(trees=most)), params, classes)
        with pytest.raises(ConfigError, match=rf"trees = {most + 1}.* under \[defences\]: the job has {most} trees"):
            check_own_trees("a", Defences(reduced_leakage=ReducedLeakage(trees=most + 1)), params, classes)


@pytest.mark.parametrize("params", [BoostingParams(n_estimators=1), ForestParams()], ids=["boosting", "forest"])
async def test_noisy_labels_of_one_class_end_the_job_with_what_to_change(
    params: TreeParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may come of a prior that is sure of a class; nothing in the error depends on clean labels."""
    monkeypatch.setattr("treetap.party.defences.noisy_labels.staged", lambda labels, *_: labels * 0)

    here = world(30, (1, 1, 1), seed=5)
    federation = Federation(tmp_path, here.tables, defences={LABEL_HOLDER: Defences(**DP)})
    status = await federation.train(spec(params))
    assert (
        "noisy labels that label_dp has drawn for the records of this job are all of one class; set a" in status.error
    )


@pytest.mark.parametrize("params", [BoostingParams(n_estimators=1, max_depth=2), PIVODL], ids=["one", "several"])
async def test_a_job_that_is_refused_does_no_step(params: TreeParams, tmp_path: Path) -> None:
    """The error names the wrong input, and the file that has it."""
    here = world(30, (1, 1, 1), seed=5)
    job, party = spec(params), LABEL_HOLDER
    asked: dict[str, Any] = {"reduced_leakage": {"trees": 2}}
    if params is PIVODL:
        here, party, asked = spread(here, [i % 3 for i in range(30)]), OTHER, DP

    lines = policies(job) if params is PIVODL else None
    federation = Federation(tmp_path, here.tables, policies=lines, defences={party: Defences(**asked)})
    failed(await federation.train(job), f"{party}: {next(iter(asked))}", bad_input=True)
    assert {message.word for message in federation.log} <= {"prepare", "leave"}
