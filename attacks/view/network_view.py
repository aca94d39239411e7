"""A feature party's view of a split network: the gradients that it received, by record and epoch.

The order of the records in each batch follows from the seed of the job, which every party has, and which batches the
party sat out does too. The party's own log has the rows of its table that the common records are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from attacks.view.gradient_rows import GradientRows, Rows
from attacks.view.network_messages import GRADIENTS, NetworkMessages
from treetap.errors import DataError, Malformed
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.wire.v2 import splitnn_pb2


@dataclass(frozen=True)
class NetworkView:
    """The log of one feature party.

    `records`: N, the records common to all parties. `batches`: epoch → its batches of which the party has gradients.
    """

    party: str
    params: SplitnnParams
    records: int
    batches: dict[int, list[int]] = field(repr=False)
    messages: NetworkMessages = field(repr=False)

    @cached_property
    def schedule(self) -> Schedule:
        """Records of every batch. Raises Malformed where the job cannot have these records."""
        try:
            return Schedule.of(self.params, self.records)
        except DataError as fault:
            raise Malformed(f"{self.records} records: {fault}") from None

    @property
    def width(self) -> int:
        """Numbers of the party's embedding, hence of a gradient."""
        return self.params.bottom_of(self.party).width

    @property
    def epochs(self) -> list[int]:
        """The epochs of which the party has gradients, ascending."""
        return list(self.batches)

    def taken_part(self, epoch: int) -> list[int]:
        """The batches of an epoch that the party did not sit out."""
        every = range(self.schedule.batches)
        if not self.params.party_dropout.get(self.party):
            return list(every)
        return [batch for batch in every if self.schedule.takes_part(epoch, batch, self.party)]

    def takes_part_in(self, epoch: int) -> bool:
        """True if the party does not sit out every batch of an epoch."""
        return any(self.schedule.takes_part(epoch, batch, self.party) for batch in range(self.schedule.batches))

    def gradients(self, epoch: int) -> GradientRows:
        """The gradients of an epoch.

        Raises:
            Malformed: a message does not fit its batch, or is of a batch that the party sat out.
        """
        order, taken = self.schedule.epoch(epoch), set(self.taken_part(epoch))
        records, values = [np.zeros(0, dtype=np.int64)], [np.zeros((0, self.width), dtype=np.float32)]
        for batch in self.batches.get(epoch, []):
            where = f"{GRADIENTS} of epoch {epoch}, batch {batch}"
            if batch not in taken:
                raise Malformed(f"{where}: {self.party} sat out this batch, or there is none")
            parts = [self._decoded(part, where) for part in self.messages.parts(epoch, batch)]
            if sum(map(len, parts)) != len(order[batch]):
                raise Malformed(f"{where}: {sum(map(len, parts))} rows for {len(order[batch])} records")
            records.append(order[batch])
            values += parts
        places, rows = np.concatenate(records), np.concatenate(values)
        ascending = np.argsort(places)
        return GradientRows(epoch, places[ascending], rows[ascending])

    def _decoded(self, part: splitnn_pb2.EmbeddingGradients, where: str) -> Rows:
        """The rows (n, width) of one message."""
        from treetap.neural.numbers import from_bytes  # a view of a network without its gradients needs no PyTorch

        if (part.width, part.wire_type) != (self.width, self.params.wire_type):
            raise Malformed(
                f"{where}: {part.width} numbers of {part.wire_type!r} a record, where the job has {self.width} of "
                f"{self.params.wire_type!r}"
            )
        try:
            found: Rows = from_bytes(part.values, part.rows, part.width, part.wire_type).numpy()
            return found
        except ValueError as fault:
            raise Malformed(f"{where}: {fault}") from None


def network_view(party: str, params: SplitnnParams, records: int, messages: NetworkMessages) -> NetworkView:
    """The view of a party by its messages. Raises Malformed for gradients of an epoch that the job does not have."""
    batches = messages.places()
    if batches and max(batches) >= params.epochs:
        raise Malformed(f"{GRADIENTS} of epoch {max(batches)}: the job has {params.epochs}")
    return NetworkView(party, params, records, batches, messages)


def lost_batches(view: NetworkView) -> list[str]:
    """Sentences on gradients that are not there although the party took part, of the epochs up to the last one."""
    found = []
    before = [epoch for epoch in range(max(view.epochs, default=0)) if epoch not in view.batches]
    if absent := [epoch for epoch in before if view.takes_part_in(epoch)]:
        found.append(f"{len(absent)} epochs before the last one have no gradients in the transcript")
    for epoch, batches in view.batches.items():
        if lost := len(set(view.taken_part(epoch)) - set(batches)):
            found.append(f"epoch {epoch}: the gradients of {lost} batches are not in the transcript")
    return found
