"""A party's view: all that it could know of each tree, from its own transcript alone.

A view combines instance spaces from messages, children of the party's own splits, and sets that follow from these by
repeatedly subtracting a known child from a known parent (Takahashi, Liu, Liu, "Eliminating Label Leakage in Tree-based
Vertical Federated Learning", section 4.2, names the first two).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attacks.view.known_trees import Ints, TreeView
from attacks.view.network_view import NetworkView, lost_batches, network_view
from attacks.view.pivodl_view import PivodlView, pivodl_view
from attacks.view.replay import TranscriptReplay, TreeReplay, read_replay
from attacks.view.transcripts import located
from treetap.errors import BadInput, ConfigError, Malformed
from treetap.neural.params import SplitnnParams
from treetap.protocols.job_spec import check_spec, params_of
from treetap.protocols.registry import training, training_name
from treetap.trees.ensemble import ROOT
from treetap.trees.job_params import REGRESSIONS, JobParams
from treetap.trees.params import TreeParams
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.signed_heads import Anchor
from treetap.wire.v2 import setup_pb2


class Traffic(NamedTuple):
    """Messages that carried a disclosure class, and bytes of that class; `peer`: their sender or receiver."""

    disclosure: str
    peer: str
    step: str
    messages: int
    bytes: int


@dataclass(frozen=True, eq=False)
class View:
    """The knowledge of one feature party about one training job.

    `path`: the transcript's folder or file. `records`: N, the records common to all parties; positions in trees are in
    their common order. `rows`: (N,) their rows in the party's own table, from 0; None if the transcript
    does not have them. `own_digest`: SHA-256 of the party's sorted ids, where the transcript holds it.
    `trees`: the last complete growth of each tree, by index; `unfinished`: trees that were begun and never completed,
    as of their last growth. `attempt`: the newest one. `finished`: the model was published.
    `max_depth`, `objective`, `missing` (a value that means missing, or None): parameters of the job.
    `sent` is empty unless the party recorded both directions. `faults`: gaps of the transcript that limit every result.
    `anchor`: what its signatures show. `pivodl`: what it knows beside, of a PIVODL job; there `label_holder` has all
    parties that label records. `network`: its gradients, of a split network, which has no trees (`max_depth` 0).
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
    max_depth: int
    objective: str
    missing: float | None
    received: tuple[Traffic, ...] = field(repr=False)
    sent: tuple[Traffic, ...] = field(repr=False)
    faults: tuple[str, ...]
    anchor: Anchor = field(default_factory=lambda: Anchor("empty"))
    pivodl: PivodlView | None = field(default=None, repr=False)
    network: NetworkView | None = field(default=None, repr=False)

    @property
    def regression(self) -> bool:
        """True if the label is a number rather than a class."""
        return self.objective in REGRESSIONS

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
) -> View:
    """Read the view of the party whose transcript is at `path` (see `attacks.view.transcripts.located`), in one pass.

    `job`: required if there are several. `party`: the transcript's owner; required only if the transcript does not
    identify it, as when one of three parties has won no split and exchanged messages with the label holder alone.
    `ca`: file of the federation's authority, by which signatures are verified; `revoked`: its list of revoked
    certificates, by which they are judged.

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
        replay, faults, anchor = read_replay(place, ca, revoked)
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
    params = _params(spec)
    name = _whose(path, replay, spec, party)
    total = _total(replay)
    max_depth = params.max_depth if isinstance(params, TreeParams) else 0
    trees, unfinished = _trees(path, replay, total, max_depth)
    if gaps := _gaps([tree.index for tree in trees]):
        faults.append(f"{path}: trees {gaps} are not in the transcript: recording began later")
    network = _network(name, spec, params, replay, total)
    faults += [] if network is None else [f"{path}: {gap}" for gap in lost_batches(network)]
    if not replay.finished:
        done = f"{len(trees)} complete trees" if network is None else f"gradients of {len(network.epochs)} epochs"
        faults.append(
            f"{path}: ends before its job does (after {done}): the job runs or was interrupted, "
            "or the end of the transcript is missing"
        )
    pivodl = None
    if isinstance(params, PivodlParams):
        parties = [spec.aggregator, *spec.feature_parties]
        grown = [(replay.trees_by_attempt[tree.index, tree.attempt], tree) for tree in trees]
        pivodl = pivodl_view(name, parties, params, replay.shared, grown, total)
    rows = _rows(replay, total, [*trees, *unfinished])
    if rows is None:
        faults.append(f"{path}: does not say which rows of its party's table the {total} common records are")
    return View(
        path=path,
        party=name,
        job=replay.job,
        protocol=training_name(spec),
        label_holder=spec.aggregator if pivodl is None else _label_holders(pivodl),
        attempt=max(replay.attempts),
        records=total,
        rows=rows,
        own_digest=replay.own_digest if spec.alignment == "sorted-ids" else None,
        trees=tuple(trees),
        unfinished=tuple(unfinished),
        finished=replay.finished,
        max_depth=max_depth,
        objective=params.objective,
        missing=None if math.isnan(params.missing) else params.missing,
        received=_traffic(replay, sent=False),
        sent=_traffic(replay, sent=True),
        faults=tuple(faults),
        anchor=anchor,
        pivodl=pivodl,
        network=network,
    )


def _label_holders(view: PivodlView) -> str:
    """The parties that label records; all of the job before they have said which."""
    return ", ".join(name for name in view.parties if len(view.ownership.get(name, [0])))


def _network(
    party: str, spec: setup_pb2.JobSpec, params: JobParams, replay: TranscriptReplay, total: int
) -> NetworkView | None:
    """The view of a split network; None of another job. Raises Malformed if another party sent gradients."""
    if not isinstance(params, SplitnnParams):
        return None
    if foreign := sorted(replay.network.senders - {spec.aggregator}):
        raise Malformed(f"{foreign[0]}, which is not the label holder, has sent gradients")
    return network_view(party, params, total, replay.network)


def _params(spec: setup_pb2.JobSpec) -> JobParams:
    """The job's parameters, once it is known to be a job that parties take part in."""
    try:
        check_spec(spec)
        return params_of(spec)
    except ConfigError as fault:
        raise Malformed(f"the job that it records is none: {fault}") from None


def _gaps(indices: list[int]) -> str:
    """The trees before the last one that are not among these, as ranges; empty if there are none."""
    ranges = [(before + 1, after - 1) for before, after in pairwise([-1, *indices]) if after - before > 1]
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in ranges)


def _whose(path: Path, replay: TranscriptReplay, spec: setup_pb2.JobSpec, party: str | None) -> str:
    """The transcript's party: no party receives its own messages, or is asked to apply another party's splits."""
    members = [spec.aggregator, *spec.feature_parties]
    if len(replay.owners) > 1:
        raise Malformed(f"holds records of several parties: {', '.join(sorted(replay.owners))}")
    possible = [name for name in members if name not in replay.peers and replay.owners <= {name}]
    if not possible:
        raise Malformed("holds records of several parties")
    if party is not None and party not in possible:
        raise BadInput(f"{path}: is not the transcript of {party}, but of {' or '.join(possible)}")
    chosen = party or possible[0]
    if training(training_name(spec)).one_role:
        if party is None and len(possible) > 1:
            raise BadInput(f"{path}: does not say whose transcript it is; name one of {', '.join(possible)}")
        return chosen
    if chosen == spec.aggregator and (party or len(possible) == 1):
        raise BadInput(f"{path}: is the transcript of {chosen}, the label holder, which knows the labels")
    features = [name for name in possible if name != spec.aggregator]
    if party is None and len(features) > 1:
        raise BadInput(f"{path}: does not say whose transcript it is; name one of {', '.join(features)}")
    return party or features[0]


def _total(replay: TranscriptReplay) -> int:
    """N, on which all sets of records must agree; before the first set, the number of aligned records."""
    totals = {total for tree in replay.trees_by_attempt.values() for total in tree.totals()}
    if len(totals) > 1:
        raise Malformed(f"its sets are of {' and of '.join(map(str, sorted(totals)))} records")
    return totals.pop() if totals else max((sum(map(len, parts)) for parts in replay.alignments.values()), default=0)


def _trees(path: Path, replay: TranscriptReplay, total: int, max_depth: int) -> tuple[list[TreeView], list[TreeView]]:
    """Complete and unfinished trees: of each tree the last complete growth, else the last one."""
    last: dict[int, TreeReplay] = {}
    for (index, _), tree in sorted(replay.trees_by_attempt.items()):  # a later attempt comes later
        if tree.stored or index not in last or not last[index].stored:
            last[index] = tree
    try:
        everybody = replay.budget.rows(total)
        views = [tree.view(everybody, replay.budget) for _, tree in sorted(last.items())]
    except BadInput as fault:
        raise BadInput(f"{path}: {fault}") from None
    for view in views:
        if beyond := [node for node in view.nodes if node >> (max_depth + 1)]:
            raise Malformed(f"tree {view.index}: node {beyond[0]} is deeper than the job's trees")
    return [view for view in views if view.complete], [view for view in views if not view.complete]


def _rows(replay: TranscriptReplay, total: int, trees: list[TreeView]) -> Ints | None:
    """Rows of the own table by position. Records may be realigned before the first tree, never after it."""
    recorded = {attempt: np.concatenate(parts) for attempt, parts in replay.alignments.items() if parts}
    whole = {attempt: rows for attempt, rows in recorded.items() if len(rows) == total}
    in_force = {tree.attempt for tree in trees} & whole.keys() or set(list(whole)[-1:])
    found: Ints | None = None
    for attempt in sorted(in_force):
        rows = whole[attempt]
        if len(np.unique(rows)) != len(rows):
            raise Malformed(f"attempt {attempt}: a row of the party's table is aligned as two records")
        if found is not None and not np.array_equal(found, rows):
            raise Malformed("two attempts that grew trees differ in which rows the common records are")
        found = rows
    return found


def _traffic(replay: TranscriptReplay, *, sent: bool) -> tuple[Traffic, ...]:
    return tuple(
        Traffic(key.disclosure, key.peer, key.step, messages, replay.bytes[key])
        for key, messages in sorted(replay.messages.items())
        if key.sent == sent
    )
