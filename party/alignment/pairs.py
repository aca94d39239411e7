"""The alignment of a label holder with each feature party apart (docs/alignment.md): its own records are the job's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np

from treetap.party.alignment.lists import own_steps
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.alignment.steps import Alignment, CommonRecords
from treetap.party.runtime.context import Rows, StepContext
from treetap.party.runtime.step_order import step
from treetap.process.together import together
from treetap.protocols.alignment import turns
from treetap.protocols.messages import JobSizes
from treetap.psi.lists import permutation
from treetap.tables.record_ids import Ids
from treetap.tables.source import Origin
from treetap.wire.v2 import alignment_pb2, control_pb2


def alignment_of(
    context: StepContext,
    mode: str,
    rule: CommonRecords,
    sizes: JobSizes,
    then: Callable[[], Awaitable[None]] | None = None,
) -> Alignment:
    """A party's part in an alignment, by the join of the job; see `Alignment`."""
    apart = sizes.members.pairwise and context.party == sizes.members.aggregator
    return (Pairs if apart else Alignment)(context, mode, rule, sizes, then)


class Pairs(Alignment):
    """The label holder's part where its own records are the job's: an alignment with each feature party apart.

    Each has exponents of its own, so that feature parties learn nothing of each other's records. The order of the
    records is one that the label holder draws.
    """

    def __init__(
        self,
        context: StepContext,
        mode: str,
        rule: CommonRecords,
        sizes: JobSizes,
        then: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(context, mode, rule, sizes, then)
        self._parts = {
            party: Alignment(context, mode, rule, replace(sizes, lists={}), partner=party)
            for party in sizes.members.feature_parties
        }
        self.sequence, self._whose = own_steps(turns(len(self._members), pairwise=True), 0), "the job's"

    def begin(self, ids: Ids, rows: Rows, path: Origin, *, keep: bool, training: int | None = None) -> int:
        """As of one alignment; the attempt is one that aligned all."""
        attempts = {part.begin(ids, rows, path, keep=keep, training=training) for part in self._parts.values()}
        attempts.add(super().begin(ids, rows, path, keep=keep, training=training))
        return attempts.pop() if len(attempts) == 1 else 0

    def common_with(self, party: str, ways: int = 1) -> PartnerRecords:
        """See `Alignment.common_with`."""
        places = np.empty(len(self.records), dtype=np.int64)
        places[self.records] = np.arange(len(self.records))
        return PartnerRecords(len(places), places[self._parts[party].records], ways)

    def listed(self, party: str) -> int:
        """See `Alignment.listed`."""
        return self._parts[party].listed(party)

    @step()
    async def blind_ids(self) -> None:
        """Blind the ids for every feature party, each time by another exponent and in another order."""
        for part in self._parts.values():
            await part.blind_ids()

    @step()
    async def pass_ids(self, request: control_pb2.StepRequest) -> None:
        """Exchange lists with all feature parties."""
        await together(*(part.pass_ids(request) for part in self._parts.values()))

    @step()
    async def raise_ids(self, request: control_pb2.StepRequest) -> None:
        """Raise the list of each feature party."""
        for part in self._parts.values():
            await part.raise_ids(request)

    @step()
    async def prove_ids(self) -> None:
        """Prove the lists of those who ask."""
        for part in self._parts.values():
            await part.prove_ids()

    @step()
    async def match_ids(self) -> None:
        """Find the records that each feature party has."""
        for part in self._parts.values():
            await part.match_ids()

    @step()
    async def agree_ids(self) -> alignment_pb2.AgreedIds:
        """Check that each feature party has found the same; draw the order of all own records, an eval table's last."""
        *_, answer = [await part.agree_ids() for part in self._parts.values()]
        if not answer.another_key:
            await self._agreed(permutation(len(self._own)))
        return answer
