"""Randomness of a dealer, opened and checked before it is used: one of ten parts, all of them or every second here."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from tests.growth.test_shared_sums import SMALL, job_of
from tests.simulator import DEALER, Federation, failed, finished
from tests.worlds import PARTIES, assert_oracles_model, world
from treetap.arrays import Words
from treetap.protocols.dealing import MOST_OPENED
from treetap.shares import choice, dealing
from treetap.shares.streams import Dealer, Stream
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

HERE = partial(world, 60, (1, 1, 1), missing=0.1)


@pytest.mark.parametrize("one_of", [1, 2])
async def test_parts_that_are_opened_are_not_used(one_of: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others come in their place, of which one of ten is opened too, up to the last; the model stays the oracle's."""
    monkeypatch.setattr(choice, "ONE_OF", one_of)
    here = HERE()
    federation = Federation(tmp_path, here.tables, dealer=True)
    finished(await federation.train(job_of(SMALL)))
    assert_oracles_model(federation.states, here.oracle(SMALL))
    words = [message.word for message in federation.log]
    again, most = words.count("dealt_again"), MOST_OPENED * words.count("correlations")
    assert again == most if one_of == 1 else 0 < again < most


@pytest.mark.parametrize("kind", ["correlations", "dealt_again"])
@pytest.mark.parametrize("to", PARTIES[:2])
async def test_a_wrong_part_that_is_opened_ends_the_attempt_by_name(
    to: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of either party of a pair, in the place of an opened one too; nothing of the candidates was opened before."""
    monkeypatch.setattr(choice, "ONE_OF", 1)
    federation = Federation(tmp_path, HERE().tables, dealer=True)

    def tamper(sender: str, receiver: str, message: exchange_pb2.PeerMessage) -> None:
        if (sender, receiver, name_of(message)) == (DEALER, to, kind):
            dealt = getattr(message.growth, kind)
            dealt.corrections = dealt.corrections[:-1] + bytes([dealt.corrections[-1] ^ 1])

    federation.tamper = tamper
    failed(await federation.train(job_of(SMALL)), to, "the dealer's corrections are not what the seeds give")


def _windows(sent: bytes) -> Words:
    """Every 8 bytes of a message that lie side by side."""
    return np.ascontiguousarray(sliding_window_view(np.frombuffer(sent, np.uint8), 8)).view(np.uint64).ravel()


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_dealer_finds_no_word_of_its_own(fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what comes to it, and in what one feature party hands another; unless shares are handed on as they are."""
    dealers, sent = list[Dealer](), dict[str, list[bytes]]()
    monkeypatch.setattr(choice, "ONE_OF", 1 << 80)

    class Kept(Dealer):
        def __init__(self) -> None:
            super().__init__()
            dealers.append(self)

    monkeypatch.setattr(dealing, "Dealer", Kept)
    if not fresh:
        monkeypatch.setattr(choice, "urandom", lambda size: os.urandom(size) if size == 8 else bytes(size))
    federation = Federation(tmp_path, HERE().tables, dealer=True)

    def noted(_sender: str, to: str, message: exchange_pb2.PeerMessage) -> None:
        if to == DEALER or name_of(message) == "champion_share":
            sent.setdefault(name_of(message), []).append(message.SerializeToString())

    federation.tamper = noted
    finished(await federation.train(job_of(SMALL)))
    assert {*sent} == {"dealt_sizes", "opened_pairs", "champion_share"}
    words = [np.frombuffer(b"".join(part), np.uint64) for dealer in dealers for part in dealer.corrections]
    words += [Stream(seed).words(20_000) for dealer in dealers for seed in dealer.seeds]
    known = np.concatenate([*words, *map(np.negative, words)])
    found = {
        kind for kind, messages in sent.items() if np.isin(np.concatenate([*map(_windows, messages)]), known).any()
    }
    assert found == (set() if fresh else {"champion_share"})


async def test_a_score_that_is_not_the_left_sets_asks_the_label_holders_people(tmp_path: Path) -> None:
    """The attempt ends by name, and a resumed job waits for them, whom its policy has to name."""
    federation = Federation(
        tmp_path, HERE().tables, dealer=True, policies={PARTIES[0]: {"people": {"approvers": ["ann"]}}}
    )

    def tamper(_sender: str, _receiver: str, message: exchange_pb2.PeerMessage) -> None:
        if name_of(message) == "winner_shares":
            share = message.growth.winner_shares
            share.numbers = bytes([share.numbers[0] ^ 1]) + share.numbers[1:]

    federation.tamper = tamper
    failed(await federation.train(job_of(SMALL)), "Disputed", "are not those of the candidate with which")
    federation.tamper = None
    resumed = asyncio.ensure_future(federation.resume())
    while not (waiting := federation.node(PARTIES[0]).approvals.listed("job")) or not waiting[0].waits:
        await asyncio.sleep(1)
    assert federation.jobs.status("job")[0].state == "waiting"
    federation.node(PARTIES[0]).approvals.decide("ann", "job", waiting[0].digest, days=1)
    finished(await resumed)
