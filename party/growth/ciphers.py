"""Interfaces of a tree's encryption at both roles: a protocol has its own with a key pair, all share a lattice's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from treetap.arrays import Ints
from treetap.party.growth.feature_party import OwnTree, Sums
from treetap.party.growth.offered_candidates import Offer
from treetap.party.growth.split_table import TreeColumns
from treetap.party.runtime.context import Rows
from treetap.party.setup.keys import KeyMaker
from treetap.tables.labels import Labels
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.slots import Slots


class EncryptedValues(KeyMaker, Protocol):
    """Encrypts for one attempt at a job."""

    def fit(self, slots: Slots, labels: Labels, remedy: str) -> None:
        """`BadInput` if plaintexts of this layout do not fit, whatever the feature parties have: see `fitting`."""
        ...

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        """Send `parties` the values (N, S) of the records `rows` for the root of tree `t`."""
        ...

    async def next_stage(self, t: int, stage: int, growing: GrowingTree) -> None:
        """Send the parties of the tree what they need for the nodes that are built at this stage."""
        ...

    async def open_offer(self, offer: Offer) -> Ints:
        """The sums (sums, S) of an offer; `Malformed` if it is none."""
        ...


class SharedValues(EncryptedValues, Protocol):
    """The same for trees that are grown on equal values of a record."""

    async def share(self, values: Ints) -> None:
        """Send the feature parties what of these values (N, S), one draw of each record, serves all trees."""
        ...


class SummedValues(Protocol):
    """Sums for one attempt at a job."""

    async def take_key(self) -> None:
        """Receive what the label holder encrypts with, as far as a feature party needs it."""
        ...

    async def begin(self, t: int, columns: TreeColumns, sampled: Rows) -> None:
        """Begin tree `t` over these records."""
        ...

    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> Sums | AsyncIterator[Sums]:
        """The left sums of every candidate of these nodes, in this party's secret order: at once or node by node."""
        ...

    async def drop(self) -> None:
        """Release the tree, if there is one."""
        ...

    async def close(self) -> None:
        """Release all that the workers hold."""
        ...


class SumsOfShared(SummedValues, Protocol):
    """The same for trees that are grown on equal values of a record."""

    async def take_shared(self) -> None:
        """Receive what serves all trees."""
        ...
