"""The replay of a transcript: a training's messages and own records put in order, in one pass without ciphertexts.

Whose transcript it is: the transcript may not say it, and each kind of view is of one role.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from google.protobuf.message import Message

from treetap.arrays import Ints
from treetap.attacks.view.kept_messages import MemoryBudget, NetworkMessages
from treetap.attacks.view.opened_sums import ENTRIES
from treetap.attacks.view.pivodl_view import OF_TREES, SENT, SHARED, SharedParts
from treetap.attacks.view.received_rows import Messages, TreeReplay
from treetap.errors import BadInput, Malformed
from treetap.models.keyed_ids import HashedIds
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.protocols.growth import sums_opened
from treetap.protocols.registry import training, training_name
from treetap.wire.frame import name_of
from treetap.wire.own_rows import ENTRY, FORGOTTEN, kept, path_of
from treetap.wire.records import rows_of
from treetap.wire.signatures import Anchor
from treetap.wire.transcript import OWN_STEPS, TranscriptReader, counted, open_message
from treetap.wire.transcript_writer import Kind
from treetap.wire.v2 import (
    control_pb2,
    exchange_pb2,
    growth_pb2,
    prediction_pb2,
    serving_pb2,
    setup_pb2,
    transcript_pb2,
)
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

#: Kind of record → types of the messages in it → their step; empty: that of the content.
_KINDS: Mapping[Kind, Mapping[type[Message], str]] = {
    TranscriptRecord.RECEIVED: {
        control_pb2.StepRequest: "",
        exchange_pb2.PeerMessage: "",
        serving_pb2.PredictRecords: "predict",
    },
    TranscriptRecord.SENT: {exchange_pb2.PeerMessage: "", serving_pb2.PredictedRecords: "predict"},
    TranscriptRecord.OWN: OWN_STEPS,
}
_MOST_ROWS = 2**62
#: Steps of a tree whose messages are kept where the party receives them.
_RECEIVED = ("sampled_records", "instance_spaces", "children", *OF_TREES)
#: The key by which messages are counted: whether they were sent, the other side, step, disclosure class.
TrafficKey = tuple[bool, str, str, str]


@dataclass
class TranscriptReplay:
    """One submission of a job as its transcript records it.

    Of a prediction `openings`: attempt → what it opened; `written`: the attempts that scored all their blocks, so that
    the predictions were to be written; `arrived`: messages, received in order, of the records that arrived at nodes of
    the party's.
    """

    job: str
    folder: Path  # of the transcript
    budget: MemoryBudget = field(default_factory=MemoryBudget, repr=False)
    spec: setup_pb2.JobSpec | None = None
    submission: str = ""
    prediction: bool = False
    finished: bool = False
    trees_by_attempt: dict[tuple[int, int], TreeReplay] = field(default_factory=dict)
    alignments: dict[int, Ints] = field(default_factory=dict)  # attempt → rows (N,) of the party's own table
    hashed: dict[int, HashedIds] = field(default_factory=dict)  # attempt → the ids of these records
    gaps: list[str] = field(default_factory=list)  # in what says which rows these are
    owners: set[str] = field(default_factory=set)  # names under which this party was asked to apply splits
    peers: set[str] = field(default_factory=set)  # the other members of the job
    noised: dict[str, ColumnPrivacy] = field(default_factory=dict)  # of the feature parties whose sums have noise
    key: setup_pb2.PublicKeyMessage | None = None  # that a label holder has sent, of the last attempt
    own_digest: bytes | None = None  # of its sorted ids
    attempts: set[int] = field(default_factory=set)
    messages: Counter[TrafficKey] = field(default_factory=Counter)
    bytes: Counter[TrafficKey] = field(default_factory=Counter)
    shared: SharedParts = field(default_factory=lambda: defaultdict(dict))
    network: NetworkMessages = field(default_factory=NetworkMessages)
    openings: dict[int, prediction_pb2.OpenModel] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    arrived: list[exchange_pb2.PeerMessage] = field(default_factory=list)
    _blocks: dict[tuple[int, int], Messages] = field(default_factory=dict)

    def tree(self, index: int, attempt: int) -> TreeReplay:
        return self.trees_by_attempt.setdefault((index, attempt), TreeReplay(index, attempt))

    @property
    def begun(self) -> bool:
        """True once the job, a training or a prediction, is known."""
        return self.spec is not None or self.prediction

    @property
    def total(self) -> int:
        """N, on which all sets of records must agree; before the first set, the number of aligned records.

        Raises Malformed if they do not.
        """
        totals = {total for tree in self.trees_by_attempt.values() for total in tree.totals()}
        if len(totals) > 1:
            raise Malformed(f"its sets are of {' and of '.join(map(str, sorted(totals)))} records")
        return totals.pop() if totals else max(map(len, self.alignments.values()), default=0)

    @property
    def _opened(self) -> bool:
        """True if a label holder opens the sums of candidates that it receives."""
        return self.spec is None or sums_opened(self.spec)

    def take(self, record: TranscriptRecord) -> None:
        """Take the transcript's next record. Raises Malformed."""
        message = checked(record)
        self.attempts.add(record.attempt)
        sent = record.kind == TranscriptRecord.SENT
        if record.kind != TranscriptRecord.OWN:
            for disclosure, size in counted(record).items():
                key = (sent, record.peer, record.step, disclosure)
                self.messages[key] += 1
                self.bytes[key] += size
        if isinstance(message, exchange_pb2.PeerMessage):
            self._take_message(record, message, sent)
        elif isinstance(message, control_pb2.StepRequest):
            self._take_step(record, message)
        elif isinstance(message, transcript_pb2.OwnAlignment):
            self._align(record.attempt, message)
        elif isinstance(message, transcript_pb2.OwnSplit):
            self.budget.take(len(record.message))
            if self.tree(record.round, record.attempt).own.setdefault(message.node, message) != message:
                raise Malformed(f"tree {record.round}: node {message.node} was split twice")
        elif isinstance(message, growth_pb2.Children):
            self.budget.take(len(record.message))
            for child in message.children:
                self.tree(record.round, record.attempt).opened_bits.setdefault(child.node, []).append(child.left)
        elif isinstance(message, ENTRIES):
            tree = self.tree(record.round, record.attempt)
            of_split_parties = self.spec is not None and training_name(self.spec) == "pivodl"
            if isinstance(message, transcript_pb2.OwnSums) and of_split_parties:
                tree.opened.take_node(message, self.budget)
            else:
                tree.opened.take(record.stage, message, self.budget)

    def _take_step(self, record: TranscriptRecord, request: control_pb2.StepRequest) -> None:
        if record.step == "publish":
            self.finished = True
        elif record.step == "store_epoch":
            self.network.stored(record.round, self.budget)
        elif record.step == "store_tree":
            self.tree(record.round, record.attempt).stored = True
        elif record.step == "open_model":
            self.prediction = True
            self.openings[record.attempt] = request.prediction.open_model
        elif record.step == "write_predictions":
            self.finished = True
            self.written.add(record.attempt)

    def _take_message(self, record: TranscriptRecord, message: exchange_pb2.PeerMessage, sent: bool) -> None:
        self.peers.add(record.peer)
        # of a tree what names records or numbers is kept; ciphertexts were counted and say no more
        if record.step in (SENT if sent else _RECEIVED):
            self.budget.take(len(record.message))
            tree = self.tree(record.round, record.attempt)
            where = (record.peer, record.step, record.stage)
            (tree.sent if sent else tree.series).setdefault(where, Messages()).add(message, message)
        elif record.step == "candidate_sums" and not sent and self._opened:
            opened, sums = self.tree(record.round, record.attempt).opened, message.growth.candidate_sums
            opened.received.setdefault((record.peer, record.stage), set()).update(sums.nodes)
            if any(sums.marks):
                opened.constrained.add(record.peer)
            if sums.min_cell_records:
                opened.least[record.peer] = sums.min_cell_records
        elif record.step == "public_key" and not sent:
            self.key = message.setup.public_key
        elif record.step == "noised_sums" and not sent:
            said = message.setup.noised_sums
            self.noised[record.peer] = ColumnPrivacy.said(record.peer, said.epsilon, said.delta, said.trees)
        elif record.step in SHARED and not sent:
            self.budget.take(len(record.message) if record.step != "candidate_records" else 0)
            # one that came before is the same message
            self.shared[record.step, record.attempt, record.peer] |= SHARED[record.step](message)
        elif record.step == self.network.kind and not sent:
            self.network.take(record.peer, message, self.budget)
        elif record.step == "block_records" and sent:
            self.budget.take(len(record.message))
            # each receiver's is the same
            self._blocks.setdefault((message.attempt, message.round), Messages()).add(message, message)
        elif record.step == "arrived_records" and not sent:
            self.budget.take(len(record.message))
            self.arrived.append(message)
        elif record.step == "won_splits" and not sent:
            self.owners |= {message.growth.won_splits.owner} - {""}  # of padded trees one says that nothing was won
        elif record.step == "record_digest" and sent:
            self.own_digest = message.alignment.record_digest.digest

    def block(self, attempt: int, number: int, total: int) -> Ints | None:
        """Places (n,) of the records of a block among the `total` common ones; None where the log does not have them.

        Raises Malformed if there are no such records.
        """
        series = self._blocks.get((attempt, number))
        if series is None or not series.whole:
            return None
        chunks = [chunk for part in series.in_order() for chunk in part.prediction.block_records.chunks]
        return np.asarray(rows_of(chunks, total), dtype=np.int64)

    def _align(self, attempt: int, chained: transcript_pb2.OwnAlignment) -> None:
        if chained.records > _MOST_ROWS:
            raise Malformed(f"attempt {attempt}: more records are aligned than any table has")
        self.budget.take(ENTRY.itemsize * chained.records)
        try:
            own = kept(self.folder, chained)
            rows, self.hashed[attempt] = own.rows, HashedIds(own.key, own.entries["id"].astype(np.uint64))
        except BadInput:
            rows = np.full(chained.records, FORGOTTEN, dtype=np.int64)
            name = path_of(self.folder, chained.digest).name
            self.gaps.append(f"{name}, which says which rows the common records are, cannot be read beside it")
        else:
            if gone := int((rows == FORGOTTEN).sum()):
                self.gaps.append(f"{gone} of the {len(rows)} common records were forgotten: their rows are gone")
        if ((rows < 0) & (rows != FORGOTTEN)).any() or (rows > _MOST_ROWS).any():
            raise Malformed(f"attempt {attempt}: a row of the party's table is beyond any table")
        self.alignments[attempt] = rows


def read_replay(
    path: Path,
    ca: Path | None = None,
    revoked: Path | None = None,
    network: Callable[[], NetworkMessages] = NetworkMessages,
) -> tuple[TranscriptReplay, list[str], Anchor]:
    """Replay the last submission of the job in one transcript (a folder or file).

    Returns also the faults, and what its signatures show; `ca`, `revoked`: see `TranscriptReader`. `network`: makes the
    place of a split network's numbers, which says which of them are kept.

    Raises:
        Malformed: a changed, cut or missing record other than at the very end, or records of another job.
        BadInput: the file is not the transcript's first one, or takes up too much memory.
    """
    reader, folder = TranscriptReader(path, ca, revoked), path if path.is_dir() else path.parent
    replay: TranscriptReplay | None = None
    faults = []
    for record in reader:
        if replay is None:
            if record.sequence:
                raise BadInput(
                    f"{path}: begins with record {record.sequence}: the transcript's files before it are missing; "
                    "give the whole folder"
                )
            replay = TranscriptReplay(record.job, folder, network=network())
        try:
            if record.job != replay.job:
                raise Malformed(f"it is of job {record.job!r}, those before it are of job {replay.job!r}")
            # a job's name may be used again: another nonce begins another submission, the same one another attempt
            if record.step in ("prepare", "open_model"):
                spec, submission = _beginning(record)
                if replay.begun and submission != replay.submission:
                    faults.append(f"job {replay.job!r} was submitted more than once; only the last one counts")
                    replay = TranscriptReplay(record.job, folder, network=network())
                if replay.begun and replay.spec != spec:
                    raise Malformed("the job is another one than before")
                replay.spec, replay.submission = spec, submission
            replay.take(record)
        except (Malformed, BadInput) as fault:
            raise type(fault)(f"{path}: record {record.sequence}: {fault}") from None
    if replay is None:
        raise BadInput(f"{path}: holds no record yet")
    faults += dict.fromkeys(replay.gaps)
    if reader.torn:
        faults.append("a record was cut short, as when its party is killed or at work; it is left out")
    return replay, faults, reader.anchor


def _beginning(record: TranscriptRecord) -> tuple[setup_pb2.JobSpec | None, str]:
    """The job, None of a prediction, and the nonce of its submission."""
    message = checked(record)
    if not isinstance(message, control_pb2.StepRequest):
        raise Malformed(f"its message is a {record.message_type}, which is no {record.step}")
    if record.step == "open_model":
        return None, message.prediction.open_model.prediction
    return message.setup.prepare.spec, message.setup.prepare.submission


def checked(record: TranscriptRecord) -> Message:
    """The message of a record, which must be one that a party records so, and of its step, job and place.

    Raises Malformed.
    """
    message = open_message(record)
    kinds = _KINDS[record.kind]
    if not isinstance(message, tuple(kinds)):
        raise Malformed(f"its message is a {record.message_type}, which is not recorded so")
    step = kinds[type(message)] or name_of(message)
    if step != record.step:
        raise Malformed(f"its message is a {record.message_type} for {step or 'nothing'}, which is no {record.step}")
    if isinstance(message, control_pb2.StepRequest | exchange_pb2.PeerMessage):
        of_message = (message.job, message.attempt, message.round, message.stage)
        if of_message != (record.job, record.attempt, record.round, record.stage):
            raise Malformed("its message is of job {!r}, attempt {}, tree {}, stage {}".format(*of_message))
    return message


# The party whose transcript is read: the transcript may not say it, and each kind of view is of one role.


def feature_party(path: Path, replay: TranscriptReplay, spec: setup_pb2.JobSpec, party: str | None) -> str:
    """The transcript's party, which is not the label holder; `party`: its name, where it is given.

    Raises:
        BadInput: it is the label holder's or another party's, or the transcript does not say whose it is.
        Malformed: it is several parties'.
    """
    possible, one_role = _possible(path, replay, spec, party), training(training_name(spec)).one_role
    if not one_role and (party or possible) in (spec.aggregator, [spec.aggregator]):
        raise BadInput(
            f"{path}: is the transcript of {spec.aggregator}, the label holder, which knows the labels; it attacks "
            "other parties' columns: add [[victim]]"
        )
    # where all parties label records, none of them is left out as the one that knows the labels
    features = [name for name in possible if one_role or name != spec.aggregator]
    if party is None and len(features) > 1:
        raise BadInput(f"{path}: does not say whose transcript it is; name one of {', '.join(features)}")
    return party or features[0]


def label_holder(path: Path, replay: TranscriptReplay, spec: setup_pb2.JobSpec, party: str | None) -> str:
    """The transcript's party, which is a label holder; `party`: its name, where it is given.

    Raises:
        BadInput: it is another party's, or of a protocol in which all parties label records.
        Malformed: it is several parties'.
    """
    possible, holder = _possible(path, replay, spec, party), spec.aggregator
    if training(training_name(spec)).one_role:
        raise BadInput(
            f"{path}: is of protocol {training_name(spec)}, in which all parties have one role: leave [[victim]] out"
        )
    if holder not in possible or party not in (None, holder):
        raise BadInput(
            f"{path}: is the transcript of {' or '.join(name for name in possible if name != holder)}; columns of "
            f"other parties are attacked by that of the label holder, {holder}"
        )
    return holder


def _possible(path: Path, replay: TranscriptReplay, spec: setup_pb2.JobSpec, party: str | None) -> list[str]:
    """The parties whose transcript it can be: none receives its own messages, or is asked to apply another's splits."""
    if len(replay.owners) > 1:
        raise Malformed(f"holds records of several parties: {', '.join(sorted(replay.owners))}")
    members = [spec.aggregator, *spec.feature_parties]
    possible = [name for name in members if name not in replay.peers and replay.owners <= {name}]
    if not possible:
        raise Malformed("holds records of several parties")
    if party is not None and party not in possible:
        raise BadInput(f"{path}: is not the transcript of {party}, but of {' or '.join(possible)}")
    return possible
