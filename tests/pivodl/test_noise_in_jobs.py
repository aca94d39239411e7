"""Noise in whole jobs: whatever is killed, a source gets the same bytes again, and each noise is drawn once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest

from tests.pivodl.federations import (
    assert_central_model,
    centralised_with,
    federation_of,
    job_of,
    released,
    transparent,
)
from tests.pivodl.worlds import some_params, some_world
from tests.simulator import Federation, Message, finished
from treetap.models.store import read_model
from treetap.party.pivodl import leaf_weights
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2, pivodl_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
#: Virtual seconds after which everybody who waited for a dead process has given up.
GIVEN_UP_S = 200.0


class Weights:
    """The leaf weights that cross the wire, and the kill of a party that sends some."""

    def __init__(self, federation: Federation, served: bool) -> None:
        self.federation, self.served = federation, served
        self.seen: defaultdict[tuple[int, int, str], list[bytes]] = defaultdict(list)
        self.senders: dict[tuple[int, int, str], str] = {}
        self.victim = ""
        federation.hook, federation.tamper = self.kill, self.read

    def kill(self, message: Message) -> None:
        """Kill the sender of the first leaf weights, before they arrive or once they have been served."""
        if message.word == "leaf_weights" and message.served == self.served and not self.victim:
            self.victim = message.sender
            self.federation.kill(message.sender)

    def read(self, sender: str, receiver: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        """Note the weights of a parcel."""
        if name_of(parcel) == "leaf_weights":
            content = content_of(parcel, "leaf_weights")
            assert isinstance(content, pivodl_pb2.LeafWeights)
            for each in content.leaves:
                self.seen[parcel.round, each.node, receiver].append(each.SerializeToString())
                self.senders[parcel.round, each.node, receiver] = sender
        return parcel


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("served", [False, True], ids=["written, not sent", "sent"])
async def test_a_kill_draws_no_second_noise(served: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper of the first leaf is killed with its noise on disk: the resumed job sends the very bytes."""
    drawn = []
    draw = leaf_weights.discrete_gaussian
    monkeypatch.setattr(leaf_weights, "discrete_gaussian", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    params = some_params(4, epsilon=8.0, max_depth=2, gamma=0.0)
    here = some_world(4, params.objective, 3)

    with transparent():
        job = job_of(here, params)
        federation = federation_of(tmp_path, here, job)
        weights = Weights(federation, served)
        assert (await federation.train(job)).state == "interrupted"
        await asyncio.sleep(GIVEN_UP_S)
        federation.start(weights.victim)
        finished(await federation.resume())
        assert all(len(set(sent)) == 1 for sent in weights.seen.values())
        # The tree is grown again: a keeper that had sent its weights sends them twice.
        of_victim = [sent for key, sent in weights.seen.items() if weights.senders[key] == weights.victim]
        assert (max(map(len, of_victim)) > 1) == served
        noise = released(federation.states)
        assert_central_model(federation.states, centralised_with(noise, here, params))
        _, trees = read_model(federation.state(next(iter(here.tables))) / "models" / "job")
        assert len(drawn) == sum(len(tree["leaves"]) for tree in trees)
        for t, tree in enumerate(trees):
            sources = {node["node"]: node["source"] for node in tree["nodes"]}
            for leaf in (each["node"] for each in tree["leaves"]):
                sent = {
                    to: values[0] for (round, node, to), values in weights.seen.items() if (round, node) == (t, leaf)
                }
                noised = sent.pop(sources[leaf >> 1], b"")
                assert len(set(sent.values())) <= 1
                assert noised not in sent.values()
