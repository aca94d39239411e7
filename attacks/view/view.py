"""A party's view: all that it could know of each tree, from its own transcript alone.

A view combines instance spaces from messages, children of the party's own splits, and sets that follow from these by
repeatedly subtracting a known child from a known parent (Takahashi, Liu, Liu, "Eliminating Label Leakage in Tree-based
Vertical Federated Learning", section 4.2, names the first two).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from treetap.arrays import Ints
from treetap.attacks.id2graph.clustering import OwnCut
from treetap.attacks.view.kept_messages import EMBEDDINGS, NetworkMessages, located
from treetap.attacks.view.known_trees import TreeView
from treetap.attacks.view.opened_sums import OpenedSums, Room, opened_sums, room_of, room_opened
from treetap.attacks.view.pivodl_view import PivodlView, pivodl_view
from treetap.attacks.view.received_rows import EmbeddingsView, ReceivedRows, TreeReplay, lost_batches
from treetap.attacks.view.replay import TranscriptReplay, feature_party, label_holder, read_replay
from treetap.errors import BadInput, ConfigError, Malformed
from treetap.models.keyed_ids import HashedIds
from treetap.neural.params import SplitnnParams
from treetap.protocols.job_spec import SHARED, check_spec, continued_from, params_of
from treetap.protocols.messages import aligned_apart
from treetap.protocols.registry import training_name
from treetap.trees.ensemble import ROOT
from treetap.trees.job_params import REGRESSIONS, JobParams
from treetap.trees.params import TreeParams
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.own_rows import FORGOTTEN
from treetap.wire.signatures import Anchor
from treetap.wire.v2 import setup_pb2

#: Why no attack reads the sums of a label holder whose records others lack.
OTHERS_RECORDS = (
    "join = 'left' adds records that a party lacks to its sums, which no attack on columns takes apart: train with "
    "join = 'inner' to measure it"
)


@dataclass(frozen=True, eq=False)
class View:
    """The knowledge of one party about one training job: a feature party, or a label holder that attacks columns.

    `path`: the transcript's folder or file. `records`: N, the records common to all parties; positions in trees are in
    their common order. `rows`: (N,) their rows in the party's own table, from 0, and `ids`: theirs (N,); None if the
    transcript does not have them. `own_digest`: SHA-256 of the party's sorted ids, where the transcript holds it.
    `trees`: the last complete growth of each tree, by index; `unfinished`: trees that were begun and never completed,
    as of their last growth. `attempt`: the newest one. `finished`: the model was published.
    `params`: the job's parameters; of these `max_depth`, and `missing` (a value that means missing, or None).
    `sent` is empty unless the party recorded both directions. `faults`: gaps of the transcript that limit every result.
    `anchor`: what its signatures show. `pivodl`: what it knows beside, of a PIVODL job; there `label_holder` has all
    parties that label records. `network`: its gradients, of a split network, which has no trees (`max_depth` 0).
    `embeddings`: of the label holder of a split network those of the feature parties, and no `network`. `opened`: of
    the label holder of trees the sums over the feature parties' columns. `room`: of the plaintexts of a job of trees,
    where the transcript tells it. `private`: nobody opened sums of candidates. `apart`: the job's records are the
    label holder's, and these those of them that the party has.
    """

    path: Path
    party: str
    job: str
    protocol: str
    label_holder: str
    attempt: int
    records: int
    rows: Ints | None = field(repr=False)
    own_digest: bytes | None = field(repr=False)
    trees: tuple[TreeView, ...] = field(repr=False)
    unfinished: tuple[TreeView, ...] = field(repr=False)
    finished: bool
    params: JobParams = field(repr=False)
    max_depth: int
    missing: float | None
    received: list[dict[str, Any]] = field(repr=False)
    sent: list[dict[str, Any]] = field(repr=False)
    faults: tuple[str, ...]
    anchor: Anchor = field(default_factory=lambda: Anchor("empty"))
    ids: HashedIds | None = field(default=None, repr=False)
    pivodl: PivodlView | None = field(default=None, repr=False)
    network: ReceivedRows | None = field(default=None, repr=False)
    embeddings: EmbeddingsView | None = field(default=None, repr=False)
    opened: OpenedSums | None = field(default=None, repr=False)
    room: Room | None = None
    private: bool = False
    apart: bool = False

    @property
    def of_columns(self) -> bool:
        """True of a label holder's, whose attacks are on the feature parties' columns."""
        return self.embeddings is not None or self.opened is not None

    @property
    def regression(self) -> bool:
        """True if the label is a number rather than a class."""
        return self.params.objective in REGRESSIONS

    @property
    def withheld(self) -> bool:
        """True if the job withholds instance spaces from feature parties."""
        return isinstance(self.params, TreeParams) and self.params.withheld

    def leaves(self, *, drawn_only: bool = False) -> list[list[Ints]]:
        """The attacker's leaves of every complete tree, in order: the input of the attacks.

        A tree of which only the root is known has no leaves here: its root joins all records and carries no
        information, and the paper counts only the trees available to the party. `drawn_only`: keep of each leaf the
        records that the tree was trained on, where a message named them.
        """
        return [
            [tree.drawn_of(leaf.records) if drawn_only else leaf.records for leaf in tree.leaves() if leaf.node != ROOT]
            for tree in self.trees
        ]

    def own_cuts(self) -> list[list[OwnCut]]:
        """The party's own splits of every complete tree, each with the records that may lie in its node, by side.

        These are the node's where they are known. Where instance spaces are withheld it is each record that no own
        split above sends elsewhere.
        """
        return [tree.own_cuts() for tree in self.trees]

    def received_only(self) -> View:
        """The same view by received messages alone."""
        trees, unfinished = (tuple(tree.received_only() for tree in some) for some in (self.trees, self.unfinished))
        return replace(self, trees=trees, unfinished=unfinished)


def read_view(
    path: Path,
    job: str | None = None,
    party: str | None = None,
    ca: Path | None = None,
    revoked: Path | None = None,
    network: Callable[[], NetworkMessages] = NetworkMessages,
) -> View:
    """Read the view of the party whose transcript is at `path` (`attacks.view.kept_messages.located`), in one pass.

    `job`: required if there are several. `party`: the transcript's owner; required only if the transcript does not
    identify it, as when one of three parties has won no split and exchanged messages with the label holder alone.
    `ca`: file of the federation's authority, by which signatures are verified; `revoked`: its list of revoked
    certificates, by which they are judged. `network`: makes the place of a split network's numbers: see `read_replay`.

    A job that is still running, or was resumed, has a view too: of each tree the last complete growth counts, in any
    attempt. A record that was cut short at the end of a file is left out and reported in `faults`, as is a transcript
    that ends before its job does.

    Raises:
        BadInput: there is no such transcript, it is ambiguous, it is not one of a feature party's training, or it takes
            up too much memory.
        Malformed: records were changed, removed or inserted, are of another job or party, or contradict each other; a
            signature does not fit, or is another party's.
    """
    with located(path, job) as place:
        replay, faults, anchor = read_replay(place, ca, revoked, network)
        shown = path if path.is_file() else place  # not the temporary folder of an unpacked archive
        try:
            view = _view(shown, replay, party, anchor, [f"{shown}: {fault}" for fault in faults])
        except Malformed as fault:
            raise Malformed(f"{shown}: {fault}") from None
        if anchor.signer not in ("", view.party):
            raise Malformed(f"{shown}: is the transcript of {view.party}, but {anchor.signer!r} has signed it")
        return view


def _view(path: Path, replay: TranscriptReplay, party: str | None, anchor: Anchor, faults: list[str]) -> View:
    spec = replay.spec
    if spec is None:
        what = "is of a prediction: no model is trained in it" if replay.prediction else "holds no training yet"
        raise BadInput(f"{path}: the transcript of {replay.job!r} {what}")
    apart = aligned_apart(spec)
    # an eval table's records would be counted among those of the training
    if spec.eval_table or (apart and replay.network.kind == EMBEDDINGS):
        with_eval = "an eval table's records are in its sets too: train without eval_table to measure attacks"
        raise BadInput(f"{path}: job {replay.job!r}: {with_eval if spec.eval_table else OTHERS_RECORDS}")
    params = _params(spec)
    name = (label_holder if replay.network.kind == EMBEDDINGS else feature_party)(path, replay, spec, party)
    total = replay.total
    max_depth = params.max_depth if isinstance(params, TreeParams) else 0
    withheld = isinstance(params, TreeParams) and params.withheld
    whole = withheld and replay.network.kind != EMBEDDINGS
    trees, unfinished = _trees(path, replay, total, max_depth, whole=whole)
    # as every party computes it by the seed, where it knows the places of its records
    if isinstance(params, TreeParams) and withheld and params.draws_records and not apart:
        trees, unfinished = (
            [replace(tree, drawn=params.drawn(tree.index, total)) for tree in some] for some in (trees, unfinished)
        )
    before_last = pairwise([-1, *(tree.index for tree in trees)])
    if lacking := [(before + 1, after - 1) for before, after in before_last if after - before > 1]:
        gaps = ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in lacking)
        why = "recording began later"
        if base := continued_from(spec):
            why += f", or they are of model {base!r}, from which the job continues and whose own transcript has them"
        faults.append(f"{path}: trees {gaps} are not in the transcript: {why}")
    opened, unrecorded = _opened(spec, params, replay, trees, total)
    if unrecorded:
        faults.append(f"{path}: sums of trees {unrecorded} were opened and not recorded: record_sums was off")
    network, embeddings, lost, done = _numbers(path, name, spec, params, replay)
    faults += [f"{path}: {gap}" for gap in lost]
    if not replay.finished:
        faults.append(
            f"{path}: ends before its job does (after {done or f'{len(trees)} complete trees'}): the job runs or was "
            "interrupted, or the end of the transcript is missing"
        )
    pivodl = None
    if isinstance(params, PivodlParams):
        grown = [(replay.trees_by_attempt[tree.index, tree.attempt], tree) for tree in trees]
        pivodl = pivodl_view(name, [spec.aggregator, *spec.feature_parties], params, replay.shared, grown, total)
    rows = _rows(replay, total, [*trees, *unfinished])
    if rows is None:
        faults.append(f"{path}: does not say which rows of its party's table the {total} common records are")
    holders = spec.aggregator
    if pivodl is not None:  # all of the job before they have said which label records
        holders = ", ".join(name for name in pivodl.parties if len(pivodl.ownership.get(name, [0])))
    room = None
    if isinstance(params, TreeParams):
        room = room_of(spec, params, total, replay.key) if opened is None else room_opened(spec, params, opened)
    ids = None
    if rows is not None:  # of the attempt that aligned these rows of the party's table
        ids = next(replay.hashed[attempt] for attempt, of in replay.alignments.items() if np.array_equal(of, rows))
    view = View(
        path=path,
        party=name,
        job=replay.job,
        protocol=training_name(spec),
        label_holder=holders,
        attempt=max(replay.attempts),
        records=total,
        rows=rows,
        own_digest=replay.own_digest if spec.alignment == "sorted-ids" else None,
        trees=tuple(trees),
        unfinished=tuple(unfinished),
        finished=replay.finished,
        params=params,
        max_depth=max_depth,
        missing=None if math.isnan(params.missing) else params.missing,
        received=_traffic(replay, sent=False),
        sent=_traffic(replay, sent=True),
        faults=tuple(faults),
        anchor=anchor,
        ids=ids,
        pivodl=pivodl,
        network=network,
        embeddings=embeddings,
        opened=opened,
        room=room,
        private=spec.sums == SHARED,
        apart=apart,
    )
    return view if rows is None or pivodl or not isinstance(params, TreeParams) else _remembered(view, rows)


def _remembered(view: View, rows: Ints) -> View:
    """A view of trees without the records that the party has forgotten; `rows` (N,) are all."""
    kept = rows != FORGOTTEN
    if kept.all() or view.opened is not None:
        return view
    trees, unfinished = (tuple(tree.among(kept) for tree in some) for some in (view.trees, view.unfinished))
    ids = view.ids and view.ids._replace(hashes=view.ids.hashes[kept])
    left = replace(view, records=int(kept.sum()), rows=rows[kept], ids=ids, own_digest=None)
    return replace(left, trees=trees, unfinished=unfinished)


def _opened(
    spec: setup_pb2.JobSpec, params: JobParams, replay: TranscriptReplay, trees: list[TreeView], total: int
) -> tuple[OpenedSums | None, str]:
    """The sums that a label holder of trees opened, and the trees without a record of theirs; none of another party."""
    if replay.network.kind != EMBEDDINGS or not isinstance(params, TreeParams):
        return None, ""
    grown = []
    for tree in trees:
        as_recorded = replay.trees_by_attempt[tree.index, tree.attempt]
        grown.append((tree, as_recorded.opened, as_recorded.children()))
    opened, lost = opened_sums(grown, list(spec.feature_parties), params, total, replay.noised)
    return opened, ", ".join(map(str, lost))


def _numbers(
    path: Path, name: str, spec: setup_pb2.JobSpec, params: JobParams, replay: TranscriptReplay
) -> tuple[ReceivedRows | None, EmbeddingsView | None, list[str], str]:
    """The gradients or embeddings of a split network, those that are missing, and what there is; nothing of trees."""
    if not isinstance(params, SplitnnParams):
        return None, None, [], ""
    senders, of_columns = replay.network.senders, replay.network.kind == EMBEDDINGS
    if foreign := sorted(senders - set(spec.feature_parties if of_columns else [spec.aggregator])):
        role, what = ("a feature party", "embeddings") if of_columns else ("the label holder", "gradients")
        raise Malformed(f"{foreign[0]}, which is not {role}, has sent {what}")
    if of_columns:
        # The embeddings in the log of a label holder; of the newest epochs alone the last whole one is held.
        messages, total = replay.network, replay.total
        if not messages.senders:
            raise BadInput(
                f"{path}: holds no embeddings of the feature parties: training has not begun, or {name} did not record "
                'it; its policy needs record = "received" or "both" while the job trains'
            )
        received = {party: ReceivedRows.of(party, party, params, total, messages) for party in spec.feature_parties}
        embeddings = EmbeddingsView(name, params, total, replay.submission, received)
        if messages.newest and (last := {epoch for epoch in map(embeddings.last_whole, received) if epoch is not None}):
            messages.drop(set(embeddings.epochs) - last, replay.budget)
        return None, embeddings, embeddings.faults(), f"embeddings of {embeddings.seen} epochs"
    network = ReceivedRows.of(name, spec.aggregator, params, replay.total, replay.network)
    return network, None, lost_batches(network), f"gradients of {len(network.epochs)} epochs"


def _params(spec: setup_pb2.JobSpec) -> JobParams:
    """The job's parameters, once it is known to be a job that parties take part in."""
    try:
        check_spec(spec)
        return params_of(spec)
    except ConfigError as fault:
        raise Malformed(f"the job that it records is none: {fault}") from None


def _trees(
    path: Path, replay: TranscriptReplay, total: int, max_depth: int, *, whole: bool
) -> tuple[list[TreeView], list[TreeView]]:
    """Complete and unfinished trees: of each tree the last complete growth, else the last one."""
    last: dict[int, TreeReplay] = {}
    for (index, _), tree in sorted(replay.trees_by_attempt.items()):  # a later attempt comes later
        if tree.stored or index not in last or not last[index].stored:
            last[index] = tree
    try:
        everybody = replay.budget.rows(total)
        views = [tree.view(everybody, replay.budget, whole=whole) for _, tree in sorted(last.items())]
    except BadInput as fault:
        raise BadInput(f"{path}: {fault}") from None
    for view in views:
        if beyond := [node for node in view.nodes if node >> (max_depth + 1)]:
            raise Malformed(f"tree {view.index}: node {beyond[0]} is deeper than the job's trees")
    return [view for view in views if view.complete], [view for view in views if not view.complete]


def _rows(replay: TranscriptReplay, total: int, trees: list[TreeView]) -> Ints | None:
    """Rows of the own table by position. Records may be realigned before the first tree, never after it."""
    recorded = {attempt: rows for attempt, rows in replay.alignments.items() if (rows != FORGOTTEN).any()}
    whole = {attempt: rows for attempt, rows in recorded.items() if len(rows) == total}
    # attempts that grew trees agree; before the first tree the last alignment counts
    in_force = {tree.attempt for tree in trees} & whole.keys() or set(list(whole)[-1:])
    common: Ints | None = None
    for attempt in sorted(in_force):
        rows = whole[attempt]
        if len(np.unique(known := rows[rows != FORGOTTEN])) != len(known):
            raise Malformed(f"attempt {attempt}: a row of the party's table is aligned as two records")
        if common is not None and not np.array_equal(common, rows):
            raise Malformed("two attempts that grew trees differ in which rows the common records are")
        common = rows
    return common


def _traffic(replay: TranscriptReplay, *, sent: bool) -> list[dict[str, Any]]:
    """Messages and bytes by class, peer and step, as a document has them."""
    return [
        {
            "class": disclosure,
            "to" if sent else "from": peer,
            "step": step,
            "messages": messages,
            "bytes": replay.bytes[was_sent, peer, step, disclosure],
        }
        for (was_sent, peer, step, disclosure), messages in sorted(replay.messages.items())
        if was_sent == sent
    ]


def read_label_holder(
    path: Path,
    job: str | None = None,
    party: str | None = None,
    ca: Path | None = None,
    revoked: Path | None = None,
    *,
    epochs: Collection[int] | None = None,
) -> View:
    """Read a label holder's view, in one pass: `embeddings` of a split network, `opened` sums of a job of trees.

    `epochs`: those, from 0, whose embeddings are held; None: the last one of which the transcript has all. The other
    arguments, and what else is read and reported: see `read_view`.

    Raises:
        BadInput: there is no such transcript, it is not one of a label holder's training, it holds no embeddings or
            opened sums, or it takes up too much memory: name fewer epochs.
        Malformed: see `read_view`; also where a party that is no feature party has sent embeddings or sums.
    """
    kept = None if epochs is None else frozenset(epochs)
    return read_view(path, job, party, ca, revoked, lambda: NetworkMessages(EMBEDDINGS, kept, newest=kept is None))
