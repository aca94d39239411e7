"""Messages of a training that grows trees, and the sizes of which their lengths follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import (
    LEFT,
    LONGEST_NAME,
    PUBLIC_KEY,
    JobSizes,
    MessageRow,
    Series,
    aligned_apart,
    always,
    at_most,
    each_round,
    each_stage,
    from_feature_parties,
    label_holder_reports,
    once,
    planned_rounds,
    to_each_other,
    to_feature_parties,
    to_label_holder,
)

if TYPE_CHECKING:
    from treetap.trees.params import TreeParams
    from treetap.wire.v2 import setup_pb2

#: Most classes of a label, of which each may have a tree per round.
MOST_CLASSES = 1 << 16
#: Most columns of a party, each of which has up to `max_bin` candidates; more where several sums fit a ciphertext.
MOST_COLUMNS = 1 << 12
#: Bytes of a node's number.
_NODE = 5
#: Bytes of a place of a candidate, and of a split beside its places.
_PLACE, _SPLIT = 5, 32
#: Bytes of a partition beside a bit for each category.
_PARTITION = 32
#: Most records in a block of a lattice's words, of zeros too; most bytes of a word; most of a number of a reply.
_BLOCK, _WORD, _REPLY = 4096, 13, 8
#: Bytes of a switch, its tag included.
_SWITCH = 2
#: Bytes of a branch with its handle of 63 bits.
_BRANCH = 16


@dataclass(kw_only=True)
class TreeSizes(JobSizes):
    """Sizes of a job that grows trees.

    Attributes:
        params: of the job.
        announced: by feature party, the candidates of a node over all its columns, under a lattice.
        merging: of these, the parties that merge their bins.
        noised: True if sums of a party have noise.
        nodes_per_query: nodes that the words of one query serve, under a lattice.
        offered: by feature party, the tree whose root it offered candidates at last, and their number.
        sums_of_each: sums that come for a candidate.
        words: of a record, under a lattice.
        places: the most places of candidates that a node of this party has.
        categories: the numbers of this party's categories that are partitioned, by column.
        share_words: of 64 bits of a number that is shared; `rounds_of`: most bytes that a feature party or the label
            holder sends the other to compare so many nodes.
    """

    params: TreeParams
    announced: dict[str, int] = field(default_factory=dict)
    merging: frozenset[str] = frozenset()
    noised: bool = False
    nodes_per_query: int = 1
    offered: dict[str, tuple[int, int]] = field(default_factory=dict)
    sums_of_each: int = 1
    words: int = 0
    places: int = 0
    categories: Sequence[int] = ()
    share_words: int = 0
    rounds_of: Callable[[str, int], int] = lambda _party, _nodes: 0

    def __post_init__(self) -> None:
        self.stages = self.params.expansion.most_stages

    def nodes(self, depth: int) -> int:
        """Most nodes of a depth: each has a record, unless trees are padded."""
        return 1 << depth if self.params.pad_trees else min(1 << depth, max(self.records, 1))

    def built(self, stage: int) -> int:
        """Most nodes whose sums are made at a stage."""
        return min(self.params.expansion.most_compared(stage), self.nodes(self.params.max_depth - 1))

    def candidates(self, series: Series) -> int:
        """Most candidates of a node: as many as the sender offered at the tree's root, where that is known."""
        most = self.announced.get(series.sender, MOST_COLUMNS * min(self.params.max_bin + 1, 2 * self.records))
        tree, offered = self.offered.get(series.sender, (series.round, 0))
        if series.stage == 0:
            return most
        return min(most, offered if tree == series.round else 0)


ciphertexts = at_most(lambda sizes: sizes.records * sizes.ciphertext_bytes, "A ciphertext for each record.")


def sums_of_nodes(sizes: TreeSizes, series: Series) -> int:
    """The sums of each candidate of each node that is built; a ciphertext holds one of them at least."""
    nodes = sizes.built(series.stage)
    if sizes.words:  # new second halves for every node at most
        return nodes * (_NODE + sizes.candidates(series) * (sizes.words + _BLOCK) * _REPLY)
    return nodes * (_NODE + sizes.sums_of_each * sizes.candidates(series) * sizes.ciphertext_bytes)


def words_of_nodes(sizes: TreeSizes, series: Series) -> int:
    """For each node that is built, or as many as share a query, the words of every record and of a block of zeros."""
    queries = -(-sizes.built(series.stage) // sizes.nodes_per_query)
    return queries * (_NODE + (sizes.records + _BLOCK) * sizes.words * _WORD)


def by_lattice(spec: setup_pb2.JobSpec) -> bool:
    """True if a lattice takes the place of a key."""
    return KeyKind.of(spec).on_lattice


def sets_sent(spec: setup_pb2.JobSpec) -> bool:
    """True if feature parties get the drawn records and instance spaces."""
    from treetap.protocols.job_spec import params_as  # it imports the registry, which names this module's users
    from treetap.trees.params import TreeParams

    return not params_as(spec, TreeParams).withheld  # type: ignore[type-abstract] # of any protocol


def sums_shared(spec: setup_pb2.JobSpec) -> bool:
    """True if nobody opens sums of candidates."""
    return spec.sums == "shared"


def sums_opened(spec: setup_pb2.JobSpec) -> bool:
    """True if the label holder opens them."""
    return not sums_shared(spec)


def sets_permissions(spec: setup_pb2.JobSpec) -> Sequence[str]:
    """The switches of a feature party's policy for a job that shows it no set, or has records that it lacks."""
    withheld = () if sets_sent(spec) else ("withheld_spaces",)
    return (*withheld, *(("left_join",) if spec.join == LEFT else ()))


def screened(spec: setup_pb2.JobSpec) -> bool:
    """True if the job sums over columns once, for a report, and grows no tree."""
    return spec.screen


def unless_screened(when: Callable[[setup_pb2.JobSpec], bool] = always) -> Callable[[setup_pb2.JobSpec], bool]:
    """True where `when` is and nodes are split, which no screening does."""
    return lambda spec: not spec.screen and when(spec)


def by_key(spec: setup_pb2.JobSpec) -> bool:
    """True if ciphertexts are added under a key."""
    return not by_lattice(spec)


def partitions_of_nodes(sizes: TreeSizes, _series: Series) -> int:
    """A bit for each category, of each column of each node; all may tie."""
    one = _PARTITION + max(sizes.categories, default=0) // 8
    return sizes.nodes(sizes.params.max_depth - 1) * len(sizes.categories) * one


def sets_withheld(spec: setup_pb2.JobSpec) -> bool:
    """True if feature parties get no set of records, so that left bits come by oblivious transfer."""
    return not sets_sent(spec)


def choices_of_nodes(sizes: TreeSizes, _series: Series) -> int:
    """16 bytes for each record, rounded up to 64 records, of each node that the receiver won; all may be its own."""
    return sizes.nodes(sizes.params.max_depth - 1) * (_NODE + 16 * 64 * -(-sizes.records // 64))


def left_records(sizes: TreeSizes, _series: Series) -> int:
    """Of each node that the sender won the records that go left, or a bit for each of all records."""
    if sizes.params.withheld:
        return sizes.nodes(sizes.params.max_depth - 1) * sizes.record_set()
    return sizes.record_sets(sizes.nodes(sizes.params.max_depth))


def branches_of_leaves(sizes: TreeSizes, _series: Series) -> int:
    """The receiver's branches on the path to each leaf; all may be its own."""
    depth = sizes.params.max_depth
    return sizes.nodes(depth) * _BRANCH * (depth + 1)


#: On a lattice, in the place of ciphertexts under a key.
_CANDIDATES = at_most(2 * (_NODE + 1) + 2 * _SWITCH, "Two numbers and two switches, their tags included.")
_PRIVACY = at_most(2 * 9 + _NODE + 1, "Two floating-point numbers and a whole one, their tags included.")
_DIGESTS = at_most(68, "32 bytes each.")
_SPLITS, _BITS = unless_screened(), unless_screened(sets_withheld)
_POINT, _POINTS = at_most(36, "A point of 32 bytes."), at_most(128 * 32 + 4, "128 points of 32 bytes.")
WORDS = MessageRow(
    "encrypted_words",
    to_feature_parties,
    each_stage,
    words_of_nodes,
    step="begin_tree",
    also=("relay_children", "choose_splits"),
    when=by_lattice,
)
#: What goes before them.
ON_LATTICE = (
    MessageRow("candidate_count", to_label_holder, once, _CANDIDATES, step="take_key", when=by_lattice),
    MessageRow("seed_commitment", to_each_other, once, _DIGESTS, step="make_keys", when=by_lattice),
    MessageRow("seed_nonce", to_each_other, once, _DIGESTS, step="make_keys", when=by_lattice),
    MessageRow("base_points", to_feature_parties, once, _POINT, step="make_keys", when=_BITS),
    MessageRow("base_choices", to_label_holder, once, _POINTS, step="take_key", when=_BITS),
    MessageRow("planned_traffic", label_holder_reports, step="make_keys", when=by_lattice),
)
#: What a label holder says where its own records are the job's.
LACKED = MessageRow(
    "lacked_records",
    to_feature_parties,
    once,
    at_most(_SWITCH, "A switch."),
    step="bin",
    perhaps=frozenset({"BLINDED_ID"}),
    when=aligned_apart,
)
#: What a feature party says of the order of its opened sums in a screening; names go only where its policy lets them.
_SCREENED = MessageRow(
    "screened_columns",
    to_label_holder,
    each_round,
    at_most(MOST_COLUMNS * (4 * LONGEST_NAME + 32), "The name and three numbers of each column."),
    step="build_histograms",
    perhaps=frozenset({"FEATURE_NAME"}),
    when=lambda spec: screened(spec) and sums_opened(spec),
)
#: The answer by which it ends, without figures of a tree.
SCREENING = (
    _SCREENED,
    MessageRow(
        "finished_tree", label_holder_reports, step="choose_splits", perhaps=frozenset({"METRIC"}), when=screened
    ),
)
#: What a party with `column_privacy` says of its noise.
NOISED = MessageRow("noised_sums", from_feature_parties, once, _PRIVACY, step="bin", by_tables=True)
#: Further steps in which a tree may be finished.
FINISHING = ("choose_splits", "begin_tree")
#: Of every training that grows trees, in the order in which they come.
GROWTH = (
    planned_rounds("bin"),
    LACKED,
    *PUBLIC_KEY,
    MessageRow(
        "sampled_records",
        to_feature_parties,
        each_round,
        at_most(
            lambda sizes: sizes.record_sets(sizes.records),
            "The drawn records: one set, or those drawn once, twice, and so on.",
        ),
        step="begin_tree",
        when=sets_sent,
    ),
    MessageRow(
        "candidate_sums",
        to_label_holder,
        each_stage,
        sums_of_nodes,
        step="build_histograms",
        perhaps=frozenset({"MONOTONE_DIRECTION"}),
    ),
    MessageRow("chosen_splits", label_holder_reports, step="choose_splits", when=_SPLITS),
    MessageRow(
        "won_splits",
        to_feature_parties,
        each_stage,
        at_most(
            lambda sizes: sizes.nodes(sizes.params.max_depth - 1) * (_SPLIT + _PLACE * sizes.places),
            "The places of the candidates that won, of each node; all may tie.",
        ),
        step="choose_splits",
        when=unless_screened(sums_opened),
    ),
    MessageRow(
        "chosen_partitions",
        to_feature_parties,
        each_stage,
        partitions_of_nodes,
        step="choose_splits",
        when=_SPLITS,
        by_tables=True,
    ),
    MessageRow("left_choices", to_feature_parties, each_stage, choices_of_nodes, step="choose_splits", when=_BITS),
    MessageRow("children", to_label_holder, each_stage, left_records, step="apply_splits", when=_SPLITS),
    MessageRow(
        "instance_spaces",
        to_feature_parties,
        each_stage,
        at_most(
            lambda sizes: sizes.record_sets(sizes.nodes(sizes.params.max_depth)),
            "The records of each node that may be split and does not come of the receiver's splits.",
        ),
        step="relay_children",
        also=("choose_splits",),
        when=unless_screened(sets_sent),
    ),
    MessageRow("relayed_children", label_holder_reports, step="relay_children", also=("choose_splits",), when=_SPLITS),
    MessageRow("leaf_paths", to_feature_parties, each_round, branches_of_leaves, step="relay_children", also=FINISHING),
    MessageRow("finished_tree", label_holder_reports, step="relay_children", also=FINISHING, when=_SPLITS),
)
