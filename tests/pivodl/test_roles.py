"""What each role of PIVODL sends, to whom and when, derived from the finished trees and the draws of parties alone.

A role is a party at a place: the source of a node's candidates, the split party that opens them, the aggregation and
encryption party of a tree, an owner of labels. The expectations follow the protocol's steps, not the parties' code.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pivodl.crossed import OWNERS, SECURE, Crossed, N, crossed
from tests.worlds import FOUR
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, pivodl_pb2

pytestmark = [
    pytest.mark.filterwarnings("ignore:a 512-bit Paillier key"),
    pytest.mark.xdist_group("roles-of-pivodl"),
]
#: Kinds in the order of their steps: before all trees, of a tree's root, of each level, of a tree's end.
BEFORE = (
    "party_keys",
    "party_nonce",
    "labelled_records",
    "moment_share",
    "joint_moments",
    "label_moments",
    "record_bins",
)
ROOT_STEP = ("label_sums", "joint_sums", "node_sums")
LEVEL = ("candidate_records", "candidate_shares", "forwarded_sums", "best_gains", "winning_candidates", "divided_nodes")
#: Sender, receiver, kind, tree, stage.
Sent = tuple[str, str, str, int, int]


def _others(party: str) -> list[str]:
    return [other for other in FOUR if other != party]


def _of_a_job(here: Crossed) -> Iterator[Sent]:
    """Messages before all trees."""
    paper = here.params.wire_form == "paper"
    for party in FOUR:
        for other in _others(party):
            yield from ((party, other, kind, 0, 0) for kind in ("party_keys", "party_nonce", "labelled_records"))
            if other in OWNERS and not paper:
                yield party, other, "record_bins", 0, 0
    if here.params.needs_moments:
        aggregator, opener = here.draws.aggregation_party(0), here.draws.encryption_party(0)
        yield from ((owner, aggregator, "moment_share", 0, 0) for owner in OWNERS if owner != aggregator)
        yield aggregator, opener, "joint_moments", 0, 0
        yield from ((opener, other, "label_moments", 0, 0) for other in _others(opener))


def _of_a_tree(here: Crossed, t: int) -> Iterator[Sent]:
    """Messages of one tree's root, levels and end."""
    aggregator, opener = here.draws.aggregation_party(t), here.draws.encryption_party(t)
    yield from ((owner, aggregator, "label_sums", t, 0) for owner in OWNERS if owner != aggregator)
    yield aggregator, opener, "joint_sums", t, 0
    yield from ((opener, other, "node_sums", t, 0) for other in _others(opener))
    for level in range(here.params.max_depth):
        yield from _of_a_level(here, t, level)
    yield from ((owner, aggregator, "metric_share", t, 0) for owner in OWNERS if owner != aggregator)


def _of_a_level(here: Crossed, t: int, level: int) -> Iterator[Sent]:
    nodes, divisions = here.open_at(t, level), here.divisions(t)
    for source in FOUR:
        openers = {party for node in nodes if (party := here.split_party(t, node, source)) is not None}
        if openers:
            others = [owner for owner in OWNERS if owner != source]
            if here.params.wire_form == "paper":
                yield from ((source, owner, "candidate_records", t, level) for owner in others)
            yield from ((owner, source, "candidate_shares", t, level) for owner in others)
        yield from ((source, party, "forwarded_sums", t, level) for party in openers)
    for party in here.openers(t, nodes):
        yield from ((party, other, "best_gains", t, level) for other in _others(party))
    for node in nodes:
        if node in divisions:
            source, opener = divisions[node]["source"], divisions[node]["opener"]
            yield opener, source, "winning_candidates", t, level
            for other in _others(source):
                yield source, other, "divided_nodes", t, level
                yield source, other, "node_records", t, level
            yield from _of_children(here, t, level, node, opener)
        else:
            yield from _of_a_leaf(here, t, level, node)


def _of_children(here: Crossed, t: int, level: int, node: int, opener: str) -> Iterator[Sent]:
    for child in (2 * node, 2 * node + 1):
        if child in here.model.trees[t].divisible:
            receivers = set(FOUR) if here.params.child_sums == "paper" else here.openers(t, [child])
            yield from ((opener, party, "node_sums", t, level + 1) for party in receivers - {opener})
        else:
            yield from ((opener, owner, "leaf_weights", t, level) for owner in OWNERS if owner != opener)


def _of_a_leaf(here: Crossed, t: int, level: int, leaf: int) -> Iterator[Sent]:
    """An open node without a winner: the party that opened its parent's winner keeps its weight."""
    keeper = here.divisions(t)[leaf >> 1]["opener"] if leaf > 1 else here.draws.encryption_party(t)
    yield from ((keeper, owner, "leaf_weights", t, level) for owner in OWNERS if owner != keeper)


@pytest.mark.parametrize("form", ["ours", "the paper's"])
def test_who_sends_what_to_whom(form: str) -> None:
    """Of each step those messages of each role, and no other message of this protocol."""
    here = crossed(form)
    ours = set(pivodl_pb2.PivodlBody.DESCRIPTOR.fields_by_name)
    found = {
        (sender, to, name_of(parcel), parcel.round, parcel.stage)
        for sender, to, parcel in here.parcels
        if name_of(parcel) in ours
    }
    expected = set(_of_a_job(here))
    for t in range(here.params.n_estimators):
        expected |= set(_of_a_tree(here, t))
    assert found == expected
    assert {kind for _, _, kind, _, _ in found} == ours - _OF_OTHER_JOBS[form]


_OF_OTHER_JOBS = {
    "ours": {"candidate_records", "grown_tree", *SECURE},
    "the paper's": {"record_bins", "moment_share", "joint_moments", "label_moments", "grown_tree", *SECURE},
}


def _place(parcel: exchange_pb2.PeerMessage) -> tuple[int, int, int]:
    """The step to which a message belongs: tree (-1: before all), level, step of the level."""
    kind, t, stage = name_of(parcel), parcel.round, parcel.stage
    if kind in BEFORE:
        return -1, 0, BEFORE.index(kind)
    if kind in ("label_sums", "joint_sums") or (kind == "node_sums" and stage == 0):
        return t, -1, ROOT_STEP.index(kind)
    if kind == "metric_share":
        return t, 99, 0
    if kind in ("node_sums", "leaf_weights"):
        return t, stage - (kind == "node_sums"), 99
    # Sources that won send shape and records one after the other, at their own pace.
    return t, stage, LEVEL.index("divided_nodes" if kind == "node_records" else kind)


@pytest.mark.parametrize("form", ["ours", "the paper's"])
def test_the_steps_follow_one_another(form: str) -> None:
    """No message of a step comes after one of a later step, in any tree and level."""
    here = crossed(form)
    ours = set(pivodl_pb2.PivodlBody.DESCRIPTOR.fields_by_name)
    places = [_place(parcel) for _, _, parcel in here.parcels if name_of(parcel) in ours]
    assert places == sorted(places)


def test_all_parties_have_all_roles() -> None:
    """Every party is a source that wins or a split party; one labels nothing; several open at one node."""
    here = crossed("ours")
    divisions = [each for t in range(2) for each in here.divisions(t).values()]
    assert len({each["source"] for each in divisions}) > 2
    assert len({each["opener"] for each in divisions}) > 2
    assert len(here.openers(0, [1])) > 1


def test_records_of_children_go_to_all_and_those_of_leaves_to_their_owners() -> None:
    """A source sends a child that may be split whole; of a leaf each party hears of the records that it labels."""
    here = crossed("ours")
    told: dict[tuple[int, int, str], list[int]] = {}
    for sender, to, t, _, content in here.contents("node_records"):
        for space in content.spaces:
            assert here.divisions(t)[space.node >> 1]["source"] == sender
            told[t, space.node, to] = rows_of([space.records], N).tolist()
    labelled = {party: set(rows.tolist()) for party, rows in here.here.ownership.items()}
    for (t, node, to), rows in told.items():
        if node not in here.model.trees[t].divisible:
            assert set(rows) <= labelled.get(to, set())
        else:
            others = [told[t, node, other] for other in FOUR if (t, node, other) in told]
            assert all(other == rows for other in others)
            assert len(others) == 3


def test_owners_hear_of_bins_of_their_own_records() -> None:
    """As many codes as the receiver has labelled records, of each column of the sender."""
    here = crossed("ours")
    columns: dict[tuple[str, str], int] = {}
    for sender, to, _, _, content in here.contents("record_bins"):
        assert to in OWNERS
        for part in content.columns:
            assert len(part.codes) in (len(here.here.ownership[to]), 2 * len(here.here.ownership[to]))
            columns[sender, to] = columns.get((sender, to), 0) + 1
    assert columns == {(s, to): 2 if s == FOUR[1] else 1 for s in FOUR for to in OWNERS if s != to}
