"""The values of a tree's records at the label holder, encrypted for the feature parties to sum, and the sums opened.

With a key pair every drawn record has one ciphertext for all nodes of a tree. On a lattice
(`party.boosting.lattice_values`) each node has words of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from party.growth.offered_candidates import Offer
from party.runtime.context import StepContext
from party.runtime.messages import Rows
from party.setup.keys import JobKeys, KeyMaker, fitting
from treetap.additive.sums.slots import Slots
from treetap.protocols.growth import TreeSizes
from treetap.protocols.key_options import KeyKind
from treetap.tables.labels import Labels
from treetap.trees.growing_tree import GrowingTree, Ints
from treetap.wire.v2 import boosting_pb2, setup_pb2


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


def encrypted_values(
    context: StepContext, spec: setup_pb2.JobSpec, sizes: Callable[[], TreeSizes], queries: Callable[[], int]
) -> EncryptedValues:
    """By the job's scheme. `sizes`: the job's; `queries`: the most nodes of an attempt that are built."""
    if not KeyKind.of(spec).on_lattice:
        return _Ciphertexts(context, spec)
    from party.boosting.lattice_values import WordsOfNodes  # with its kernels, which most jobs do without

    return WordsOfNodes(context, spec, sizes, queries)


class _Ciphertexts(JobKeys):
    """One ciphertext for each record of a tree."""

    def fit(self, slots: Slots, labels: Labels, remedy: str) -> None:
        fitting(slots, labels, KeyKind.of(self._spec), remedy)

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        await self.stream(values[rows], "gradients", boosting_pb2.Gradients, parties, t)

    async def next_stage(self, t: int, stage: int, growing: GrowingTree) -> None:
        del t, stage, growing  # the root's ciphertexts serve all nodes

    async def open_offer(self, offer: Offer) -> Ints:
        return await self.open(offer.ciphertexts, offer.sums)
