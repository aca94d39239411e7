"""The trainings of a frontier: a defence with its settings, once per seed, each giving one or several points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from party.defences.settings import Defences

NO_DEFENCE = "none"
#: The four models of one job with label DP: trees on noisy labels, repaired or not, with or without clean weights.
LABEL_DP_VARIANTS = ("label_dp", "label_dp + refit", "grafting", "grafting + refit")


@dataclass(frozen=True)
class Plan:
    """A defence that is trained.

    `name`: the key in a party's table `[defences]`, or "none". `size`: the parameter that a frontier sweeps.
    """

    name: str
    defences: Defences
    size: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The defence's own settings, by the keys that a party's file has."""
        found: dict[str, Any] = {} if self.size is None else getattr(self.defences, self.name).model_dump()
        return found

    @property
    def points(self) -> tuple[str, ...]:
        """The defences whose points one training gives."""
        return LABEL_DP_VARIANTS if self.defences.private_values else (self.name,)

    @property
    def word(self) -> str:
        """A name for files and progress, another one for each plan."""
        repaired = ["repaired"] if self.defences.private_values else []
        return "-".join([self.name, *map(str, self.settings.values()), *repaired])


@dataclass(frozen=True)
class Training:
    """A plan with a seed of the data."""

    plan: Plan
    seed: int

    @property
    def asked(self) -> dict[str, Any]:
        """The identity of a training among those of one folder, as plain JSON types."""
        return {"defences": self.plan.defences.model_dump(exclude_defaults=True), "seed": self.seed}

    @property
    def word(self) -> str:
        """A name for files and progress."""
        return f"{self.plan.word}-seed-{self.seed}"
