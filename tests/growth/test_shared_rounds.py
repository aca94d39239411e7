"""Rounds of shared sums: whoever departs from them ends the attempt by name, and lengths say nothing of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.growth.test_shared_sums import SMALL, job_of
from tests.oracle import OracleSplit
from tests.simulator import COORDINATOR, DEALER, Federation, Message, finished
from tests.worlds import PARTIES, World, assert_oracles_model, world
from treetap.shares import choice
from treetap.trees.params import TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, growth_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
HERE = world(60, (1, 1, 1), missing=0.1)
ONE = replace(SMALL, n_estimators=1)
Peer = exchange_pb2.PeerMessage


@pytest.fixture(autouse=True)
def _unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part that is dealt is opened: see test_dealt.py."""
    monkeypatch.setattr(choice, "ONE_OF", 1 << 80)


def _numbers(change: Callable[[bytes], bytes]) -> Callable[[Peer], None]:
    def changed(message: Peer) -> None:
        body: growth_pb2.Shares = getattr(message.growth, name_of(message))
        body.numbers = change(body.numbers)

    return changed


def _flipped(numbers: bytes) -> bytes:
    return bytes([numbers[0] ^ 1]) + numbers[1:]


def _later(message: Peer) -> None:
    message.growth.shares.round += 1


def _of_another_stage(message: Peer) -> None:
    message.stage = 7


#: Case → the kind of the message, its sender and receiver, what is done to the first one that has numbers, and words of
#: the error.
WRONG: dict[str, tuple[str, str, str, Callable[[Peer], None], tuple[str, ...]]] = {
    "short, to the label holder": (
        *("shares", FEATURE, LABEL_HOLDER, _numbers(lambda numbers: numbers[:-1])),
        (f"{FEATURE} sent 15 bytes of round 0", "where 16 of round 0 are due"),
    ),
    "long": ("shares", FEATURE, LABEL_HOLDER, _numbers(lambda numbers: numbers + b"1"), (FEATURE, "round", "are due")),
    "empty": ("shares", FEATURE, LABEL_HOLDER, _numbers(lambda _: b""), (f"{FEATURE} sent 0 bytes of round",)),
    "long, to a feature party": (
        *("shares", LABEL_HOLDER, OTHER, _numbers(lambda numbers: numbers + b"1")),
        (f"{LABEL_HOLDER} sent 9 bytes of round 1", "where 8 of round 1 are due"),
    ),
    "of another round": ("shares", OTHER, LABEL_HOLDER, _later, (f"{OTHER} sent", "bytes of round")),
    "of no stage": ("shares", OTHER, LABEL_HOLDER, _of_another_stage, (f"shares of {OTHER}: this job has no round 0",)),
    "a short share of a champion": (
        *("champion_share", OTHER, FEATURE, _numbers(lambda numbers: numbers[:-8])),
        (f"{OTHER} sent", "bytes of champion_share, where"),
    ),
    "another score": (
        *("winner_shares", FEATURE, LABEL_HOLDER, _numbers(_flipped)),
        ("are not those of the candidate with which", FEATURE),
    ),
    "no score": (
        *("winner_shares", FEATURE, LABEL_HOLDER, _numbers(lambda _: b"")),
        (f"{FEATURE} sent 0 bytes of winner_shares",),
    ),
    "a seed of other length": (
        *("correlations", DEALER, FEATURE),
        lambda message: setattr(message.growth.correlations, "seed", b"1"),
        (f"{DEALER} dealt", "beside a seed of 1"),
    ),
    "fewer corrections": (
        *("correlations", DEALER, LABEL_HOLDER),
        lambda message: setattr(message.growth.correlations, "corrections", b""),
        (f"{DEALER} dealt 0 bytes",),
    ),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_wrong_message_ends_the_attempt_by_name(case: str, tmp_path: Path) -> None:
    """Within the deadline, before anything is opened by it."""
    kind, sender, receiver, change, words = WRONG[case]
    federation = Federation(tmp_path, HERE.tables, dealer=True)

    def tamper(me: str, to: str, message: Peer) -> None:
        says = (me, to, name_of(message)) == (sender, receiver, kind)
        if says and (kind == "correlations" or getattr(message.growth, kind).numbers):
            federation.tamper = None
            change(message)

    federation.tamper = tamper
    status = await federation.train(job_of(ONE))
    assert status.state in ("failed", "interrupted")
    for word in words:
        assert word in status.error, status.error


KILLED = [
    *((LABEL_HOLDER, "shares", number) for number in (1, 9)),
    *((FEATURE, "shares", number) for number in (2, 30)),
    *((OTHER, word, 1) for word in ("champion_share", "choose_shares", "winner_shares")),
    *((DEALER, word, number) for word in ("deal", "correlations") for number in (1, 4)),
]


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize(("victim", "word", "nth"), KILLED)
async def test_a_process_killed_in_a_stage(victim: str, word: str, nth: int, tmp_path: Path) -> None:
    """The next attempt has randomness of its own, and the model is the oracle's."""
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    federation.kill_at(victim, lambda message: message.word == word, nth=nth, back=True)
    status = await federation.train(job_of(ONE))
    assert status.state == "interrupted", status.error
    finished(await federation.resume())
    assert_oracles_model(federation.states, HERE.oracle(ONE))


SHAPED = replace(ONE, max_depth=2, subsample=1.0)


def _owners(here: World) -> list[dict[int, str]]:
    """The owner of each split node of the oracle's trees."""
    return [
        {number: node.owner for number, node in tree.nodes.items() if isinstance(node, OracleSplit)}
        for tree in here.oracle(SHAPED)
    ]


async def _lengths(folder: Path, here: World, params: TreeParams = SHAPED) -> list[tuple[str, str, str, int, int, int]]:
    """Lengths of all messages of a job, in order of their places."""
    federation, sent = Federation(folder, here.tables, dealer=True), []

    def noted(sender: str, to: str, message: Peer) -> None:
        sent.append((sender, to, name_of(message), message.stage, message.part, message.ByteSize()))

    federation.tamper = noted
    finished(await federation.train(job_of(params, len(here.blocks))))
    return sorted(sent)


@pytest.mark.parametrize("feature_parties", [1, 2])
async def test_lengths_say_nothing_of_the_data(feature_parties: int, tmp_path: Path) -> None:
    """Two tables of one shape, whose trees have the same nodes and owners; and the dealer gets sizes alone."""
    made = partial(world, 70, (1, *(2,) * feature_parties))
    here, owners = made(seed=0), _owners(made(seed=0))
    other = next(there for seed in range(1, 200) if _owners(there := made(seed=seed)) == owners)
    assert {FEATURE} <= set(owners[0].values())
    sent = await _lengths(tmp_path / "one", here)
    assert sent == await _lengths(tmp_path / "other", other)
    assert {kind for _, to, kind, *_ in sent if to == DEALER} == {"dealt_sizes", "opened_pairs"}


@pytest.mark.parametrize("feature_parties", [1, 2])
async def test_lengths_of_padded_trees_say_nothing_but_what_a_party_won(feature_parties: int, tmp_path: Path) -> None:
    """Trees of other nodes and other owners: where these differ are a winner's messages alone."""
    made, padded = partial(world, 70, (1, *(2,) * feature_parties)), replace(SHAPED, max_depth=3, pad_trees=True)
    sent = [await _lengths(tmp_path / str(seed), made(seed=seed), padded) for seed in (0, 1)]
    assert _owners(made(seed=0)) != _owners(made(seed=1))
    of_winners = {"left_choices", "children", "winner_shares", "leaf_paths"}
    one, other = ([row for row in of_job if row[2] not in of_winners] for of_job in sent)
    assert one == other
    assert {"shares", "candidate_sums", "correlations"} <= {kind for _, _, kind, *_ in one}


async def test_the_coordinator_sees_no_more(tmp_path: Path) -> None:
    """Answers of the same kinds as where sums are opened, of the same fields, and of the dealer nothing but ends."""
    kinds: list[set[tuple[str, str]]] = []
    for sums in ("opened", "shared"):
        job = job_of(ONE)
        job.sums, job.dealer = sums, DEALER if sums == "shared" else ""
        federation = Federation(tmp_path / sums, HERE.tables, dealer=True)
        seen = set[tuple[str, str]]()

        def hook(message: Message, seen: set[tuple[str, str]] = seen) -> None:
            if message.to == COORDINATOR or message.sender == COORDINATOR:
                seen.add((message.sender, message.word))

        federation.hook = hook
        finished(await federation.train(job))
        kinds.append(seen)
    assert kinds[1] - kinds[0] == {(COORDINATOR, word) for word in ("deal", "deal_again", "choose_shares")}
