"""What earlier versions had and this one has not: one table, a row each, from which every refusal of one is made.

`where` is the name of the schema that had the key (`treetap.strict`), `COMMANDS` for a word of the command line, or
`STATE` for a file of a party's state folder. A value that is no longer known is named as `key = 'value'`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from treetap.errors import ConfigError

COMMANDS, STATE = "commands", "state folder"
#: The last commit that reads what this version refuses.
LAST = "11ce4873"


class Removed(NamedTuple):
    """A row: `name` of `where` was taken out; `instead`: what a person does now, in the imperative."""

    where: str
    name: str
    instead: str

    def __str__(self) -> str:
        return f"was taken out: {self.instead}"


REMOVED: tuple[Removed, ...] = (
    Removed("WorkerSettings", "key_workers", "write workers = N of processes here, and [cluster] workers = N of Ray's"),
    Removed("Policy", "cluster_holds_key", "leave it out: no key goes to a cluster, which sums ciphertexts alone"),
    Removed("PartyTable", "cluster_holds_key", "leave it out: no key goes to a cluster, which sums ciphertexts alone"),
)


def removed(where: Iterable[str], name: str) -> Removed | None:
    """The row of a name at one of these places; None where it has none."""
    places = set(where)
    return next((row for row in REMOVED if row.name == name and row.where in places), None)


def check_state(folder: Path) -> None:
    """Raise `ConfigError` if a party's state folder holds a file that this version neither reads nor writes."""
    for row in REMOVED:
        if row.where == STATE and (found := next(folder.glob(row.name), None)) is not None:
            raise ConfigError(f"{found}: {row}")
