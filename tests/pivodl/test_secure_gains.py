"""Gains compared in secret: the winners that announced gains have, and messages whose sizes no gain changes."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.worlds import spec
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import Malformed
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.participant import Participant
from treetap.party.pivodl.split_party import Opened, SplitParty, Winner, rank_of
from treetap.party.policy import Policy
from treetap.party.runtime.context import Outbox
from treetap.party.runtime.mailbox import Mailbox, expected_of
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import MessageRow, members_of
from treetap.protocols.pivodl import PROTOCOL, RANK_BITS, PivodlSizes
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import LARGEST, Best, RoleDraws, least_gain
from treetap.trees.slots import Slots
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import exchange_pb2, pivodl_pb2, setup_pb2
from treetap.workers.engines import Engine

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
PARAMS = PivodlParams(gain_comparison="secure", max_depth=3, n_estimators=2)
LEVEL = 2
NODES = [4, 5, 7]
with warnings.catch_warnings(action="ignore"):  # what is compared does not depend on the length of a key
    KEYS = [SecretKey.generate(512, allow_breakable=True) for _ in range(10)]
#: Party → node → the best candidates that it has opened.
OpenedByParty = Mapping[str, Mapping[int, Opened]]


def sent_in(job: setup_pb2.JobSpec) -> list[MessageRow]:
    """The messages of a job."""
    return [row for row in PROTOCOL.sends if row.when(job)]


@dataclass
class Sent:
    """A message between the parties of a test."""

    sender: str
    to: str
    message: exchange_pb2.PeerMessage

    @property
    def size(self) -> tuple[str, str, str, int, int]:
        """All that an observer of the wire sees."""
        place = self.message.stage, self.message.ByteSize()
        return self.sender, self.to, name_of(self.message), *place


@dataclass
class Parties:
    """Parties that compare gains: real keys, mailboxes and limits, without processes and sockets."""

    count: int
    folder: Path
    seed: int = 0
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec = spec(PARAMS, feature_parties=[f"hospital-{letter}" for letter in "jihgfedcb"[: self.count - 1]])
        self.spec.key_bits = 512
        self.names = [self.spec.aggregator, *self.spec.feature_parties]
        draws = RoleDraws(self.seed, self.names, {name: bytes(32) for name in self.names})
        self.tree = GrowingTree(1, 50, draws, guarded=True)
        self.tree.open = list(NODES)
        self.secrets = dict(zip(self.names, KEYS, strict=False))
        self.participants = {}
        self.delays = np.random.default_rng(self.seed)
        key, members = KeyKind.of(self.spec), members_of(self.spec, "coordinator")
        sizes = PivodlSizes(members=members, key=key, params=PARAMS, records=len(NODES))
        for name in self.names:
            outbox: Any = SimpleNamespace(send=self._sender(name))
            outbox.send_each = partial(Outbox.send_each, outbox)
            context = SimpleNamespace(
                party=name,
                mailbox=Mailbox(20, self.folder),
                outbox=outbox,
                costs=SimpleNamespace(operations=Counter(), ciphertexts=Counter()),
                engine=Engine(),
                policy=Policy(),
            )
            self.participants[name] = Participant(cast(Any, context), self.spec, PARAMS)
            context.mailbox.expect(expected_of(sent_in(self.spec), name, sizes))

    def opened(self, rng: np.random.Generator) -> OpenedByParty:
        """Gains with ties and gaps, as split parties open them: of each the lowest source with the largest gain."""
        found: dict[str, dict[int, Opened]] = {name: {} for name in self.names}
        choices = [least_gain(PARAMS), least_gain(PARAMS) + 1, 2**40, LARGEST]
        for node in NODES:
            for source in self.names:
                gain = int(rng.choice(choices))
                party = self.tree.split_party(node, source)
                if party is None or rng.random() < 0.3:
                    continue
                if node not in found[party] or gain > found[party][node].best.gain:
                    found[party][node] = Opened(source, Best(gain, [0]), {})
        return found

    async def compare(self, opened: OpenedByParty) -> list[dict[int, Winner]]:
        """What each party finds."""
        comparisons = []
        for name, me in self.participants.items():
            engine = me.context.engine
            holder = KeyHolder(engine, self.secrets[name], Slots((60,)), "short-exponent")
            await holder.start()
            keys = SimpleNamespace(holder=holder, of=lambda party: self.secrets[party].public)
            comparisons.append(SplitParty(me, cast(Any, keys), self.tree, 1.0))
            comparisons[-1].opened = dict(opened[name])
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            for each in comparisons:
                group.create_task(each.compare(LEVEL))
        return [dict(each.winners) for each in comparisons]

    def _sender(self, name: str) -> Any:
        async def send(to: str, kind: str, bodies: Iterable[Any], round: int = 0, stage: int = 0) -> None:
            content = list(bodies)
            for part, body in enumerate(content):
                frame = exchange_pb2.PeerMessage(
                    job="job", attempt=1, round=round, stage=stage, part=part, last=part == len(content) - 1
                )
                message = filled(frame, kind, self.altered(name, to, body))
                for _ in range(int(self.delays.integers(0, 30))):  # parties run apart as far as messages let them
                    await asyncio.sleep(0)
                self.sent.append(Sent(name, to, message))
                await self.participants[to].context.mailbox.file(name, message)

        return send

    def altered(self, sender: str, to: str, body: Any) -> Any:
        """The body that is sent; a test may send another one."""
        return body


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_winners_are_those_of_announced_gains(count: int, tmp_path: Path) -> None:
    """All parties find them, with ties, with parties that have no gain, and whoever runs ahead."""
    for seed in range(2 if count < 5 else 1):
        parties = Parties(count, tmp_path, seed)
        opened = parties.opened(np.random.default_rng(seed))
        # The winners by the gains in the clear: the largest, of the lowest source.
        best: dict[int, tuple[int, int, Winner]] = {}
        for party, nodes in opened.items():
            for node, each in nodes.items():
                found = each.best.gain, -parties.names.index(each.source), Winner(each.source, party)
                best[node] = max(best.get(node, found), found)
        expected = {node: winner for node, (_, _, winner) in best.items()}
        assert asyncio.run(parties.compare(opened)) == [expected] * count


def test_a_level_without_any_gain_ends(tmp_path: Path) -> None:
    """The public candidate wins: no party names a source, and every comparison was made all the same."""
    parties = Parties(4, tmp_path)
    assert asyncio.run(parties.compare({name: {} for name in parties.names})) == [{}] * 4
    turns = sum(len(parties.tree.split_parties(node)) - 1 for node in NODES)
    assert sum(name_of(each.message) == "blinded_gains" for each in parties.sent) == turns


@pytest.mark.second_tier
def test_sizes_do_not_depend_on_gains(tmp_path: Path) -> None:
    """The same first champions stay: with large gains, small ones and a party without any, each message is as long."""
    seen = []
    for gain, rest in ((LARGEST, True), (least_gain(PARAMS), True), (2**30, False)):
        parties = Parties(4, tmp_path)
        opened: dict[str, dict[int, Opened]] = {name: {} for name in parties.names}
        for node in NODES:
            first, *others = parties.tree.split_parties(node)
            drawn = {parties.tree.split_party(node, source): source for source in reversed(parties.names)}
            opened[first][node] = Opened(drawn[first], Best(gain + 1, [0]), {})
            for party in others if rest else []:
                opened[party][node] = Opened(drawn[party], Best(gain, [0]), {})
        asyncio.run(parties.compare(opened))
        seen.append(sorted(each.size for each in parties.sent))
        costs = [parties.participants[name].context.costs for name in parties.names]
        answers = sum(name_of(each.message) == "blinded_gains" for each in parties.sent)
        assert sum(each.ciphertexts["gain_bits"] for each in costs) == RANK_BITS * answers
    assert seen[0] == seen[1] == seen[2]


def test_no_message_has_a_gain(tmp_path: Path) -> None:
    """All that crosses in the clear is the number of a node, an outcome or a source: ciphertexts hide the rest."""
    parties = Parties(3, tmp_path)
    asyncio.run(parties.compare(parties.opened(np.random.default_rng(1))))
    kinds = {name_of(each.message) for each in parties.sent}
    assert kinds == {"gain_bits", "blinded_gains", "gain_orders", "winning_sources"}
    clear = [pivodl_pb2.GainOrder.DESCRIPTOR, pivodl_pb2.WinningSource.DESCRIPTOR]
    names = [[each.name for each in descriptor.fields] for descriptor in clear]
    assert names == [["node", "champion_stays"], ["node", "source"]]


def test_ranks_put_larger_gains_first_and_then_lower_sources() -> None:
    """No gain is below every gain; the largest one fits the width."""
    names = [f"p{number}" for number in range(10)]
    none = rank_of(None, names)
    low, high = (rank_of(Opened("p9", Best(gain, [0]), {}), names) for gain in (least_gain(PARAMS), LARGEST))
    assert none < low < rank_of(Opened("p3", Best(least_gain(PARAMS), [0]), {}), names) < high < 2**RANK_BITS
    assert rank_of(Opened("p9", Best(8, [0]), {}), names) > rank_of(Opened("p0", Best(7, [0]), {}), names)


def _other_nodes(body: Any) -> Any:
    if isinstance(body, pivodl_pb2.GainOrders):
        return pivodl_pb2.GainOrders(nodes=[pivodl_pb2.GainOrder(node=6)])
    return body


def _other_winner(body: Any) -> Any:
    if isinstance(body, pivodl_pb2.WinningSources):
        named = [pivodl_pb2.WinningSource(node=each.node, source="nobody") for each in body.nodes]
        return pivodl_pb2.WinningSources(nodes=named)
    return body


def _other_bits(body: Any) -> Any:
    if isinstance(body, pivodl_pb2.GainBits):
        return pivodl_pb2.GainBits(node=6, ciphertexts=body.ciphertexts)
    return body


@pytest.mark.parametrize("alter", [_other_nodes, _other_winner, _other_bits])
def test_what_no_comparison_has_is_refused(alter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes, winners and bits of other nodes or sources than the draws permit."""
    parties = Parties(3, tmp_path)
    monkeypatch.setattr(parties, "altered", lambda sender, to, body: alter(body))
    with pytest.raises(ExceptionGroup) as refusals:
        asyncio.run(parties.compare(parties.opened(np.random.default_rng(2))))
    assert refusals.group_contains(Malformed)


def test_a_job_that_announces_takes_no_comparisons() -> None:
    """Its mailboxes expect none, and refuse what is not expected; one that compares takes no announcement."""
    comparing, announcing = ({row.content for row in sent_in(spec(it))} for it in (PARAMS, PivodlParams()))
    assert comparing - announcing == {"gain_bits", "blinded_gains", "gain_orders", "winning_sources"}
    assert announcing - comparing == {"best_gains"}
