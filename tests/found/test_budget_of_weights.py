"""The noise that a party draws for leaf weights of PIVODL counts in its `label_budget`, over all jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pivodl.federations import federation_of, job_of, transparent
from tests.pivodl.jobs import SMALL
from tests.simulator import Federation
from tests.worlds import PARTIES, world
from treetap.party.defences.budgets import LabelBudget
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
#: In which one party has all labels, and the others open sums and keep leaves.
HERE = world(30, (1, 1, 1), seed=33, fresh=6)
_, *KEEPERS = PARTIES


def _begun(folder: Path, epsilon: float, budget: float) -> Federation:
    """Keepers with a budget, and a job for `train`."""
    job = job_of(HERE, replace(SMALL, epsilon=epsilon))
    federation = federation_of(folder, HERE, job, labels={"min_label_parties": 1})
    for name in KEEPERS:
        config = federation.configs[name]
        federation.configs[name] = config.under(config.policy.with_lines({"labels": {"label_budget": budget}}))
        federation.restart(name)
    return federation


@pytest.mark.second_tier
async def test_jobs_of_other_names_spend_one_budget(tmp_path: Path) -> None:
    """As many as it has room for; a party that draws none spends none."""
    with transparent():
        federation = _begun(tmp_path, 2.0, 5.0)
        job = job_of(HERE, replace(SMALL, epsilon=2.0))
        said = [await federation.train(job, f"job-{number}") for number in range(6)]
        spent = [LabelBudget(federation.state(name), 5.0).spent() for name in KEEPERS]
        assert max(spent) == 4
        assert (said[0].state, said[-1].state) == ("finished", "failed")
        assert "draws no noise of leaf weights for this job: they cost ε = 2, and of its policy's" in said[-1].error


@pytest.mark.parametrize(("spent", "state"), [(1.0, "failed"), (0.9, "finished")])
async def test_what_a_ledger_has_counts_before_a_table_is_used(spent: float, state: str, tmp_path: Path) -> None:
    """Exactly to the last decimal, and before any other party hears of a record."""
    with transparent():
        federation = _begun(tmp_path, 0.3, 1.2)
        occasion = Occasion("train", (PARTIES[0],), "coordinator", "earlier", 1)
        ledger_of(federation.state(KEEPERS[0])).enter(Charge(Kind.NOISED_WEIGHTS, occasion, spent))
        status = await federation.train(job_of(HERE, replace(SMALL, epsilon=0.3)))
        assert status.state == state, status.error
        if state == "failed":
            assert "label_budget = 1.2 it has spent 1.0" in status.error
            assert {message.word for message in federation.log} <= {"prepare", "leave"}
