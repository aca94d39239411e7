"""What a party of a PIVODL job knows of each tree: from messages that name records or numbers, and its own splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.attacks.view.known_trees import TreeView
from treetap.attacks.view.received_rows import TreeReplay, contents
from treetap.errors import Malformed
from treetap.trees.candidates import Shape
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import stopped_by
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, pivodl_pb2

# The messages of a PIVODL job that name records or numbers in plaintext, as a transcript brings them.
#
# Ciphertexts are counted by class like any message, and not kept: a party's transcript has no key.


#: Steps of a tree whose messages are kept, by level and sender.
OF_TREES = ("node_sums", "best_gains", "divided_nodes", "node_records", "leaf_weights")
#: Of these, the ones whose content a party knows also when it is the sender.
SENT = ("node_sums", "best_gains", "leaf_weights")
#: Most bins of a column, the one of missing values included, whose numbers take one byte each.
_ONE_BYTE = 256


@dataclass(frozen=True, eq=False)
class ReceivedBins:
    """A source's columns, by number, for the m records that a party labels: shapes, and bins (m, columns).

    Missing has the number of bins, as in `treetap.trees.binning`.
    """

    shapes: tuple[Shape, ...]
    codes: Ints = field(repr=False)


#: Messages that a party received before the first tree, and lists of records of wire form "paper", by step, attempt and
#: sender: the parts that are kept of them, each under its place.
SharedParts = defaultdict[tuple[str, int, str], dict[Any, Any]]
#: Step → the parts of its message.
SHARED: Mapping[str, Callable[[exchange_pb2.PeerMessage], dict[Any, Any]]] = {
    "labelled_records": lambda it: {it.part: list(it.protocol.pivodl.labelled_records.chunks)},
    "record_bins": lambda it: {
        (column.column, column.first): column for column in it.protocol.pivodl.record_bins.columns
    },
    "candidate_records": lambda it: {
        (it.round, it.stage, it.part): sum(len(listed.records) for listed in it.protocol.pivodl.candidate_records.sets)
    },
}


def _ownership(shared: SharedParts, party: str, parties: list[str], total: int) -> dict[str, Ints]:
    """Party → the records that it labels; the transcript's party labels those that no other does.

    Empty where the transcript does not have every other party's. Raises Malformed if two parties label a record.
    """
    others = [name for name in parties if name != party]
    for attempt in sorted({attempt for step, attempt, _ in shared if step == "labelled_records"}, reverse=True):
        received = {name: parts for name in others if (parts := shared.get(("labelled_records", attempt, name)))}
        # an interrupted attempt may lack the message of some party; an earlier one says the same
        if len(received) == len(others):
            labelled = {
                name: rows_of((chunk for _, chunks in sorted(parts.items()) for chunk in chunks), total)
                for name, parts in received.items()
            }
            times = np.zeros(total, dtype=np.int64)
            for rows in labelled.values():
                times[rows] += 1
            if (times > 1).any():
                raise Malformed("two parties are said to label the same record")
            return {name: labelled.get(name, np.flatnonzero(times == 0)) for name in parties}
    return {}


def _code_type(part: pivodl_pb2.ColumnBins) -> np.dtype[Any]:
    """The type of a column's bins in a message."""
    return np.dtype("u1" if part.bins + part.has_missing <= _ONE_BYTE else "<u2")


def _whole(peer: str, parts: dict[tuple[int, int], pivodl_pb2.ColumnBins], labelled: int) -> ReceivedBins | None:
    """The columns of one source; None where parts are missing, as of an attempt that was cut short."""
    shapes: dict[int, Shape] = {}
    codes: dict[int, list[Ints]] = {}
    for (column, first), part in sorted(parts.items()):
        kind, shape = _code_type(part), Shape(part.bins, part.has_missing)
        if len(part.codes) % kind.itemsize or shapes.setdefault(column, shape) != shape:
            raise Malformed(f"{peer} sent bins of column {column} that contradict each other")
        numbers = np.frombuffer(part.codes, dtype=kind).astype(np.int64)
        if len(numbers) and int(numbers.max()) >= part.bins + part.has_missing:
            raise Malformed(f"{peer} sent a bin outside column {column}'s {part.bins} bins")
        if first != sum(map(len, codes.setdefault(column, []))):
            return None
        codes[column].append(numbers)
    columns = [np.concatenate(codes[column]) for column in sorted(codes)]
    if sorted(codes) != list(range(len(codes))) or any(len(column) != labelled for column in columns):
        return None
    return ReceivedBins(tuple(shapes[column] for column in sorted(shapes)), np.stack(columns, axis=1))


#: Beyond the sums of any table: 2^30 records of gradients below 2^32.
_MOST = 2**62


@dataclass(frozen=True)
class Split:
    """A split of any party: its source, and which children may be split further; `opener`: None if no message says."""

    source: str
    left_open: bool
    right_open: bool
    opener: str | None


@dataclass(frozen=True, eq=False)
class Weight:
    """A leaf's weight (K,) as the party knows it; `exact`: without noise."""

    value: Floats
    exact: bool


@dataclass(frozen=True, eq=False)
class PivodlTree:
    """One complete tree of PIVODL as one party knows it, beside its `TreeView`.

    Attributes:
        splits: node → its split, of every node that was split.
        sums: node → (2K,) fixed-point sums of g and h.
        gains: (node, source) → the announced gain, in units of 2^-24.
        opened_by_source: announcements of a gain by its own source, which no draw of an honest run permits.
        weights: leaf → its weight.
        labelled: leaf → those of its records that this party labels, of leaves below other parties' splits.
        taken: node → the place of the winner among the opened sums, of nodes whose winner this party opened.
        opened: (node, source) → (candidates, 2K) the sums that it opened as split party, in the source's secret order;
            empty unless the party recorded them.
    """

    view: TreeView
    splits: Mapping[int, Split]
    sums: Mapping[int, Ints] = field(repr=False)
    gains: Mapping[tuple[int, str], int] = field(repr=False)
    opened_by_source: int
    weights: Mapping[int, Weight] = field(repr=False)
    labelled: Mapping[int, Ints] = field(repr=False)
    taken: Mapping[int, int] = field(default_factory=dict, repr=False)
    opened: Mapping[tuple[int, str], Ints] = field(default_factory=dict, repr=False)

    @property
    def leaves(self) -> list[int]:
        """All leaves, by number."""
        children = (child for node in self.splits for child in (2 * node, 2 * node + 1))
        return sorted(child for child in children if child not in self.splits) if self.splits else [ROOT]

    @property
    def open(self) -> list[int]:
        """Nodes that the stopping rules let be split, whether or not they were."""
        nodes = [ROOT]
        for node, split in sorted(self.splits.items()):
            nodes += [2 * node] * split.left_open + [2 * node + 1] * split.right_open
        return nodes

    def source_above(self, leaf: int) -> str | None:
        """The source of the split above a leaf, which gets its weight with noise; None at the root."""
        return None if leaf == ROOT else self.splits[leaf >> 1].source

    def records(self, node: int) -> Ints | None:
        """The records of a node, if the party knows all of them."""
        known = self.view.nodes.get(node)
        return None if known is None else known.records


@dataclass(frozen=True, eq=False)
class PivodlView:
    """One party's knowledge of a PIVODL job.

    Attributes:
        ownership: party → the records that it labels; empty where the transcript does not say.
        bins: source → the number of its bins that this party received.
        listed: ids of records in lists of candidates, of a job as published.
        columns: source → its bins of the records that this party labels.
        trees: the complete trees that are in the transcript from their beginning, in order.
    """

    party: str
    parties: list[str]
    params: PivodlParams
    ownership: Mapping[str, Ints] = field(repr=False)
    bins: Mapping[str, int]
    listed: int
    trees: tuple[PivodlTree, ...] = field(repr=False)
    columns: Mapping[str, ReceivedBins] = field(default_factory=dict, repr=False)

    @property
    def own(self) -> Ints:
        """The records that this party labels."""
        return self.ownership.get(self.party, np.zeros(0, dtype=np.int64))

    def owner(self, records: int) -> Ints:
        """(N,) the place among `parties` of the party that labels each record."""
        places = np.full(records, -1, dtype=np.int64)
        for place, name in enumerate(self.parties):
            places[self.ownership.get(name, np.zeros(0, dtype=np.int64))] = place
        return places


def pivodl_view(
    party: str,
    parties: list[str],
    params: PivodlParams,
    shared: SharedParts,
    trees: list[tuple[TreeReplay, TreeView]],
    total: int,
) -> PivodlView:
    """Build it from the replay of one party's transcript. Raises Malformed if messages contradict each other."""
    ownership = _ownership(shared, party, parties, total)
    made = [_tree(party, params, ownership, *grown) for grown in trees] if ownership else []
    # bins of every attempt are the same; an interrupted one may lack some
    sent = [(peer, parts) for (step, _, peer), parts in sorted(shared.items()) if step == "record_bins" and parts]
    bins = {peer: sum(len(part.codes) // _code_type(part).itemsize for part in parts.values()) for peer, parts in sent}
    listed = sum(sum(parts.values()) for (step, *_), parts in shared.items() if step == "candidate_records")
    received = {peer: _whole(peer, parts, len(ownership[party])) for peer, parts in sent} if ownership else {}
    columns = {peer: whole for peer, whole in received.items() if whole is not None}
    return PivodlView(party, parties, params, ownership, bins, listed, tuple(made), columns)


def _tree(
    party: str, params: PivodlParams, ownership: Mapping[str, Ints], replay: TreeReplay, view: TreeView
) -> PivodlTree:
    splits = _splits(party, params, ownership, replay, view)
    closed = {2 * node for node, split in splits.items() if not split.left_open}
    closed |= {2 * node + 1 for node, split in splits.items() if not split.right_open}
    labelled = {
        node: rows_of(chunks, view.total)
        for node, chunks in replay.spaces("node_records")
        if node in closed or node >> 1 not in splits
    }
    weights, keepers = _known_weights(party, params, replay, splits)
    sums = {
        it.node: np.array(it.sums, dtype=np.int64)
        for _, _, series in (*replay.of("node_sums"), *replay.of("node_sums", sent=True))
        for message in contents(series, "node_sums")
        for it in message.nodes
    }
    announced = {  # (node, source, party that announced it) → the gain
        (it.node, it.source, party if sent else peer): it.gain
        for sent in (False, True)
        for peer, _, series in replay.of("best_gains", sent=sent)
        for message in contents(series, "best_gains")
        for it in message.gains
    }
    gains = {(node, source): gain for (node, source, _), gain in announced.items()}
    by_source = sum(source == announcer for _, source, announcer in announced)
    splits = {
        node: Split(it.source, it.left_open, it.right_open, it.opener or keepers.get(node))
        for node, it in sorted(splits.items())
    }
    taken = {
        it.node: it.place
        for _, _, series in replay.of("divided_nodes")
        for message in contents(series, "divided_nodes")
        for it in message.nodes
        if it.HasField("place")
    }
    opened = replay.opened.nodes
    if (root := opened.pop((ROOT, party), None)) is not None:  # opened by this party, which told the others
        sums.setdefault(ROOT, root.reshape(-1))
    tree = PivodlTree(view, splits, sums, gains, by_source, weights, labelled, taken, opened)
    _check(tree, params.width)
    return tree


def _splits(
    party: str, params: PivodlParams, ownership: Mapping[str, Ints], replay: TreeReplay, view: TreeView
) -> dict[int, Split]:
    """Node → its split, those of other parties by messages and the own ones. Raises Malformed for one below a leaf."""
    splits = {
        it.node: Split(peer, it.left_open, it.right_open, party if it.HasField("place") else None)
        for peer, _, series in replay.of("divided_nodes")
        for message in contents(series, "divided_nodes")
        for it in message.nodes
    }
    for node in (node for node, known in view.nodes.items() if known.split is not None):
        left_open, right_open = (_may_be_split(params, ownership, view, child) for child in (2 * node, 2 * node + 1))
        splits[node] = Split(party, left_open, right_open, None)
    for node in splits:
        if node != ROOT and node >> 1 not in splits:
            raise Malformed(f"tree {view.index}: node {node} is split, and no node above it")
    return splits


def _known_weights(
    party: str, params: PivodlParams, replay: TreeReplay, splits: Mapping[int, Split]
) -> tuple[dict[int, Weight], dict[int, str]]:
    """Leaf → its weight, exact where some message has it without noise; node above a leaf → who keeps the weight."""
    weights: dict[int, Weight] = {}
    keepers: dict[int, str] = {}
    told = [(sent, *received) for sent in (False, True) for received in replay.of("leaf_weights", sent=sent)]
    for sent, peer, _, series in told:
        for leaf in (it for message in contents(series, "leaf_weights") for it in message.leaves):
            above = leaf.node >> 1
            source = splits[above].source if leaf.node != ROOT and above in splits else None
            # the source of a leaf gets its weight with noise, every other party as it is
            exact = params.epsilon is None or (peer if sent else party) != source
            if leaf.node not in weights or exact:
                weights[leaf.node] = Weight(np.array(leaf.weight, dtype=np.float64), exact)
            keepers[above] = party if sent else peer
    return weights, keepers


def _check(tree: PivodlTree, width: int) -> None:
    """Malformed where numbers are of no node of the tree, or not those of the job's outputs."""
    where, leaves = f"tree {tree.view.index}", set(tree.leaves)
    for leaf, weight in tree.weights.items():
        if leaf not in leaves or weight.value.shape != (width,) or not np.isfinite(weight.value).all():
            raise Malformed(f"{where}: the weight of node {leaf} is none of a leaf")
    for node, sums in tree.sums.items():
        if node not in leaves | tree.splits.keys() or sums.shape != (2 * width,) or (np.abs(sums) > _MOST).any():
            raise Malformed(f"{where}: the sums of node {node} are none")
    for (node, source), opened in tree.opened.items():
        if node not in leaves | tree.splits.keys() or opened.shape[1:] != (2 * width,):
            raise Malformed(f"{where}: the sums of {source} that it opened at node {node} are none")


def _may_be_split(params: PivodlParams, ownership: Mapping[str, Ints], view: TreeView, child: int) -> bool:
    """False where the stopping rules make a leaf of a child of an own split: depth, records, labelled records."""
    records = view.nodes[child].records
    if child.bit_length() - 1 >= params.max_depth or len(records) < params.min_samples:
        return False
    if params.as_published:
        return True
    inside = np.zeros(view.total, dtype=bool)
    inside[records] = True
    labelled = {name: int(inside[rows].sum()) for name, rows in ownership.items() if len(rows)}
    return not stopped_by(labelled, params.instance_threshold)
