"""Messages of a job by sender and receiver: a protocol declares them, and its disclosure classes follow.

A protocol declares the contents of the frame that its roles send, by name, each with its route. Their classes are those
that the descriptors carry. So a party knows before a job begins which classes it would send, and to whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from treetap.protocols.alignment_routes import turns

if TYPE_CHECKING:
    from treetap.wire.v2 import prediction_pb2, setup_pb2

#: (sender, receiver).
Pairs: TypeAlias = "Iterable[tuple[str, str]]"


@dataclass(frozen=True)
class Members:
    """The parties of a job: the feature parties in the order of the chain, those that are away left out.

    Attributes:
        coordinator: the coordinator's name.
        aggregator: a training's aggregator or a prediction's recipient; the label holder where it alone has labels.
        feature_parties: the other parties, in the order of the chain.
    """

    coordinator: str
    aggregator: str
    feature_parties: tuple[str, ...]

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the aggregator first."""
        return (self.aggregator, *self.feature_parties)


def members_of(job: setup_pb2.JobSpec | prediction_pb2.OpenModel, coordinator: str) -> Members:
    """All parties that a training job or an opening names, those that are away included."""
    from treetap.wire.v2 import setup_pb2  # as in `_classes`

    first = job.aggregator if isinstance(job, setup_pb2.JobSpec) else job.recipient
    return Members(coordinator, first, tuple(job.feature_parties))


Route: TypeAlias = Callable[[Members], Pairs]


@dataclass(frozen=True)
class Emission:
    """A content that goes along a route.

    Attributes:
        content: its name in the frame: a message between parties, or the result of a step.
        route: its pairs of sender and receiver.
        perhaps: classes that it carries where the sender's table or policy has it so; not known when a job begins.
        when: False for a training job that has no such content.
        by_tables: it is sent only if columns of the parties' tables are of its kind; not known when a job begins.
    """

    content: str
    route: Route
    perhaps: frozenset[str] = frozenset()
    when: Callable[[setup_pb2.JobSpec], bool] = lambda _: True
    by_tables: bool = False


#: The members of a job that open what others compute on their columns: candidate sums, scores or directions.
OpensSums: TypeAlias = Callable[[Members], Sequence[str]]


def label_holder_opens(members: Members) -> Sequence[str]:
    """The label holder alone."""
    return (members.aggregator,)


# ---- routes


def label_holder_reports(members: Members) -> Pairs:
    """The label holder to the coordinator."""
    return [(members.aggregator, members.coordinator)]


def all_report(members: Members) -> Pairs:
    """Each party to the coordinator."""
    return [(party, members.coordinator) for party in members.parties]


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


def to_first(members: Members) -> Pairs:
    """The label holder to the first of the chain."""
    return list(pairwise(members.parties))[:1]


def along_chain(members: Members) -> Pairs:
    """The label holder to the first of the chain, and each of the chain to the next."""
    return pairwise(members.parties)


def from_last(members: Members) -> Pairs:
    """The last of the chain to the label holder."""
    return [(party, members.aggregator) for party in members.feature_parties[-1:]]


def _turns_of_psi(members: Members) -> Pairs:
    """Each party to those to whom it passes a list in some turn of private set intersection."""
    parties = members.parties
    passed = {route for turn in turns(len(parties)) for route in turn.routes}
    return [(parties[here], parties[there]) for here, there in sorted(passed) if here != there]


# ---- contents that several protocols share

#: Of every job: empty results of steps, and accounts.
_JOB = (Emission("done", all_report), Emission("accounted", all_report))
#: Of every training. That early stopping had ended it is said only when such a job is resumed.
TRAINING = (
    *_JOB,
    Emission("prepared", all_report, perhaps=frozenset({"METRIC"})),  # once a model is published
    Emission("binned", label_holder_reports, perhaps=frozenset({"METRIC"})),
    Emission("published_model", label_holder_reports),
)
#: Of a prediction by trees, whose number is the label holder's to report. Counts of cells go only where the policy lets
#: them.
OPENED_TREES = (
    Emission("opened_model", label_holder_reports, perhaps=frozenset({"METRIC"})),
    Emission("opened_model", feature_parties_report, perhaps=frozenset({"TOPOLOGY", "METRIC"})),
)
#: Of any other prediction.
OPENED = (Emission("opened_model", all_report, perhaps=frozenset({"TOPOLOGY", "METRIC"})),)
#: Of every prediction. Metrics of an evaluated one go only where the policy lets them.
PREDICTION = (
    *_JOB,
    Emission("written_predictions", label_holder_reports, perhaps=frozenset({"METRIC"})),
)
#: Of a prediction that serves, in the place of the file of predictions.
SERVING = (*_JOB, Emission("awaited_requests", label_holder_reports))
#: Classes of a message with names. A policy that keeps one of them from the label holder withholds all names.
CLASSES_OF_NAMES = frozenset({"FEATURE_NAME", "TOPOLOGY"})
#: Of a prediction with explanations; a party whose policy forbids it reports that it withholds names.
EXPLANATIONS = (Emission("split_names", to_label_holder, perhaps=CLASSES_OF_NAMES),)
#: A public key of the job.
PUBLIC_KEY = (Emission("public_key", to_feature_parties),)
#: Of a training that grows trees.
GROWTH = (
    *PUBLIC_KEY,
    Emission("sampled_records", to_feature_parties),
    Emission("candidate_sums", to_label_holder, perhaps=frozenset({"MONOTONE_DIRECTION"})),
    Emission("chosen_splits", label_holder_reports),
    Emission("won_splits", to_feature_parties),
    Emission("chosen_partitions", to_feature_parties, by_tables=True),
    Emission("children", to_label_holder),
    Emission("instance_spaces", to_feature_parties),
    Emission("relayed_children", label_holder_reports),
    Emission("leaf_paths", to_feature_parties),
    Emission("finished_tree", label_holder_reports),
)
#: Blocks of records that go through the chain encrypted.
BLOCKS = (
    Emission("block_records", to_feature_parties),
    Emission("scored_block", label_holder_reports),
)
#: Method of record alignment → its contents.
ALIGNMENTS: Mapping[str, tuple[Emission, ...]] = {
    "psi": (Emission("blinded_ids", _turns_of_psi), Emission("record_digest", to_label_holder)),
    "sorted-ids": (Emission("record_digest", to_label_holder), Emission("record_digest", to_feature_parties)),
}


@dataclass(frozen=True)
class Sent:
    """A content that one member of a job sends to another, and the classes that are certain to go with it.

    `by_tables`: as for `Emission`.
    """

    sender: str
    receiver: str
    content: str
    classes: frozenset[str]
    by_tables: bool = False


def sent_by(emissions: Iterable[Emission], members: Members) -> Iterator[Sent]:
    """Every content with each sender and receiver."""
    for emission in emissions:
        certain = _classes(emission.content) - emission.perhaps
        for sender, receiver in emission.route(members):
            yield Sent(sender, receiver, emission.content, certain, emission.by_tables)


@cache
def _classes(content: str) -> frozenset[str]:
    """The classes of a content, the frame's own included."""
    # Not above: the command line reads the protocols' descriptions, and starts faster without the messages.
    from treetap.wire.disclosure import classes_within, own_classes
    from treetap.wire.frame import frame_of, type_of

    return classes_within(type_of(content)) | own_classes(frame_of(content))
