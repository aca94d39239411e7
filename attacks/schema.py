"""The bases of what an attack is given and what it finds: settings with ranges, and findings of the audit document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from treetap.errors import BadInput
from treetap.strict import Part
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


@dataclass(frozen=True)
class DrawingSettings(RangedSettings):
    """The base of settings of attacks that know some labels.

    Attributes:
        known: labels that the party is assumed to know.
        draws: draws of these records, over which figures are averaged.
        most_records: records that an attack uses at most; which ones is drawn.
        seed: number that all draws follow from.
    """

    RANGES: ClassVar = {
        "known": Range(1, 1_000_000, integer=True),
        "draws": Range(1, 100, integer=True),
        "most_records": Range(10, 1_000_000, integer=True),
        "seed": Range(0, 2**31 - 1, integer=True),
    }

    known: int = 40
    draws: int = 5
    most_records: int = 10_000
    seed: int = 0


Count = Annotated[int, Field(ge=0)]


class Findings(Part):
    """A part of the document.

    `OMITTED`: fields that stay out of the JSON object where they are None, since other jobs do not have them.
    """

    OMITTED: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_omitted(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = plain(self)
        return {key: value for key, value in content.items() if value is not None or key not in self.OMITTED}

    def plain(self) -> dict[str, Any]:
        """The part as JSON types, under the names of the JSON object."""
        return self.model_dump(mode="json", by_alias=True)
