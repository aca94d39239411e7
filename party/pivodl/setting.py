"""The knowledge that every party of a PIVODL job has, as its steps bring it, and how it sends to the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf.message import Message

from party.pivodl.growing_tree import GrowingTree
from party.runtime.context import StepContext, required
from party.runtime.messages import Body
from treetap.additive.sums.slots import Slots, width_for
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.trees.loss import loss_for
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.role_draws import RoleDraws
from treetap.trees.shared_label_loss import SharedLabelLoss
from treetap.wire.frame import content_of
from treetap.wire.v2 import setup_pb2

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
#: Fewest labelled records with which a party adds a share to the training's metrics.
LEAST_MEASURED = 10


@dataclass
class Setting:
    """One job at one party.

    Attributes:
        parties: all parties, in the order of the job, which is the order of ties.
        records: the number of common records, N; 0 before they are known.
        ownership: party → the records that it labels; empty before they are shared.
        knows_scales: False where one party has all labels, and has not told this one their mean and spread.
    """

    context: StepContext
    spec: setup_pb2.JobSpec
    params: PivodlParams
    parties: list[str] = field(default_factory=list)
    records: int = 0
    ownership: dict[str, Rows] = field(default_factory=dict)
    knows_scales: bool = True
    _draws: RoleDraws | None = None
    _loss: SharedLabelLoss | None = None
    _tree: GrowingTree | None = None

    def __post_init__(self) -> None:
        self.parties = [self.spec.aggregator, *self.spec.feature_parties]

    @property
    def me(self) -> str:
        """This party."""
        return self.context.party

    @property
    def others(self) -> list[str]:
        """All parties but this one."""
        return [party for party in self.parties if party != self.me]

    @property
    def owners(self) -> list[str]:
        """The parties that label some records."""
        return [party for party in self.parties if len(self.ownership[party])]

    @property
    def measured(self) -> list[str]:
        """The parties with labels enough for a share of the training's metrics; none if there is only one."""
        found = [party for party in self.parties if len(self.ownership[party]) >= LEAST_MEASURED]
        return found if len(found) > 1 else []

    @property
    def draws(self) -> RoleDraws:
        """The draws of parties, once all nonces are open."""
        return required(self._draws)

    @draws.setter
    def draws(self, draws: RoleDraws) -> None:
        self._draws = draws

    @property
    def loss(self) -> SharedLabelLoss:
        """The loss, once its scales are known."""
        return required(self._loss)

    @loss.setter
    def loss(self, loss: SharedLabelLoss) -> None:
        self._loss = loss

    @property
    def tree(self) -> GrowingTree:
        """The tree under construction."""
        return required(self._tree)

    @tree.setter
    def tree(self, tree: GrowingTree | None) -> None:
        self._tree = tree

    def slots(self) -> Slots:
        """The layout of one candidate's sums in a plaintext: g of each output, then h."""
        return slots_of(self.params, self.records)

    def split_party(self, node: int, source: str) -> str | None:
        """The party that opens a source's candidates at a node of the tree under construction; None if no party may."""
        barred = self.tree.barred(node) if self.params.split_draws == "guarded" else frozenset[str]()
        return self.draws.split_party(self.tree.index, node, source, barred)

    def split_parties(self, node: int) -> list[str]:
        """All parties that open candidates of some source at a node, in the order of the job."""
        drawn = {self.split_party(node, source) for source in self.parties}
        return [party for party in self.parties if party in drawn]

    async def broadcast(self, kind: str, bodies: Iterable[Body], t: int = 0, stage: int = 0) -> None:
        """Send the same series to every other party."""
        content = list(bodies)
        send = self.context.outbox.send
        await together(*(send(party, kind, content, round=t, stage=stage) for party in self.others))

    async def received(self, sender: str, kind: str, t: int = 0, stage: int = 0) -> AsyncIterator[Any]:
        """The contents of a series, in order."""
        async for message in self.context.mailbox.series(sender, kind, t, stage):
            yield content_of(message, kind)

    async def received_once(self, sender: str, kind: str, t: int = 0, stage: int = 0) -> Any:
        """The content of a series of one message."""
        found: list[Message] = [content async for content in self.received(sender, kind, t, stage)]
        if len(found) != 1:
            raise Malformed(f"{sender} sent {len(found)} messages of {kind}, not one")
        return found[0]


def slots_of(params: PivodlParams, records: int) -> Slots:
    """The layout g_0.., h_0.., each wide enough for the sum over all records.

    Raises:
        PlaintextOverflow: such sums need wider slots than there are.
    """
    g_most, h_most = loss_for(params.objective, 2).bounds()  # the same for any number of classes
    return Slots((width_for(records, g_most),) * params.width + (width_for(records, h_most),) * params.width)
