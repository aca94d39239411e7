"""Budgets: what a party's jobs have cost, and what may be spent.

The budget of a party's labels: what draws of noisy ones have cost, by the party's ledger, and what may be spent.

A draw adds its ε, whatever table or model it is for: by basic composition all that was ever computed from noisy labels
is Σ ε-differentially private in the label of each record. So does the noise of leaf weights that this party has drawn
for a job of PIVODL, whosever labels they follow from. A charge is on disk before the labels are. A crash between
the two charges for labels that no party has seen; nothing is used that was not charged.

The budget of a feature party's columns: what attempts at jobs with `column_privacy` have cost, by table.

An attempt adds its ρ, whatever job, label holder or model it is for (docs/column-privacy.md); the sum is converted with
the δ of the party's file. A charge is on disk before a sum leaves. A crash after it costs it again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from treetap.errors import DataError, Refused
from treetap.party.runtime.job_store import DRAWS
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.privacy.zcdp import epsilon_of, rho_of


@dataclass(frozen=True)
class LabelCharge:
    """One draw: the details of its charge.

    Attributes:
        path: of the table, and `column` its label column, as they were then.
        records: of the table, with labels of `classes` classes.
        epsilon: ε, of LP-MST with `stages` stages.
        mechanism: what was drawn, with its version.
        priors: what the priors depend on beside noisy labels; empty with one stage.
        key: SHA-256 over all that decides whether a draw can be used again, the ids and labels included.
        labels: SHA-256 of the file of noisy labels.
    """

    path: str
    column: str
    records: int
    classes: int
    epsilon: float
    stages: int
    mechanism: str
    priors: str
    key: str
    labels: str


class LabelBudget:
    """The ledger in a state folder; `budget`: the most that may be spent, None: no limit."""

    def __init__(self, state: Path, budget: float | None) -> None:
        self.ledger, self.budget = ledger_of(state), budget
        self._draws = state / DRAWS

    def labels_of(self, number: int) -> Path:
        """The file of a draw's noisy labels, which a crash after the charge has kept from being written."""
        return self._draws / f"{number}.npz"

    def charges(self) -> list[LabelCharge]:
        """All draws, the first one first.

        Raises:
            DataError: the ledger is damaged, or there are noisy labels that it does not have.
        """
        charges = [LabelCharge(**charge.details) for charge in self.ledger.charges(Kind.NOISY_LABELS)]
        stored = [int(path.stem) for path in self._draws.glob("*.npz") if path.stem.isdigit()]
        if max(stored, default=-1) >= len(charges):
            file = self.labels_of(max(stored))
            raise DataError(f"{self.ledger.path}: lacks the charge of {file}; bring a back-up of the file back")
        return charges

    def spent(self) -> Decimal:
        """Σ ε of all draws, and of noised leaf weights, exact in decimal digits."""
        weights = (charge.amount for charge in self.ledger.charges(Kind.NOISED_WEIGHTS))
        return sum(map(_exact, (*(charge.epsilon for charge in self.charges()), *weights)), Decimal(0))

    def left(self) -> Decimal | None:
        """The ε that may still be spent, at least 0; None without a limit."""
        return None if self.budget is None else max(_exact(self.budget) - self.spent(), Decimal(0))

    def check(self, party: str, epsilon: float, what: str = "noisy labels") -> None:
        """Raise `Refused` if one more draw with this ε would exceed the budget. `what`: is drawn."""
        left = self.left()
        if left is not None and _exact(epsilon) > left:
            raise Refused(
                f"{party} draws no {what} for this job: they cost ε = {epsilon:g}, and of its policy's "
                f"label_budget = {self.budget:g} it has spent {self.spent():f}; a job on a table and with a label_dp "
                f"that it has drawn labels for costs nothing ('treetap labels' at {party} lists them), another one "
                f"needs a smaller epsilon, or a greater label_budget under [labels] of {party}'s policy file"
            )

    def charge(self, charge: LabelCharge, occasion: Occasion) -> int:
        """Enter a draw, durably; returns its number, from 0. Raises `OSError` if it cannot be written."""
        return self.ledger.enter(Charge(Kind.NOISY_LABELS, occasion, charge.epsilon, asdict(charge)))


def _exact(number: float) -> Decimal:
    """The decimal number that a person wrote: ten draws of 0.1 are 1."""
    return Decimal(repr(number))


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
