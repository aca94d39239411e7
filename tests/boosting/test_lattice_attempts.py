"""Attempts at a job on a lattice: each draws all anew, a repeat is the same bytes, and no secret stays."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.boosting.lattice_jobs import JOB, OWN
from tests.lattice_ways import take_way
from tests.replay import HERE, ORACLE
from tests.simulator import Faults, Federation, Message, finished
from tests.worlds import PARTIES, assert_oracles_model
from treetap.lattice.histogram_ways import Way
from treetap.party.growth import lattice_values
from treetap.wire.frame import content_of, name_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES


def _fields(parcel: exchange_pb2.PeerMessage) -> list[bytes]:
    """Parts of a parcel that must be drawn anew: nonces, commitments, words, and both halves of sums."""
    content: Any = content_of(parcel, name_of(parcel))
    names = ("commitment", "nonce", "ciphertexts", "second_halves")
    return [data for name in names if len(data := getattr(content, name, b"")) >= 16]


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(("victim", "way"), [(victim, way) for victim in (LABEL_HOLDER, FEATURE) for way in Way])
async def test_every_attempt_draws_all_anew(victim: str, way: Way, tmp_path: Path) -> None:
    """Killed in a tree: no nonce, word or half of the first attempt comes again in the second, nor a half of a tree."""
    by_attempt: defaultdict[int, set[bytes]] = defaultdict(set)
    halves: dict[tuple[int, str, int, int], bytes] = {}
    seeds: list[bytes] = []

    with pytest.MonkeyPatch.context() as patch:
        token_bytes = lattice_values.secrets.token_bytes

        def drawn(size: int) -> bytes:
            seeds.append(token_bytes(size))
            return seeds[-1]

        patch.setattr("treetap.party.growth.lattice_values.secrets", SimpleNamespace(token_bytes=drawn))
        take_way(patch, way)
        federation = Federation(tmp_path, HERE.tables)

        def seen(sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
            if name_of(parcel) in (*OWN, "candidate_sums"):
                by_attempt[parcel.attempt].update(_fields(parcel))
            if parcel.growth.candidate_sums.second_halves:
                halves[parcel.attempt, sender, parcel.round, parcel.stage] = parcel.growth.candidate_sums.second_halves

        def hook(message: Message) -> None:
            if message.word == "candidate_sums" and len(by_attempt[1]) > 20:
                federation.hook = None
                federation.kill(victim)
                federation.start(victim)

        federation.tamper, federation.hook = seen, hook
        assert (await federation.train(JOB)).state == "interrupted"
        assert (await federation.resume()).state == "finished"
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()
    assert set(by_attempt) == {1, 2}
    assert all(len(contents) > 10 for contents in by_attempt.values())
    assert not by_attempt[1] & by_attempt[2]
    assert len(set(halves.values())) == len(halves) > 4  # in every tree too
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("way", Way)
async def test_a_repeat_within_an_attempt_is_the_same_bytes(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost answers and copies: a parcel that is sent again is what was sent, never words encrypted again."""
    take_way(monkeypatch, way)
    contents: defaultdict[tuple[Any, ...], list[bytes]] = defaultdict(list)

    def seen(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        where = (parcel.attempt, sender, to, name_of(parcel), parcel.round, parcel.stage, parcel.part)
        contents[where].append(parcel.SerializeToString(deterministic=True))

    faults = Faults(drop=0.1, lose_reply=0.15, double=0.2, delay_s=0.3, late_s=2.0, seed=4)
    federation = Federation(tmp_path, HERE.tables, faults=faults)
    federation.tamper = seen
    finished(await federation.train(JOB))
    assert_oracles_model(federation.states, ORACLE)
    await federation.close()
    assert all(len(set(each)) == 1 for each in contents.values())
    again = {where[3] for where, sent in contents.items() if len(sent) > 1}
    assert again >= {"encrypted_words", "candidate_sums", "seed_nonce", "seed_commitment"}


async def test_no_secret_is_in_a_file_or_a_message_and_workers_forget(tmp_path: Path) -> None:
    """Seeds of queries, from which their secrets come, stay in the label holder's memory, and are gone at the end."""
    seeds: list[bytes] = []
    token_bytes = lattice_values.secrets.token_bytes

    def drawn(size: int) -> bytes:
        seeds.append(token_bytes(size))
        return seeds[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treetap.party.growth.lattice_values.secrets", SimpleNamespace(token_bytes=drawn))
        federation = Federation(tmp_path, HERE.tables, record="both")
        assert (await federation.train(JOB)).state == "finished"
        for party in PARTIES:
            assert federation.remembered(party) == {}
        await federation.close()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    messages = [
        record.message
        for party in PARTIES
        for record in TranscriptReader(tmp_path / party / "state" / "transcripts" / "job")
    ]
    assert len(messages) > 50
    assert len(seeds) >= len(ORACLE)
    for seed in seeds:
        assert not any(seed in content for content in (*files, *messages))
