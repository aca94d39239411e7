"""The budget of a feature party's columns: what attempts at jobs with `column_privacy` have cost, by table.

An attempt adds its ρ, whatever job, label holder or model it is for (docs/column-privacy.md); the sum is converted with
the δ of the party's file. A charge is on disk before a sum leaves. A crash after it costs it again.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from treetap.errors import Refused
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.privacy.zcdp import epsilon_of, rho_of

#: What a sum of floating-point ρ may exceed a budget by, as a share of it.
_ROUNDING = 1e-9


class ColumnBudget:
    """The ledger in a state folder; `budget`: the most ε of a table, None: that of one attempt."""

    def __init__(self, state: Path, budget: float | None) -> None:
        self._ledger, self.budget = ledger_of(state), budget

    def charges(self, table: str | None = None) -> list[Charge]:
        """Those of a table, or all, the first one first. Raises `DataError` if the ledger is damaged."""
        every = self._ledger.charges(Kind.NOISED_SUMS)
        return [charge for charge in every if table in (None, charge.occasion.table)]

    def spent(self, table: str) -> float:
        """Σ ρ of a table's attempts."""
        return math.fsum(charge.amount for charge in self.charges(table))

    def account(self, table: str, privacy: ColumnPrivacy | None) -> dict[str, Any]:
        """ε that is spent on a table, with the δ of the party's file or that of the last attempt, and what is left."""
        delta = self.charges(table)[-1].details["delta"] if privacy is None else privacy.delta
        left = None if privacy is None else epsilon_of(self._left(table, privacy), delta)
        return {"table": table, "spent": epsilon_of(self.spent(table), delta), "left": left}

    def _left(self, table: str, privacy: ColumnPrivacy) -> float:
        """ρ that may still be spent on a table, at least 0."""
        most = rho_of(privacy.epsilon if self.budget is None else self.budget, privacy.delta)
        return max(most - self.spent(table), 0.0)

    def check(self, party: str, table: str, privacy: ColumnPrivacy) -> None:
        """Raise `Refused` if one more attempt on a table would exceed the budget."""
        left, spent = self._left(table, privacy), self.spent(table)
        if privacy.rho * (1 - _ROUNDING) > left:
            left = epsilon_of(left, privacy.delta)
            says = "has no column_budget" if self.budget is None else f"says column_budget = {self.budget:g}"
            raise Refused(
                f"{party} sends no sums of table {table!r} in this attempt: it costs ε = {privacy.epsilon:g} by "
                f"column_privacy, earlier ones have cost ε = {epsilon_of(spent, privacy.delta):.4g} together, and its "
                f"policy {says}, which leaves ε = {left:.4g} ('treetap ledger' at {party} lists them); another job "
                f"needs a smaller epsilon, or this one a greater column_budget under [columns] of {party}'s policy file"
            )

    def charge(self, party: str, occasion: Occasion, privacy: ColumnPrivacy) -> None:
        """Enter an attempt, durably. Raises `Refused` as `check` does, and `OSError` if it cannot be written."""
        charge = Charge(Kind.NOISED_SUMS, occasion, privacy.rho, asdict(privacy))
        self._ledger.enter(charge, lambda: self.check(party, occasion.table, privacy))
