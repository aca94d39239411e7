"""Settings of a group of attacks: numbers with ranges and words of a choice, checked when they are made or read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from treetap.errors import BadInput
from treetap.trees.job_params import Range, not_a_choice, out_of_range


@dataclass(frozen=True)
class RangedSettings:
    """The base of settings whose fields have `RANGES` or `CHOICES`; `ATTACKS` names their attacks in errors.

    Raises:
        BadInput: on construction; names every wrong field and its range.
    """

    ATTACKS: ClassVar[str]
    RANGES: ClassVar[dict[str, Range]]
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __post_init__(self) -> None:
        if wrong := self.faults():
            raise BadInput(f"settings of {self.ATTACKS}: " + "; ".join(wrong))

    def faults(self) -> list[str]:
        """The faults of all fields."""
        return [*out_of_range(self, self.RANGES), *not_a_choice(self, self.CHOICES)]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Read settings from a mapping. Raises BadInput naming every unknown or wrong field."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(given) - set(known)):
            raise BadInput(f"settings of {cls.ATTACKS}: unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return cls(**given)

    def of(self, *names: str) -> dict[str, Any]:
        """The settings with these names, for the parameters of a result."""
        every = asdict(self)
        return {name: every[name] for name in names}
