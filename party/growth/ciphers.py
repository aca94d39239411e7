"""Ciphers of records' values, and of their sums, by a job's scheme: a protocol has sums of its own with a key pair, all
share a lattice's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from google.protobuf.message import Message

from treetap.arrays import Ints
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.growth.feature_party_job import FeaturePartyJob, SummedValues
from treetap.party.growth.offered_candidates import Offer
from treetap.party.runtime.context import Rows, StepContext
from treetap.party.setup.steps import JobKeys
from treetap.process.together import together
from treetap.protocols.growth import TreeSizes, sums_shared
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import aligned_apart
from treetap.tables.labels import Labels
from treetap.trees.slots import Slots
from treetap.wire.v2 import setup_pb2

if TYPE_CHECKING:
    from treetap.party.growth.lattice_values import WordsOfNodes

#: Encrypts for one attempt at a job, by its scheme; both have the same methods.
EncryptedValues: TypeAlias = "OneForEachRecord | WordsOfNodes | ApartValues"


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

    async def next_stage(self, t: int, stage: int, nodes: Mapping[int, Rows]) -> None:
        """Send nothing: the root's ciphertexts serve all nodes."""

    async def open_offer(self, offer: Offer) -> Ints:
        """The sums (sums, S) of an offer; `Malformed` if it is none.

        Sums over all records come behind those over the drawn ones, and are in further slots.
        """
        times = self._sizes().sums_of_each
        return np.concatenate(np.split(await self.open(offer.ciphertexts, times * offer.sums), times), axis=1)


class ApartValues:
    """Values for each feature party apart, of the job's records that it has: under a key or secrets of its own."""

    def __init__(
        self,
        make: Callable[[setup_pb2.JobSpec, Callable[[], TreeSizes]], OneForEachRecord | WordsOfNodes],
        spec: setup_pb2.JobSpec,
        sizes: Callable[[], TreeSizes],
        common: Callable[[], Mapping[str, PartnerRecords]],
        slots: Callable[[str], Slots],
    ) -> None:
        """`make`: those of a job with one feature party, whose sizes it is given.

        `sizes`: the job's. `common`: see `LabelHolderJob`. `slots`: the layout of the values for a feature party.
        """
        self._job_sizes, self._common, self._slots, self._shared = sizes, common, slots, sums_shared(spec)
        self.counts = False  #: see `WordsOfNodes`, as `slots` and `parameters` of shared sums
        self._sizes: dict[str, TreeSizes] = {}
        self._parts: dict[str, OneForEachRecord | WordsOfNodes] = {}
        for party in spec.feature_parties:
            of_party = setup_pb2.JobSpec()
            of_party.CopyFrom(spec)
            of_party.feature_parties[:] = [party]
            self._parts[party] = make(of_party, partial(self._sizes_with, party))

    def fit(self, slots: Slots, labels: Labels, remedy: str) -> None:
        """See `WordsOfNodes.fit`; a party's own records need no more."""
        next(iter(self._parts.values())).fit(slots, labels, remedy)

    async def make(self, slots: Slots, *, label_slots: int = 0, own_rounds: int = 0) -> setup_pb2.PlannedTraffic | None:
        """See `WordsOfNodes.make`; the traffic is that with all feature parties. Sizes of shared sums are alike."""
        whole, planned = self._job_sizes(), setup_pb2.PlannedTraffic()
        alike: dict[str, Any] = {}
        if self._shared:
            counts = {party: (await part.heard())[party] for party, part in self._parts.items()}  # type: ignore[union-attr] # a lattice's
            alike = {"counts": counts, "records": whole.records}
        for party, part in self._parts.items():
            sizes = self._sizes[party] = replace(whole, records=len(self._common()[party]), announced={}, words=0)
            own = slots if self._shared else self._slots(party)
            made = await part.make(own, label_slots=label_slots, own_rounds=own_rounds, **alike)
            if self._shared:
                self.counts, self.slots, self.parameters = part.counts, part.slots, part.parameters  # type: ignore[union-attr]
            whole.announced = whole.announced | sizes.announced
            whole.words = max(whole.words, sizes.words)
            if made is not None:
                planned.words += made.words
                planned.sums += made.sums
                planned.mib += made.mib
        return planned if whole.words else None

    async def share(self, values: Ints) -> None:
        """See `WordsOfNodes.share`."""
        parts = ((part, self._common()[party].below(len(values))) for party, part in self._parts.items())
        await together(*(part.share(values[places]) for part, places in parts))

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        """See `WordsOfNodes.begin`."""
        parts = ((party, self._common()[party]) for party in parties)
        await together(
            *(
                self._parts[party].begin(t, values[common.below(len(values))], common.of(rows), [party])
                for party, common in parts
            )
        )

    async def next_stage(self, t: int, stage: int, nodes: Mapping[int, Rows]) -> None:
        """See `WordsOfNodes.next_stage`."""
        for party, part in self._parts.items():
            common = self._common()[party]
            await part.next_stage(t, stage, {node: common.of(rows) for node, rows in nodes.items()})

    async def open_offer(self, offer: Offer) -> Ints:
        """See `WordsOfNodes.open_offer`."""
        return await self._parts[offer.party].open_offer(offer)

    def _sizes_with(self, party: str) -> TreeSizes:
        return self._sizes.get(party, self._job_sizes())


def encrypted_values(
    context: StepContext,
    spec: setup_pb2.JobSpec,
    sizes: Callable[[], TreeSizes],
    trees: Callable[[], int],
    kind: str,
    body: Callable[..., Message],
    *,
    common: Callable[[], Mapping[str, PartnerRecords]],
    slots: Callable[[str], Slots],
    shared: bool = False,
    once: bool = False,
) -> EncryptedValues:
    """By the job's scheme, and for each feature party apart where its records differ from the others'.

    `sizes`: the job's; `trees`: the most of an attempt. `kind`, `body`, `shared`: see `OneForEachRecord`. `once`: see
    `WordsOfNodes`. `common`, `slots`: see `ApartValues`.
    """

    def make(of: setup_pb2.JobSpec, its: Callable[[], TreeSizes]) -> OneForEachRecord | WordsOfNodes:
        if not KeyKind.of(spec).on_lattice:
            return OneForEachRecord(context, of, its, kind, body, shared=shared)
        from treetap.party.growth.lattice_values import WordsOfNodes  # with its kernels, which most jobs do without

        return WordsOfNodes(context, of, its, trees, once=once)

    return ApartValues(make, spec, sizes, common, slots) if aligned_apart(spec) else make(spec, sizes)


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
