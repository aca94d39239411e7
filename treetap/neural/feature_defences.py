"""Defences of a feature party's columns in a split network: what it changes in its own steps; no torch here."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.errors import BadInput

#: The readings of the norm in Equation 9 of the paper on SensFL.
RECORD, BATCH = "record", "batch"
SENSITIVITY_NORMS = (RECORD, BATCH)


@dataclass(frozen=True)
class DpSgd:
    """DP-SGD (Abadi et al. 2016, Algorithm 1).

    Attributes:
        clip: C, the largest norm of one record's gradient in all weights of the party's own model.
        noise: σ, the deviation of the noise on the sum of a batch's clipped gradients, in units of C.
    """

    clip: float
    noise: float


@dataclass(frozen=True)
class FeatureDefences:
    """Defences of one feature party.

    Attributes:
        sensitivity: ε of SensFL (Equation 8): ε·J is added to the loss of the party's own step; 0: none.
        sensitivity_norm: J (Equation 9) as the mean over the records of a batch of ‖∂e/∂x‖_F ("record"), or the
            Frobenius norm of the batch's Jacobian ("batch"), which is about √B times larger.
        projections: random ones that estimate ‖∂e/∂x‖²; J is exact where width × inputs is small.
        dp_sgd: None without.

    Raises:
        BadInput: on construction; the norm is unknown, or both defences are on: the gradient of J has no noise.
    """

    sensitivity: float = 0.0
    sensitivity_norm: str = RECORD
    projections: int = 1
    dp_sgd: DpSgd | None = None

    def __post_init__(self) -> None:
        if self.sensitivity_norm not in SENSITIVITY_NORMS:
            raise BadInput(f"sensitivity_norm is {self.sensitivity_norm!r}: choose {' or '.join(SENSITIVITY_NORMS)}")
        if self.sensitivity and self.dp_sgd is not None:
            raise BadInput("sensitivity and dp_sgd do not go together: leave one of them out")
