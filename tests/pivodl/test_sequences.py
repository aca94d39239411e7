"""The parties' roles, drawn per tree, level and node, decide every message: each is sent as they say, and no other.

The draws are computed here from the nonces that crossed and from the centralised model, not by a party.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.blindness.observed import Observed
from tests.pivodl.federations import centralised, job_of, transparent
from tests.pivodl.jobs import policies
from tests.pivodl.roles import Roles, Sent, expected
from tests.pivodl.worlds import some_params, some_world
from tests.simulator import finished, run
from tests.worlds import World
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import RoleDraws
from treetap.wire.disclosure import classes_within
from treetap.wire.frame import content_of, name_of, type_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")

#: Contents of the steps before the first tree.
BEFORE_TREES = {"party_keys", "party_nonce", "labelled_records", "record_bins", "record_digest"}


def _observed(folder: Path, here: World, params: PivodlParams) -> Observed:
    """A finished training, and all that crossed."""
    job = job_of(here, params)
    federation = Observed(folder, here.tables, policies=policies(job))

    async def main() -> None:
        finished(await federation.train(job))

    with transparent():
        run(main())
    return federation


def _parcels(federation: Observed) -> list[tuple[str, str, exchange_pb2.PeerMessage]]:
    return [
        (each.sender, each.to, each.message)
        for each in federation.crossed
        if isinstance(each.message, exchange_pb2.PeerMessage)
    ]


def _roles(federation: Observed, here: World, params: PivodlParams) -> list[Roles]:
    nonces = {
        sender: content_of(parcel, "party_nonce").nonce
        for sender, _, parcel in _parcels(federation)
        if name_of(parcel) == "party_nonce"
    }
    assert len(set(nonces.values())) == len(here.tables)
    parties, model = list(here.tables), centralised(here, params)
    draws = RoleDraws(params.seed, parties, nonces)
    return [Roles(draws, parties, model, t) for t in range(params.n_estimators)]


WAYS: dict[str, dict[str, Any]] = {
    "as by default": {},
    "as published": {"as_published": True},
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_every_message_is_a_roles(parties: int, way: str, tmp_path: Path) -> None:
    """Of each tree and level: kinds, senders and receivers are those of the roles drawn, no more and no fewer."""
    params = some_params(parties, max_depth=3, gamma=0.0, instance_threshold=1, **WAYS[way])
    here = some_world(parties, params.objective, parties)
    federation = _observed(tmp_path, here, params)
    real = {
        (name_of(parcel), parcel.round, parcel.stage, sender, to)
        for sender, to, parcel in _parcels(federation)
        if name_of(parcel) not in BEFORE_TREES
    }
    wanted: set[Sent] = set()
    for roles in _roles(federation, here, params):
        wanted |= expected(roles, here.ownership)
    assert real == wanted
    kinds = {each[0] for each in real}
    assert {"candidate_shares", "forwarded_sums", "best_gains", "node_records", "leaf_weights"} <= kinds
    assert parties < 5 or len(kinds) == (12 if params.as_published else 11)
    assert sum(len(tree.splits) for tree in centralised(here, params).trees) > 3


@pytest.mark.second_tier
def test_who_holds_sums_and_records(tmp_path: Path) -> None:
    """A party reads sums of a node below the root only if it opens candidates there, and bins of own labels only.

    What a split party gets of a source's candidates has no record in it, by the descriptors and on the wire.
    """
    params = some_params(4, max_depth=4, gamma=0.0, instance_threshold=1)
    here = some_world(9, params.objective, 4)
    federation = _observed(tmp_path, here, params)
    by_tree = _roles(federation, here, params)
    told: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    for sender, to, parcel in _parcels(federation):
        kind, content = name_of(parcel), content_of(parcel, name_of(parcel))
        if kind == "node_sums":
            for each in content.nodes:
                told[parcel.round, each.node].add(to)
        elif kind == "record_bins":
            records = sum(len(part.codes) for part in content.columns if part.column == 0)
            assert records in (len(here.ownership[to]), 2 * len(here.ownership[to]))  # a bin is a byte or two
        elif kind in ("candidate_shares", "forwarded_sums"):
            roles = by_tree[parcel.round]
            source = to if kind == "candidate_shares" else sender
            opener = roles.split_party(content.node, source)
            assert opener not in (source, None)
            assert kind == "candidate_shares" or to == opener
    for (t, node), parties in told.items():
        roles = by_tree[t]
        allowed = roles.split_parties(node) if node > 1 else set(here.tables)
        assert parties <= allowed, (t, node)
    records_of = {"INSTANCE_SPACE", "BIN_ASSIGNMENT", "SPLIT_DIRECTION", "BLINDED_ID"}
    for kind in ("forwarded_sums", "node_sums", "winning_candidates", "best_gains"):
        assert not classes_within(type_of(kind)) & records_of, kind
    for kind in ("candidate_shares", "label_sums"):
        assert classes_within(type_of(kind)) <= {"CONTROL", "TOPOLOGY", "CIPHERTEXT"}, kind
    assert any(node > 1 for _, node in told)


@pytest.mark.second_tier
async def test_a_job_that_is_resumed_has_the_same_roles(tmp_path: Path) -> None:
    """Killed in a tree and resumed: the nonces are the same, and no sums go to a second split party."""
    params = some_params(3, max_depth=3, gamma=0.0, instance_threshold=1)
    here = some_world(3, params.objective, 4)
    job = job_of(here, params)
    federation = Observed(tmp_path, here.tables, policies=policies(job))
    victim = list(here.tables)[2]

    with transparent():

        def kill(message: Any) -> None:
            if (message.word, message.to) == ("close_tree", victim):
                federation.hook = None
                federation.kill(victim)
                federation.start(victim)

        federation.hook = kill
        assert (await federation.train(job)).state == "interrupted"
        assert (await federation.resume()).state == "finished"
        await federation.close()
    nonces: defaultdict[str, set[bytes]] = defaultdict(set)
    openers: defaultdict[tuple[int, int, str], set[str]] = defaultdict(set)
    attempts = set()
    for sender, to, parcel in _parcels(federation):
        if name_of(parcel) == "party_nonce":
            nonces[sender].add(content_of(parcel, "party_nonce").nonce)
        if name_of(parcel) == "forwarded_sums":
            attempts.add(parcel.attempt)
            openers[parcel.round, content_of(parcel, "forwarded_sums").node, sender].add(to)
    assert attempts == {1, 2}
    assert {len(each) for each in nonces.values()} == {1}
    assert {len(each) for each in openers.values()} == {1}
