"""A label holder's view of a split network: the embeddings that each feature party sent, by record and epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

from attacks.view.kept_messages import MemoryBudget
from attacks.view.network_messages import NetworkMessages
from attacks.view.received_rows import EpochRows, ReceivedRows, lost_batches
from treetap.errors import BadInput
from treetap.neural.params import SplitnnParams


@dataclass(frozen=True)
class EmbeddingsView:
    """The embeddings in the log of one label holder.

    `records`: N, the records common to all parties. `submission`: the nonce of the job's submission. `received`:
    feature party → its messages.
    """

    holder: str
    params: SplitnnParams
    records: int
    submission: str
    received: dict[str, ReceivedRows] = field(repr=False)

    @property
    def parties(self) -> tuple[str, ...]:
        """The feature parties of the job."""
        return tuple(self.received)

    @property
    def epochs(self) -> list[int]:
        """The epochs, from 0, of which embeddings are held, ascending."""
        return sorted({epoch for rows in self.received.values() for epoch in rows.messages.held(rows.sender)})

    @property
    def seen(self) -> int:
        """Number of epochs of which the log has embeddings, held or not."""
        return len({epoch for rows in self.received.values() for epoch in rows.epochs})

    def last_whole(self, party: str) -> int | None:
        """The last epoch held of which the log has every batch that the party did not sit out; None: there is none."""
        rows = self._of(party)
        return max((epoch for epoch in rows.messages.held(party) if rows.whole(epoch)), default=None)

    def of(self, party: str, epoch: int | None = None) -> EpochRows:
        """The embeddings that a feature party sent in an epoch, from 0; None: in the last whole one.

        Raises:
            BadInput: there is no such party, or no embeddings of the epoch are held.
            Malformed: a message does not fit its batch, or is of a batch that the party sat out.
        """
        rows = self._of(party)
        held = [number for number in rows.messages.held(party) if number in rows.batches]
        chosen = self.last_whole(party) if epoch is None else epoch
        if chosen is None:
            raise BadInput(
                f"{party}: the transcript has no epoch with all its embeddings; choose one of {_numbers(held)}"
                if held
                else f"{party}: the transcript has no embeddings of it"
            )
        if chosen not in held:
            raise BadInput(f"{party}: no embeddings of epoch {chosen + 1} are held, only of {_numbers(held)}")
        return rows.rows(chosen)

    def faults(self) -> list[str]:
        """Sentences on embeddings that are not in the transcript."""
        return [f"{party}: {gap}" for party, rows in self.received.items() for gap in lost_batches(rows)]

    def _of(self, party: str) -> ReceivedRows:
        if party not in self.received:
            raise BadInput(f"{party}: is no feature party of the job; they are {', '.join(self.parties)}")
        return self.received[party]


def embeddings_view(
    holder: str,
    parties: list[str],
    params: SplitnnParams,
    records: int,
    submission: str,
    messages: NetworkMessages,
    budget: MemoryBudget,
) -> EmbeddingsView:
    """The view of a label holder by its messages; of the newest epochs alone the last whole one is held.

    Raises:
        Malformed: an epoch is none of the job's, or the job cannot have these records.
    """
    received = {party: ReceivedRows.of(party, party, params, records, messages) for party in parties}
    view = EmbeddingsView(holder, params, records, submission, received)
    if messages.newest and (last := {epoch for epoch in map(view.last_whole, parties) if epoch is not None}):
        messages.drop(set(view.epochs) - last, budget)
    return view


def _numbers(epochs: list[int]) -> str:
    return f"epochs {', '.join(str(epoch + 1) for epoch in epochs)} (from 1)" if epochs else "no epoch"
