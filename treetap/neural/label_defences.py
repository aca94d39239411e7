"""Settings of the changes of gradients by a label holder; without arithmetic, so that they need no library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GradientDefence:
    """A change of the gradients: see `treetap.neural.gradient_defences`.

    Attributes:
        kind: `noise`: Laplace noise. `compression`: only the largest numbers stay. `ppdl`: noise, and some
            numbers alone are sent (Shokri, Shmatikov 2015). `levels`: numbers rounded to levels (DiscreteSGD).
        scale: of the Laplace noise; not of compression.
        share: of compression the numbers that become 0; of ppdl those that may be sent.
        threshold: of ppdl: numbers whose size with noise is less than this with noise are not sent.
        levels: intervals into which two deviations on each side of 0 are divided.
    """

    kind: str
    scale: float = 0.0
    share: float = 0.0
    threshold: float = 0.0
    levels: int = 0


@dataclass(frozen=True)
class LabelDefences:
    """The defences of a job.

    Attributes:
        dimip: λ of DIMIP by feature party.
        gradient: applied last, to every party's gradients.
        random_labels: see `treetap.neural.dimip.Dimip`.
    """

    dimip: Mapping[str, float] = field(default_factory=dict)
    gradient: GradientDefence | None = None
    random_labels: bool = True
