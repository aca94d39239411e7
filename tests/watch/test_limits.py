"""Limits and approvals as metrics: read from the disk, replaced, and said to be unread where a file is damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.simulator import in_place
from treetap.party.approvals.ledger import Approvals
from treetap.party.approvals.watched import PERIOD_S, Watched
from treetap.party.config import PartyConfig
from treetap.party.policy import Policy
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.party.runtime.metrics import PartyMetrics
from treetap.wire.tls import Insecure

BANK = "bank"


def _policy(**limits: int) -> Policy:
    settings = {
        "people": {"coordinators": ["c"], "label_holders": ["a"]},
        "labels": {"max_leakage": 0.5},
        "partners": {"a": limits},
    }
    return Policy.model_validate(settings)


async def test_limits_are_read_again_and_again(tmp_path: Path) -> None:
    """A changed policy counts at the next reading; after damage the figures stay, and are said to be old."""
    state = tmp_path / "state"
    base = PartyConfig(name=BANK, state=state, insecure=True)
    configs = [base.under(_policy(jobs_per_day=4))]
    metrics, ledger = PartyMetrics(BANK), ledger_of(state)
    ledger.enter(Charge(Kind.TRAINING, Occasion("loans", ("a",), "c", "job", 1)))
    metrics.leakage_bound.labels("a").set(0.25)
    shown = Watched(metrics, lambda: configs[-1], lambda: Approvals(BANK, state / "approvals", Insecure(BANK)))

    def of(name: str) -> dict[tuple[str, ...], float]:
        return {tuple(labels.values()): value for _, labels, value in metrics.samples(name)}

    loaded = asyncio.Event()
    following = asyncio.ensure_future(shown.follow(in_place, loaded))
    await asyncio.sleep(1)
    assert of("treetap_limit_spent") == {}
    loaded.set()
    await asyncio.sleep(1)
    leakage = ("max_leakage", "labels, by a")
    previews = ("previews_per_day", "a")
    assert of("treetap_limit_spent") == {("jobs_per_day", "a"): 1, leakage: 0.25, previews: 0}
    most = of("treetap_limit_most")
    assert most.items() > {("jobs_per_day", "a"): 4, leakage: 0.5}.items()
    assert (of("treetap_limits_read"), of("treetap_approvals_waiting")) == ({(): 1}, {(): 0})
    configs.append(base.under(_policy(records_per_day=9)))
    await asyncio.sleep(PERIOD_S)
    changed = of("treetap_limit_most")
    assert changed.keys() == {("records_per_day", "a"), leakage, previews}
    with ledger.path.open("r+b") as file:
        file.write(b"?")
    await asyncio.sleep(PERIOD_S)
    assert of("treetap_limits_read") == {(): 0}
    assert of("treetap_limit_most") == changed
    following.cancel()
