"""What a party's ledger leaves of its limits: budgets of labels and columns, and the limits on each partner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from treetap.party.defences.budgets import ColumnBudget, LabelBudget
from treetap.party.prediction.query_counts import counts_of
from treetap.party.runtime.job_ledger import DAILY, JobLedger
from treetap.party.runtime.ledger import Charge, Occasion, ledger_of
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.wire.reachable import ALL

if TYPE_CHECKING:
    from treetap.party.config import PartyConfig


def spent(party: PartyConfig, charges: list[Charge]) -> list[dict[str, Any]]:
    """A row for each limit: `limit`, `of`, `most`, `spent`, `left`. Raises `DataError` where a ledger is damaged.

    `charges`: all of the party's ledger. Units: ε of labels and columns, numbers of the last 24 hours for partners.
    """
    labels = LabelBudget(party.state, party.policy.labels.label_budget)
    used, rest = labels.spent(), labels.left()
    rows: list[dict[str, Any]] = []
    if used or rest is not None:
        own = {"spent": float(used), "left": None if rest is None else float(rest)}
        rows.append({"limit": "label_budget", "of": "labels", "most": labels.budget, **own})
    columns, privacy = ColumnBudget(party.state, party.policy.columns.column_budget), party.defences.column_privacy
    noise = None if privacy is None else ColumnPrivacy(privacy.epsilon, privacy.delta, privacy.trees)
    for name in sorted({charge.occasion.table for charge in columns.charges()}):
        most = columns.budget if columns.budget is not None or noise is None else noise.epsilon
        account = {key: value for key, value in columns.account(name, noise).items() if key != "table"}
        rows.append({"limit": "column_budget", "of": f"columns of table {name}", "most": most, **account})
    return rows + [row for row in _of_partners(party, charges) if row["spent"] or row["named"]]


def _of_partners(party: PartyConfig, charges: list[Charge]) -> Iterator[dict[str, Any]]:
    """A row for each limit on a partner; `named`: the partner has limits of its own."""
    policy, now = party.policy, time.time()
    met = {partner for charge in charges for partner in charge.occasion.partners} | {*policy.partners} - {ALL}
    parties = tuple(sorted(met - {*policy.people.coordinators}))
    for job in (
        Occasion("", parties, "", "", 0),
        *(Occasion("", (), name, "", 0) for name in policy.people.coordinators),
    ):
        kept = JobLedger(ledger_of(party.state), job, party.name, policy)
        rows = [
            (DAILY[kind], partner, most, sum(one.amount for one in kept.of_day(kind, partner, now)))
            for kind in DAILY
            for partner, most in kept.daily(kind)
        ]
        rows += [
            ("queries_per_record", partner, most, counts_of(party.state, partner).most())
            for partner, most in kept.queries_per_record()
        ]
        for limit, partner, most, used in rows:
            named = partner in policy.partners
            left = max(most - used, 0)
            yield {"limit": limit, "of": partner, "most": most, "spent": used, "left": left, "named": named}
