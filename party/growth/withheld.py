"""Trees whose feature parties get no set of records (`instance_spaces = "withheld"`), under a lattice alone.

A node's records have words of values there, all others words of zeros: a feature party sums the words of all, and need
not know which are which. It learns which of its candidates won at which node. Of a split that it wins it tells the
label holder the left records among all N; the label holder takes those of the node. So it knows the records of a node
only if all splits above are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from treetap.models.kept import SPACES
from treetap.party.growth.feature_party import Bools, OwnTree
from treetap.party.growth.rule import Rule
from treetap.party.growth.shown_spaces import ShownSpaces
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.messages import CountedBody, Rows
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.params import TreeParams
from treetap.wire.v2 import setup_pb2


def mode_of(params: TreeParams, base: Mapping[str, Any] | None) -> dict[str, str]:
    """The entry of a model's manifest: of a training, or of the base model (its manifest) from which it continued."""
    withheld = params.withheld or bool(base and base.get(SPACES))
    return {SPACES: "withheld"} if withheld else {}


class NoSpaces(ShownSpaces):
    """The label holder's account of what feature parties know of the records by their own splits; it sends no set."""

    of_all = True

    async def show_draw(self, t: int, parties: list[str], bodies: Callable[[], Iterable[CountedBody]]) -> None:
        """Send nothing."""

    def _known(self, number: int, growing: GrowingTree) -> list[int]:
        return growing.known_without_relay(number)

    async def _send(self, parties: list[str], t: int, stage: int, growing: GrowingTree, training: int) -> None:
        """Send nothing."""


def spaces_of(context: StepContext, spec: setup_pb2.JobSpec, params: TreeParams, rules: Sequence[Rule]) -> ShownSpaces:
    """What the label holder shows of records by the job's parameters."""
    return (NoSpaces if params.withheld else ShownSpaces)(context, spec, rules)


class BlindTree(OwnTree):
    """A tree under construction at a feature party that knows no instance space: it answers for all records."""

    takes_spaces = False

    def rows_of(self, node: int) -> Rows:
        """All records."""
        del node
        return self.rows[ROOT]

    def rows_of_won(self, node: int) -> Rows:
        """All records; `Malformed` as for a tree whose records are shown."""
        return super().rows_of_won(node)

    def check_sides(self, node: int, sides: Sequence[Rows]) -> None:
        """Check nothing: the party does not know which records are the node's."""

    def _is_split(self, node: int) -> bool:
        return node in {split.node for split in self.splits}

    def divide(self, node: int, left: Rows) -> tuple[Rows, Rows]:
        """Those of all records that go left, and the others."""
        del node
        return left, np.flatnonzero(~self._mask(left))

    def held(self, left: Rows) -> Callable[[], Rows]:
        """Of many splits each set may have all records: a bit is held for each."""
        bits, total = np.packbits(self._mask(left)), self.total
        return lambda: np.flatnonzero(np.unpackbits(bits, count=total))

    def _mask(self, rows: Rows) -> Bools:
        mask = np.zeros(self.total, dtype=bool)
        mask[rows] = True
        return mask
