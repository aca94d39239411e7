"""What each role of PIVODL sends, to whom and when: all messages of a job, in the order of its steps, and records told.

A role is a party at a place: the source of a node's candidates, the split party that opens them, the aggregation and
encryption party of a tree, an owner of labels. The expectations follow the protocol's steps, not the parties' code.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pivodl.crossed import OWNERS, SECURE, Crossed, N, crossed
from tests.pivodl.roles import Sent, expected
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


def _others(party: str) -> list[str]:
    return [other for other in FOUR if other != party]


def _of_a_job(here: Crossed) -> Iterator[Sent]:
    """Messages before all trees."""
    for party in FOUR:
        for other in _others(party):
            yield from ((kind, 0, 0, party, other) for kind in ("party_keys", "party_nonce", "labelled_records"))
            if other in OWNERS and not here.params.as_published:
                yield "record_bins", 0, 0, party, other
    if here.params.needs_moments:
        aggregator, opener = here.roles(0).draws.aggregation_party(0), here.roles(0).draws.encryption_party(0)
        yield from (("moment_share", 0, 0, owner, aggregator) for owner in OWNERS if owner != aggregator)
        yield "joint_moments", 0, 0, aggregator, opener
        yield from (("label_moments", 0, 0, opener, other) for other in _others(opener))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("form", ["ours", "as published"])
def test_who_sends_what_to_whom(form: str) -> None:
    """Of each step those messages of each role, and no other message of this protocol."""
    here = crossed(form)
    ours = set(pivodl_pb2.PivodlBody.DESCRIPTOR.fields_by_name)
    found = {
        (name_of(parcel), parcel.round, parcel.stage, sender, to)
        for sender, to, parcel in here.parcels
        if name_of(parcel) in ours
    }
    wanted = set(_of_a_job(here))
    for t in range(here.params.n_estimators):
        wanted |= expected(here.roles(t), here.here.ownership)
    assert found == wanted
    assert {kind for kind, *_ in found} == ours - _OF_OTHER_JOBS[form]


_OF_OTHER_JOBS = {
    "ours": {"candidate_records", *SECURE},
    "as published": {"record_bins", "moment_share", "joint_moments", "label_moments", *SECURE},
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


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("form", ["ours", "as published"])
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
    assert len(here.roles(0).split_parties(1)) > 1


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


def test_sums_of_a_node_below_the_root_go_to_those_that_open_candidates_there() -> None:
    """And to no other party."""
    here = crossed("ours")
    told = [(t, each.node, to) for _, to, t, _, content in here.contents("node_sums") for each in content.nodes]
    assert any(node > 1 for _, node, _ in told)
    assert all(node == 1 or to in here.roles(t).split_parties(node) for t, node, to in told)
