"""The budget of a party's labels: what draws of noisy ones have cost, by the party's ledger, and what may be spent.

A draw adds its ε, whatever table or model it is for: by basic composition all that was ever computed from noisy labels
is Σ ε-differentially private in the label of each record. So does the noise of leaf weights that this party has drawn
for a job of PIVODL, whosever labels they follow from. A charge is on disk before the labels are. A crash between
the two charges for labels that no party has seen; nothing is used that was not charged.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

from treetap.errors import DataError, Refused
from treetap.party.runtime.job_store import DRAWS
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of


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
