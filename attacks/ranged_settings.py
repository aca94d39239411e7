"""Settings of a group of attacks: numbers with ranges, checked when they are made or read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from treetap.errors import BadInput
from treetap.trees.job_params import Range, out_of_range


@dataclass(frozen=True)
class RangedSettings:
    """The base of settings whose fields have `RANGES`; `ATTACKS` names their attacks in errors.

    Raises:
        BadInput: on construction; names every wrong field and its range.
    """

    ATTACKS: ClassVar[str]
    RANGES: ClassVar[dict[str, Range]]

    def __post_init__(self) -> None:
        if wrong := out_of_range(self, self.RANGES):
            raise BadInput(f"settings of {self.ATTACKS}: " + "; ".join(wrong))

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Read settings from a mapping. Raises BadInput naming every unknown or wrong field."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(given) - set(known)):
            raise BadInput(f"settings of {cls.ATTACKS}: unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return cls(**given)
