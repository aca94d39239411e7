"""Messages of a job, a row each: name, who sends it to whom, how often, how long it can be.

A protocol declares the contents of the frame that its roles send beside its parameters. Of a row follow the classes
that a party would send, and to whom, before a job begins (`sent_by`); what a mailbox takes, and how many bytes of it;
and the rows of the protocol's page (`treetap protocol NAME`).

A bound is a function of a job's sizes (`JobSizes`, with more in the protocols' own classes) and of one series. A role
fills these in as it comes to know them; a number that is not known yet is the most that it can be.

Messages that predictions of several protocols share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from treetap.protocols.key_options import KeyKind

if TYPE_CHECKING:
    from treetap.wire.v2 import prediction_pb2, setup_pb2

#: (sender, receiver).
Pairs: TypeAlias = "Iterable[tuple[str, str]]"
#: Bytes of a range of records beside its positions, with the node that it belongs to.
_RANGE = 64
#: Records in a range at most.
_SPAN = 1 << 21


#: The records of a job: those that all parties have, or those of the label holder.
JOINS = INNER, LEFT = ("inner", "left")


@dataclass(frozen=True)
class Members:
    """The parties of a job: the feature parties in the order of the chain, those that are away left out.

    Attributes:
        coordinator: the coordinator's name.
        aggregator: a training's aggregator or a prediction's recipient; the label holder where it alone has labels.
        feature_parties: the other parties, in the order of the chain.
        dealer: who deals the randomness of shared sums, and is no party; empty: nobody.
        pairwise: the label holder aligns its records with each feature party apart.
    """

    coordinator: str
    aggregator: str
    feature_parties: tuple[str, ...]
    dealer: str = ""
    pairwise: bool = False

    def aligned(self, *some: str) -> tuple[str, ...]:
        """The parties of the alignment in which these take part, the aggregator first."""
        others = tuple(party for party in self.feature_parties if party in some)
        return (self.aggregator, *others) if self.pairwise and others else self.parties

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the aggregator first."""
        return (self.aggregator, *self.feature_parties)

    @property
    def processes(self) -> tuple[str, ...]:
        """All that the coordinator conducts: the parties, and the dealer if there is one."""
        return (*self.parties, *filter(None, [self.dealer]))


def members_of(job: setup_pb2.JobSpec | prediction_pb2.OpenModel, coordinator: str) -> Members:
    """All parties that a training job or an opening names, those that are away included."""
    from treetap.wire.v2 import setup_pb2  # as in `classes_of`

    if isinstance(job, setup_pb2.JobSpec):
        return Members(coordinator, job.aggregator, tuple(job.feature_parties), job.dealer, aligned_apart(job))
    return Members(coordinator, job.recipient, tuple(job.feature_parties), pairwise=aligned_apart(job))


def aligned_apart(job: setup_pb2.JobSpec | prediction_pb2.OpenModel) -> bool:
    """True if the label holder aligns its records, which are the job's, with each feature party apart."""
    return job.join == LEFT and job.alignment == "psi"


def places_told(opening: prediction_pb2.OpenModel) -> bool:
    """True if a feature party may lack records of a block, or have them in another order, and hears their places."""
    return opening.look_up or aligned_apart(opening)


@dataclass(kw_only=True)
class JobSizes:
    """Numbers of a job at one party from which the lengths of its messages follow.

    Attributes:
        members: those that are there.
        key: of the job, if it has one.
        records: the party's own ones; the common ones once these are known.
        ids: of the party's own table.
        keys: of these ids, each of which is aligned in a round of its own.
        lists: lengths of other parties' lists of blinded ids by the key at hand, by the owner's place, once known.
        rounds: trees, epochs or blocks.
        stages: of a round.
    """

    members: Members
    key: KeyKind | None = None
    records: int = 0
    ids: int = 0
    keys: int = 1
    lists: dict[int, int] = field(default_factory=dict)
    rounds: int = 1
    stages: int = 1

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of a ciphertext under the job's key."""
        assert self.key is not None
        return self.key.ciphertext_bytes

    def record_set(self) -> int:
        """Bytes of one set of the records."""
        return self.records // 8 + _RANGE * (1 + self.records // _SPAN)

    def record_sets(self, sets: int) -> int:
        """Bytes of sets that have at most all records together."""
        return 5 * self.records + _RANGE * sets * (1 + self.records // _SPAN)


class Series(NamedTuple):
    """Messages of one content that one party sends to another in a round and stage."""

    sender: str
    receiver: str
    round: int = 0
    stage: int = 0


Route: TypeAlias = "Callable[[Members], Pairs]"
#: (sizes, sender, receiver) → the rounds and stages in which a series can come.
Times: TypeAlias = "Callable[[Any, str, str], tuple[range, Collection[int]]]"
#: Most bytes of a series by the job's sizes, of the class that the protocol's roles fill in; its docstring says it.
Bound: TypeAlias = "Callable[[Any, Series], int]"
#: The members of a job that open what others compute on their columns: candidate sums, scores or directions.
OpensSums: TypeAlias = "Callable[[Members], Sequence[str]]"


def always(_spec: setup_pb2.JobSpec) -> bool:
    """True: every job has the message."""
    return True


@dataclass(frozen=True)
class MessageRow:
    """A content that goes along a route.

    Attributes:
        content: its name in the frame: a message between parties, or the answer to a step.
        route: its pairs of sender and receiver.
        times: how often it goes; None: of an answer, which follows its step.
        bound: most bytes of one series, without the frames of its messages; None: of an answer.
        step: the one in which its first sender sends it; empty: each has such an answer.
        also: further steps in which it does, of later stages or of jobs that share it.
        perhaps: classes that it carries where the sender's table or policy has it so; not known when a job begins.
        when: False for a training job that has no such content.
        by_tables: it is sent only if columns of the parties' tables are of its kind, or a party's file asks for it; not
            known when a job begins.
    """

    content: str
    route: Route
    times: Times | None = None
    bound: Bound | None = None
    step: str = ""
    also: tuple[str, ...] = ()
    perhaps: frozenset[str] = frozenset()
    when: Callable[[setup_pb2.JobSpec], bool] = always
    by_tables: bool = False


# ---- routes


def label_holder_reports(members: Members) -> Pairs:
    """The label holder to the coordinator."""
    return [(members.aggregator, members.coordinator)]


def all_report(members: Members) -> Pairs:
    """Each party to the coordinator, and the dealer if there is one."""
    return [(party, members.coordinator) for party in members.processes]


def feature_parties_report(members: Members) -> Pairs:
    """Each feature party to the coordinator."""
    return [(party, members.coordinator) for party in members.feature_parties]


def to_feature_parties(members: Members) -> Pairs:
    """The label holder to each feature party."""
    return [(members.aggregator, party) for party in members.feature_parties]


def to_label_holder(members: Members) -> Pairs:
    """Each feature party to the label holder."""
    return [(party, members.aggregator) for party in members.feature_parties]


def to_each_other(members: Members) -> Pairs:
    """Each party to each other."""
    return [(sender, to) for sender in members.parties for to in members.parties if sender != to]


def with_label_holder(members: Members) -> Pairs:
    """The label holder and each feature party to each other."""
    return [*to_feature_parties(members), *to_label_holder(members)]


def to_earlier(members: Members) -> Pairs:
    """Each feature party to those before it."""
    return [(later, earlier) for earlier, later in combinations(members.feature_parties, 2)]


def from_feature_parties(members: Members) -> Pairs:
    """Each feature party to each other party."""
    return [(sender, to) for sender, to in to_each_other(members) if sender != members.aggregator]


def to_first(members: Members) -> Pairs:
    """The label holder to the first of the chain."""
    return list(pairwise(members.parties))[:1]


def along_chain(members: Members) -> Pairs:
    """The label holder to the first of the chain, and each of the chain to the next."""
    return pairwise(members.parties)


def to_dealer(members: Members) -> Pairs:
    """The label holder to the dealer."""
    return [(members.aggregator, members.dealer)] if members.dealer else []


def from_dealer(members: Members) -> Pairs:
    """The dealer to each party."""
    return [(members.dealer, party) for party in members.parties] if members.dealer else []


def from_last(members: Members) -> Pairs:
    """The last of the chain to the label holder."""
    return [(party, members.aggregator) for party in members.feature_parties[-1:]]


# ---- times


def once(_sizes: JobSizes, _sender: str, _receiver: str) -> tuple[range, range]:
    """Once in an attempt at the job."""
    return range(1), range(1)


def each_round(sizes: JobSizes, _sender: str, _receiver: str) -> tuple[range, range]:
    """Once in each round: a tree, an epoch or a block."""
    return range(sizes.rounds), range(1)


def each_stage(sizes: JobSizes, _sender: str, _receiver: str) -> tuple[range, range]:
    """Once in each stage of each round."""
    return range(sizes.rounds), range(sizes.stages)


# ---- rows that several protocols share


def at_most(most: int | Callable[[Any], int], says: str) -> Bound:
    """The bound of a message that the sizes of a job give, or none of them changes: in bytes and in words."""

    def bound(sizes: JobSizes, _series: Series) -> int:
        return most if isinstance(most, int) else most(sizes)

    bound.__doc__ = says
    return bound


def key_with_layout(sizes: JobSizes, _series: Series) -> int:
    """The key's modulus, the proof of its form, and the layout of a plaintext with a slot for each bit at most."""
    assert sizes.key is not None
    return sizes.key.bits // 8 + sizes.key.proof_bytes + max(sizes.key.bits, sizes.key.plain_bits)


#: Of every job: empty results of steps, and accounts.
JOB = (MessageRow("done", all_report), MessageRow("accounted", all_report))


def planned_rounds(step: str) -> MessageRow:
    """The label holder's report of the rounds to do, in the step that prepares the columns.

    That early stopping had ended the training is said only when such a job is resumed.
    """
    return MessageRow("binned", label_holder_reports, step=step, perhaps=frozenset({"METRIC"}))


#: A public key of the job.
PUBLIC_KEY = (MessageRow("public_key", to_feature_parties, once, key_with_layout, step="make_keys"),)


def label_holder_opens(members: Members) -> Sequence[str]:
    """The label holder alone."""
    return (members.aggregator,)


@dataclass(frozen=True)
class Sent:
    """A content that one member of a job sends to another, and the classes that are certain to go with it.

    `by_tables`: as for `MessageRow`.
    """

    sender: str
    receiver: str
    content: str
    classes: frozenset[str]
    by_tables: bool = False


def sent_by(rows: Iterable[MessageRow], members: Members) -> Iterator[Sent]:
    """Every content with each sender and receiver."""
    for row in rows:
        certain = classes_of(row.content) - row.perhaps
        for sender, receiver in row.route(members):
            yield Sent(sender, receiver, row.content, certain, row.by_tables)


@cache
def classes_of(content: str) -> frozenset[str]:
    """The disclosure classes of a content, the frame's own included."""
    # Not above: the command line reads the protocols' descriptions, and starts faster without the messages.
    from treetap.wire.disclosure import classes_within, own_classes
    from treetap.wire.frame import frame_of, type_of

    return classes_within(type_of(content)) | own_classes(frame_of(content))


#: Most characters of a feature's name.
LONGEST_NAME = 1000
#: Most feature parties of a prediction with attributions.
MOST_ATTRIBUTING = 4
#: Most bytes of ciphertexts of one block, all of which may lie at a party before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024
#: Bytes of a branch, of an entry of a layout, and of a tree with up to a thousand outputs.
_BRANCH, _ENTRY, _TREE = 16, 24, 8192


@dataclass(kw_only=True)
class ScoringSizes(JobSizes):
    """Sizes of a prediction.

    Attributes:
        rounds: blocks: as many as records are asked for.
        block: most records of one.
        named: splits of other parties, which have names.
        trees, splits, leaves, depth: of the own shard, at a feature party of a model of trees.
    """

    rounds: int = 1 << 62
    block: int
    named: int = 0
    trees: int = 0
    splits: int = 0
    leaves: int = 0
    depth: int = 0

    def layout(self, entries: int) -> int:
        """Bytes of a layout with at most `entries` for each leaf."""
        return self.trees * _TREE + self.leaves * entries * _ENTRY

    def columns(self) -> int:
        """Bytes of a layout of columns, each with its branches."""
        return self.trees * _TREE + self.leaves * (self.depth + 2) * _BRANCH

    def queries(self) -> int:
        """Bytes of the queries of a level: no record twice in a tree."""
        sets = min(self.trees * self.record_sets(1), self.splits * self.record_set())
        return sets + self.splits * 2 * _BRANCH


records_of_block = at_most(
    lambda sizes: sizes.record_set() + 5 * sizes.records,
    "The set of a block's records; of a model joined from the left, or with look-ups, also the place of each.",
)


#: Of a prediction by trees, whose number is the label holder's to report. Counts of cells go only where the policy lets
#: them.
OPENED_TREES = (
    MessageRow("opened_model", label_holder_reports, step="open_model", perhaps=frozenset({"METRIC"})),
    MessageRow("opened_model", feature_parties_report, step="open_model", perhaps=frozenset({"TOPOLOGY", "METRIC"})),
)
#: Of any other prediction.
OPENED = (MessageRow("opened_model", all_report, step="open_model", perhaps=frozenset({"TOPOLOGY", "METRIC"})),)
#: Of every prediction. Metrics of an evaluated one go only where the policy lets them.
PREDICTION = (
    *JOB,
    MessageRow("written_predictions", label_holder_reports, step="write_predictions", perhaps=frozenset({"METRIC"})),
)
#: Of a prediction that serves, in the place of the file of predictions.
SERVING = (*JOB, MessageRow("awaited_requests", label_holder_reports, step="await_requests"))
#: Classes of a message with names. A policy that keeps one of them from the label holder withholds all names.
CLASSES_OF_NAMES = frozenset({"FEATURE_NAME", "TOPOLOGY"})
#: Of a prediction with explanations; a party whose policy forbids it reports that it withholds names.
EXPLANATIONS = (
    MessageRow(
        "split_names",
        to_label_holder,
        once,
        at_most(lambda sizes: (4 * LONGEST_NAME + 32) * sizes.named, "The name of each split that other parties have."),
        step="name_features",
        perhaps=CLASSES_OF_NAMES,
    ),
)

#: Of a served model that gives reasons; names go only where the party's policy lets them.
REASONS = (
    MessageRow(
        "reason_columns",
        to_label_holder,
        once,
        at_most(
            lambda sizes: (4 * LONGEST_NAME + 32) * (1 + sizes.named), "A name for each column that splits are on."
        ),
        step="number_columns",
        perhaps=frozenset({"REASON"}),
    ),
    MessageRow("record_ways", to_feature_parties, once, at_most(64, "Two numbers."), step="number_columns"),
)


def blocks(naming: str, scoring: str) -> tuple[MessageRow, ...]:
    """Blocks of records, which the label holder names to the others in the step `naming` and scores in `scoring`."""
    return (
        MessageRow("block_records", to_feature_parties, each_round, records_of_block, step=naming),
        MessageRow("scored_block", label_holder_reports, step=scoring),
    )


def spent(naming: str) -> tuple[MessageRow, ...]:
    """Of a served model: the records of a block of which a feature party's policy permits no further query."""
    return (MessageRow("spent_records", to_label_holder, each_round, records_of_block, step=naming),)
