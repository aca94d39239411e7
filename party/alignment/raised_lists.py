"""Lists of blinded identifiers that parties raise, shuffle and pass on: the steps that an alignment and a count share.

Between two turns a party keeps its lists in files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treetap.party.alignment.lists import BlindedLists
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.messages import Rows
from treetap.party.runtime.step_order import StepId, step
from treetap.process.together import together
from treetap.protocols.alignment import Plan
from treetap.protocols.messages import JobSizes
from treetap.psi.group import Exponent
from treetap.psi.lists import PointList, permutation
from treetap.psi.proof import Sums
from treetap.tables.record_ids import Ids
from treetap.wire.v2 import control_pb2


def own_steps(plan: Plan, place: int) -> list[StepId]:
    """The steps of the party at a place, in order."""
    return [(turn.step, 0, turn.stage) for turn in plan if place in turn.places]


class RaisedLists:
    """One party's lists, for one attempt at a job; the phase `ALIGNMENT` of a role's steps.

    Attributes:
        sequence: the party's own steps.
    """

    def __init__(self, context: StepContext, plan: Plan, sizes: JobSizes) -> None:
        """`sizes`: of the role's job."""
        self._context, self._members, self._sizes = context, list(sizes.members.parties), sizes
        self._place = self._members.index(context.party)
        self._turns = [turn for turn in plan if self._place in turn.places]
        self.sequence: Sequence[StepId] = own_steps(plan, self._place)
        self._ids = Ids.of([])
        self._shuffle: Rows = np.zeros(0, dtype=np.int64)
        self._held: list[PointList] = []  # between two turns
        self._common: PointList | None = None  # kept beside these, once it is known
        self._sums: Sums | None = None  # of the own list, for a proof of its return
        self._exponent = Exponent.draw()
        self._lists = BlindedLists(context, plan, sizes)

    @step()
    async def blind_ids(self) -> None:
        """Hash the party's own ids to the group and raise them, in a random order that the party keeps."""
        self._shuffle = await self._context.offload(lambda: permutation(len(self._ids)))
        self._hold(await self._lists.blinded(self._ids, self._shuffle, self._exponent, self._sums))

    @step()
    async def pass_ids(self, request: control_pb2.StepRequest) -> None:
        """Send the lists held to the next parties of the turn's routes, and receive theirs."""
        turn = next(turn for turn in self._turns if turn.stage == request.stage)
        me = self._place
        to = [self._members[there] for here, there in turn.routes if here == me != there]
        senders = [here for here, there in turn.routes if there == me != here]
        points = self._held[0] if self._held else None
        sending = (self._lists.send(party, points, turn.stage) for party in to)
        taken, *_ = await together(self._lists.take_all(senders, turn.stage), *sending)
        self._hold(*(self._held if (me, me) in turn.routes else []), *taken)

    @step()
    async def relay_ids(self) -> None:
        """Raise the received list and shuffle it.

        A list that has a point twice is refused: its owner could tell such a point from the others wherever it returns.
        """
        (points,) = self._held
        raised = await self._lists.raised(points, self._exponent)
        await self._lists.check_distinct(raised)
        self._hold(await self._lists.shuffled(raised))

    def _hold(self, *lists: PointList) -> None:
        """Hold these lists; delete those that were held before, unless they are among them or kept beside them."""
        for points in self._held:
            if points not in (self._common, *lists):
                points.close()
        self._held = list(lists)
