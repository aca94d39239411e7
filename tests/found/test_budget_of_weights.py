"""The noise that a party draws for leaf weights of PIVODL counts in its `label_budget`, over all jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from party.defences.label_budget import LabelBudget
from party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from tests.pivodl.federations import federation_of, job_of, transparent
from tests.pivodl.jobs import SMALL
from tests.simulator import Federation
from tests.worlds import PARTIES, world
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
#: In which one party has all labels, and the others open sums and keep leaves.
HERE = world(30, (1, 1, 1), seed=33, fresh=6)
_, *KEEPERS = PARTIES


def _begun(folder: Path, epsilon: float, budget: float) -> Federation:
    federation = federation_of(folder, HERE, job_of(HERE, replace(SMALL, epsilon=epsilon)))
    for name in KEEPERS:
        config = federation.configs[name]
        federation.configs[name] = config.under(config.policy.model_copy(update={"label_budget": budget}))
        federation.kill(name)
        federation.start(name)
    for name in PARTIES:
        config = federation.configs[name]
        federation.configs[name] = config.under(config.policy.model_copy(update={"min_label_parties": 1}))
        federation.kill(name)
        federation.start(name)
    return federation


async def _trained(federation: Federation, epsilon: float, job: str) -> jobs_pb2.JobStatus:
    return await federation.train(job_of(HERE, replace(SMALL, epsilon=epsilon)), job)


async def test_jobs_of_other_names_spend_one_budget(tmp_path: Path) -> None:
    """As many as it has room for, and those that a ledger has already; a party that draws none spends none."""
    with transparent():
        federation = _begun(tmp_path, 2.0, 5.0)
        said = [await _trained(federation, 2.0, f"job-{number}") for number in range(6)]
        spent = {name: LabelBudget(federation.state(name), 5.0).spent() for name in KEEPERS}
        assert all(0 <= total <= 5 for total in spent.values())
        assert max(spent.values()) == 4
        for status in said:
            if status.state != "finished":
                assert (
                    "draws no noise of leaf weights for this job: they cost ε = 2, and of its policy's" in status.error
                )
                assert "label_budget = 5 it has spent 4" in status.error
        assert [status.state for status in said][0] == "finished"
        assert [status.state for status in said][-1] == "failed"
        await federation.close()


@pytest.mark.parametrize(("kind", "spent"), [(Kind.NOISED_WEIGHTS, 1.0), (Kind.NOISED_WEIGHTS, 0.9)])
async def test_what_a_ledger_has_counts_before_a_table_is_used(kind: Kind, spent: float, tmp_path: Path) -> None:
    """Exactly to the last decimal, and before any other party hears of a record."""
    with transparent():
        federation = _begun(tmp_path, 0.3, 1.2)
        occasion = Occasion("train", (PARTIES[0],), "coordinator", "earlier", 1)
        ledger_of(federation.state(KEEPERS[0])).enter(Charge(kind, occasion, spent))
        before = len(federation.log)
        status = await _trained(federation, 0.3, "job")
        refused = spent + 0.3 > 1.2 + 1e-9
        assert status.state == ("failed" if refused else "finished"), status.error
        if refused:
            assert {message.word for message in federation.log[before:]} <= {"prepare", "leave"}
        await federation.close()
