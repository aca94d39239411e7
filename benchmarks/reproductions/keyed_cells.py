"""Cells of a reproduction: what is trained and measured, by the name that it has in the file of results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar


@dataclass(frozen=True)
class KeyedCell:
    """One training of a set with a seed; what else a cell has stands in its subclass, with defaults."""

    set: str
    seed: int

    def key(self) -> dict[str, Any]:
        """The cell as it stands in the file of results: what differs from the defaults."""
        usual = asdict(type(self)(self.set, self.seed))
        changed = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return {"set": self.set, "seed": self.seed, **changed}

    def name(self) -> str:
        """A few words for the line of progress."""
        return ", ".join(f"{name} {value}" for name, value in self.key().items())


@dataclass(frozen=True)
class KeyedScale:
    """Changes of all cells for a trial: `most` records of each part, `epochs` in the place of those of the set."""

    most: int | None = None
    epochs: int | None = None

    def key(self) -> dict[str, Any]:
        """The keys that it adds to a cell in the file of results."""
        return {name: value for name, value in vars(self).items() if value}


AnyCell = TypeVar("AnyCell", bound=KeyedCell)


def unique(cells: Iterable[AnyCell]) -> list[AnyCell]:
    """Each cell once, in order."""
    return list(dict.fromkeys(cells))
