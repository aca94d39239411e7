"""What earlier versions had and this one has not: one table, a row each, from which every refusal of one is made.

`where` is the name of the schema that had the key (`treetap.strict`), `COMMANDS` for a word of the command line,
`STATE` for a file of a party's state folder, or `MODEL` for an entry of the manifest of a model, from which no training
continues. A value that is no longer known is named as `key = 'value'`, also of a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from treetap.errors import ConfigError

COMMANDS, STATE, MODEL = "commands", "state folder", "model"
#: The last commit that reads what this version refuses.
LAST = "11ce4873"


class Removed(NamedTuple):
    """A row: `name` of `where` was taken out; `instead`: what a person does now, in the imperative."""

    where: str
    name: str
    instead: str

    def __str__(self) -> str:
        return f"was taken out: {self.instead}"


_ATTACK = "leave it out; benchmarks/crafted_gradients.py has the attack, and an audit finds it in a transcript"
REMOVED: tuple[Removed, ...] = (
    Removed("JobOptions", "scheme = 'okamoto-uchiyama'", "write 'paillier', or 'lattice', which is many times as fast"),
    Removed("Policy", "schemes = 'okamoto-uchiyama'", "write 'paillier' or 'lattice' in its place"),
    Removed("Policy", "require_key_proofs", "leave it out: every key of Paillier's has a proof, and a lattice no key"),
    Removed("Parameters", "gradient_bits", "leave it out: sums are exact"),
    Removed("Policy", "max_gradient_bits", "leave it out; a feature party's column_privacy bounds what sums tell"),
    Removed(MODEL, "scheme = 'okamoto-uchiyama'", "continue from a model that was trained under another"),
    Removed(MODEL, "gradient_bits", "continue from a model that was trained without it"),
    Removed("PartyConfig", "gradients", _ATTACK),
    Removed("PartyTable", "gradients", _ATTACK),
    Removed(MODEL, "reverse_sum", "continue from a model whose gradients marked no records"),
)


def removed(where: Iterable[str], name: str) -> Removed | None:
    """The row of a name at one of these places; None where it has none."""
    places = set(where)
    return next((row for row in REMOVED if row.name == name and row.where in places), None)


def check_state(folder: Path) -> None:
    """Raise `ConfigError` if a party's state folder holds a file that this version neither reads nor writes."""
    for row in REMOVED:
        if row.where == STATE and (file := next(folder.glob(row.name), None)) is not None:
            raise ConfigError(f"{file}: {row}")
