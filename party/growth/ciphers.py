"""Ciphers of records' values, and of their sums, by a job's scheme: a protocol has sums of its own with a key pair, all
share a lattice's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from google.protobuf.message import Message

from treetap.arrays import Ints
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.growth.feature_party_job import FeaturePartyJob, SummedValues
from treetap.party.growth.offered_candidates import Offer
from treetap.party.runtime.context import Rows, StepContext
from treetap.party.setup.steps import JobKeys
from treetap.protocols.growth import TreeSizes
from treetap.protocols.key_options import KeyKind
from treetap.trees.growing_tree import GrowingTree
from treetap.wire.v2 import setup_pb2

if TYPE_CHECKING:
    from treetap.party.growth.lattice_values import WordsOfNodes

#: Encrypts for one attempt at a job, by its scheme; both have the same methods.
EncryptedValues: TypeAlias = "OneForEachRecord | WordsOfNodes"


class OneForEachRecord(JobKeys):
    """One ciphertext for each record, of each tree or, where its values are equal in all, of an attempt (`shared`)."""

    def __init__(
        self,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        sizes: Callable[[], TreeSizes],
        kind: str,
        body: Callable[..., Message],
        *,
        shared: bool,
    ) -> None:
        """`sizes`: the job's. `kind`, `body`: of the messages."""
        super().__init__(context, spec)
        self._sizes, self._kind, self._body, self._shared = sizes, kind, body, shared

    async def share(self, values: Ints) -> None:
        """Send the feature parties what of these values (N, S), one draw of each record, serves all trees."""
        await self.stream(values, self._kind, self._body, list(self._spec.feature_parties))

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        """Send `parties` the values (N, S) of the records `rows` for the root of tree `t`."""
        if not self._shared:
            await self.stream(values[rows], self._kind, self._body, parties, t)

    async def next_stage(self, t: int, stage: int, growing: GrowingTree) -> None:
        """Send nothing: the root's ciphertexts serve all nodes."""

    async def open_offer(self, offer: Offer) -> Ints:
        """The sums (sums, S) of an offer; `Malformed` if it is none.

        Sums over all records come behind those over the drawn ones, and are in further slots.
        """
        times = self._sizes().sums_of_each
        return np.concatenate(np.split(await self.open(offer.ciphertexts, times * offer.sums), times), axis=1)


def encrypted_values(
    context: StepContext,
    spec: setup_pb2.JobSpec,
    sizes: Callable[[], TreeSizes],
    trees: Callable[[], int],
    kind: str,
    body: Callable[..., Message],
    *,
    shared: bool = False,
    once: bool = False,
) -> EncryptedValues:
    """By the job's scheme.

    `sizes`: the job's; `trees`: the most of an attempt. `kind`, `body`, `shared`: see `OneForEachRecord`. `once`: see
    `WordsOfNodes`.
    """
    if not KeyKind.of(spec).on_lattice:
        return OneForEachRecord(context, spec, sizes, kind, body, shared=shared)
    from treetap.party.growth.lattice_values import WordsOfNodes  # with its kernels, which most jobs do without

    return WordsOfNodes(context, spec, sizes, trees, once=once)


def summed_values(
    ciphertexts: Callable[[StepContext, setup_pb2.JobSpec, FeaturePartyJob, ColumnNoise], SummedValues],
    context: StepContext,
    spec: setup_pb2.JobSpec,
    job: FeaturePartyJob,
    noise: ColumnNoise,
    *,
    once: bool = False,
) -> SummedValues:
    """By the job's scheme. `ciphertexts`: makes the protocol's sums with a key pair. `once`: see `SumsOfWords`."""
    if not KeyKind.of(spec).on_lattice:
        return ciphertexts(context, spec, job, noise)
    from treetap.party.growth.lattice_sums import SumsOfWords  # with its kernels, which most jobs do without

    return SumsOfWords(context, spec, job, noise, once=once)
