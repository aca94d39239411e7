"""The embeddings that feature parties sent the label holder for a prediction, by record.

A block of a prediction is a set of records that the label holder names; its log has what it names only with `record =
"both"`. With "received" the records of a whole table follow from its alignment, since blocks hold them in their common
order: an attempt begins with the first record that has no score yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from treetap.arrays import Ints
from treetap.attacks.view.kept_messages import EMBEDDINGS, NetworkMessages, located
from treetap.attacks.view.received_rows import EmbeddingsView, EpochRows, Rows, decoded
from treetap.attacks.view.replay import TranscriptReplay, read_replay
from treetap.attacks.view.view import View
from treetap.errors import BadInput, Malformed
from treetap.wire.own_rows import FORGOTTEN

#: A block: its attempt, its number there, and the rows of the label holder's table that it holds, one by one.
Block = tuple[int, int, Ints]
_REMEDY = 'they are known where the label holder\'s policy says record = "both"'


@dataclass(frozen=True)
class PredictedEmbeddings:
    """The embeddings in the log of one prediction at its label holder.

    `job`: the prediction. `rows`: (N,) rows of the label holder's table of that prediction, from 0: the records of
    which there are embeddings, by their places. `parties`: the feature parties. `faults`: gaps of the transcript.
    """

    path: Path
    job: str
    rows: Ints = field(repr=False)
    parties: tuple[str, ...]
    faults: tuple[str, ...]
    _trained: EmbeddingsView = field(repr=False)
    _messages: NetworkMessages = field(repr=False)
    _blocks: tuple[Block, ...] = field(repr=False)

    def of(self, party: str) -> EpochRows:
        """The embeddings that a feature party sent; of a record that came in several blocks the last one.

        Raises:
            BadInput: there is no such party, or it sent none, as one that was away.
            Malformed: a message does not fit its block.
        """
        if party not in self.parties:
            raise BadInput(f"{self.path}: {party} is no feature party of it; they are {', '.join(self.parties)}")
        params = self._trained.params
        width, place = params.bottom_of(party).width, {row: place for place, row in enumerate(self.rows.tolist())}
        values: Rows = np.empty((len(self.rows), width), dtype=np.float32)
        there = np.zeros(len(self.rows), dtype=bool)
        for attempt, number, rows in self._blocks:
            where = f"{self.path}: {party}: {EMBEDDINGS} of block {number}, attempt {attempt}"
            parts = self._messages.parts(party, attempt, number)
            if parts:
                places = np.array([place[row] for row in rows.tolist()], dtype=np.int64)
                values[places], there[places] = decoded(parts, len(rows), width, params.wire_type, where), True
        if not there.any():
            raise BadInput(f"{self.path}: holds no embeddings of {party}, as where it was away")
        records = np.flatnonzero(there)
        return EpochRows(None, records, values if there.all() else values[records])


def read_predicted(
    path: Path, job: str, training: View, ca: Path | None = None, revoked: Path | None = None
) -> PredictedEmbeddings:
    """Read the embeddings in a label holder's transcript of a prediction with a model that it trained.

    `path`, `ca`, `revoked`: see `treetap.attacks.view.view.read_view`. `job`: the prediction's name. `training`: the
    label holder's view of the training (`treetap.attacks.view.view.read_label_holder`).

    Raises:
        BadInput: there is no such transcript, it is of a training, of another model, another party's, or too large; or
            it does not say which records its blocks hold.
        Malformed: records were changed, or contradict each other; a sender is no feature party.
    """
    trained = training.embeddings
    assert trained is not None  # `training` is a label holder's view of a split network
    with located(path, job) as place:
        replay, faults, anchor = read_replay(place, ca, revoked, lambda: NetworkMessages(EMBEDDINGS, of_blocks=True))
        shown = path if path.is_file() else place
        _check(shown, replay, trained, training.job)
        if anchor.signer not in ("", trained.holder):
            raise Malformed(f"{shown}: is the transcript of {trained.holder}, but {anchor.signer!r} has signed it")
        try:
            blocks, left_out = _blocks(shown, replay, trained.parties)
        except Malformed as fault:
            raise Malformed(f"{shown}: {fault}") from None
    serves = any(opening.serve for opening in replay.openings.values())
    faults += left_out
    if not (replay.finished or serves):
        faults.append("ends before its prediction does: it runs or was interrupted, or the end is missing")
    every = np.concatenate([rows for _, _, rows in blocks])
    rows = every[np.sort(np.unique(every, return_index=True)[1])]
    lines = tuple(f"{shown}: {fault}" for fault in faults)
    return PredictedEmbeddings(shown, job, rows, trained.parties, lines, trained, replay.network, tuple(blocks))


def _check(path: Path, replay: TranscriptReplay, trained: EmbeddingsView, model: str) -> None:
    """Raise BadInput or Malformed unless the log is the label holder's, of a prediction with this model."""
    if not replay.prediction:
        raise BadInput(f"{path}: the transcript of {replay.job!r} is of no prediction")
    for opening in replay.openings.values():
        if (opening.model, opening.submission) != (model, trained.submission):
            other = "another training of that name" if opening.model == model else f"model {opening.model!r}"
            raise BadInput(f"{path}: predicts with {other}, not with the one that job {model!r} trained")
        if opening.recipient != trained.holder:
            raise BadInput(f"{path}: is of a prediction for {opening.recipient}, not for {trained.holder}")
    if trained.holder in replay.peers:
        raise BadInput(f"{path}: is not the transcript of {trained.holder}, the label holder, but of a feature party")
    if foreign := sorted(replay.network.senders - set(trained.parties)):
        raise Malformed(f"{path}: {foreign[0]}, which is not a feature party, has sent embeddings")
    if not replay.network.senders:
        raise BadInput(f"{path}: holds no embeddings of the feature parties: no block was scored")


def _blocks(path: Path, replay: TranscriptReplay, parties: tuple[str, ...]) -> tuple[list[Block], list[str]]:
    """The blocks of which the log has embeddings, in the order of the attempts; and a sentence on those left out.

    Raises:
        BadInput: their records cannot be known.
        Malformed: parties sent different numbers of rows for a block, or a block has other records than the alignment.
    """
    counts = {attempt: _counts(replay.network, parties, attempt) for attempt in sorted(replay.openings)}
    counts = {attempt: blocks for attempt, blocks in counts.items() if blocks}
    blocks, left_out = list[Block](), 0
    for attempt, of_attempt in counts.items():
        named = _named(path, replay, attempt, of_attempt)
        inferred = _unscored(replay, counts, attempt)
        first = 0
        for number, count in of_attempt.items():
            rows = named[number]
            # messages name the rows of a block; where they do not, its place in the common order does
            if rows is None and inferred is not None:
                rows = inferred[first : first + count]
                if len(rows) != count:
                    raise Malformed(f"attempt {attempt}, block {number}: more rows than there are records to score")
            first += count
            if rows is None:
                left_out += count
            else:
                blocks.append((attempt, number, rows))
    if not blocks:
        raise BadInput(f"{path}: does not say which records are in its blocks; {_REMEDY}")
    sentence = f"{left_out} embeddings of interrupted attempts are left out: it does not say whose they are; {_REMEDY}"
    return blocks, [sentence] if left_out else []


def _named(path: Path, replay: TranscriptReplay, attempt: int, blocks: Iterable[int]) -> dict[int, Ints | None]:
    """Block → the rows that the label holder's messages name, None where the log has none of whole tables.

    Raises BadInput where single records were asked for and the log does not name them.
    """
    aligned = _aligned(replay, attempt)
    places = {number: replay.block(attempt, number, len(aligned)) for number in blocks}
    opening = replay.openings[attempt]
    if (opening.serve or opening.records_file) and any(of_block is None for of_block in places.values()):
        asked = "clients asked about" if opening.serve else f"{opening.records_file} names"
        raise BadInput(f"{path}: does not say which records are in its blocks, those that {asked}; {_REMEDY}")
    return {number: None if of_block is None else aligned[of_block] for number, of_block in places.items()}


def _counts(messages: NetworkMessages, parties: tuple[str, ...], attempt: int) -> dict[int, int]:
    """Block → its records by the rows of each party, for the blocks of an attempt, ascending."""
    counts: dict[int, int] = {}
    for party in parties:
        for number in messages.places(party).get(attempt, []):
            count = sum(part.rows for part in messages.parts(party, attempt, number))
            if counts.setdefault(number, count) != count:
                raise Malformed(f"attempt {attempt}, block {number}: parties sent {counts[number]} and {count} rows")
    if counts and sorted(counts) != list(range(len(counts))):
        raise Malformed(f"attempt {attempt}: embeddings of a block before the last one are missing")
    return dict(sorted(counts.items()))


def _unscored(replay: TranscriptReplay, counts: dict[int, dict[int, int]], attempt: int) -> Ints | None:
    """Rows of the records, in their common order, that an attempt at a whole table began to score; None: unknown.

    Those of attempt 1 are all. A finished attempt ends with the last record, and attempts before it have scored the
    records before; whether the last block of an interrupted one was scored is not in the log.
    """
    aligned, earlier = _aligned(replay, attempt), [other for other in counts if other < attempt]
    count = sum(counts[attempt].values())
    if not earlier and (count == len(aligned) or 1 in replay.openings):
        return aligned
    before = _aligned(replay, earlier[0]) if earlier else aligned
    alike = all(np.array_equal(before, _aligned(replay, other)) for other in earlier)
    # where all records have their score, one is scored again
    if attempt not in replay.written or not alike or not 1 < count <= len(aligned):
        return None
    left = aligned[~np.isin(aligned, before[: len(aligned) - count])]
    return left if len(left) == count else None


def _aligned(replay: TranscriptReplay, attempt: int) -> Ints:
    """Rows (N,) of the own table that the common records of an attempt are. Raises Malformed without them."""
    rows = replay.alignments.get(attempt)
    if rows is None or (rows == FORGOTTEN).any():
        gap = f" ({replay.gaps[-1]})" if replay.gaps else ""
        raise Malformed(f"attempt {attempt}: does not say which rows of the label holder's table the records are{gap}")
    return rows
