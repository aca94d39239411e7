"""Contents of a job on a lattice that come at another time, too often, or again: no sums, and a conflict."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.boosting.lattice_jobs import JOB, NO_SUM, OWN, flipped, resumes
from tests.lattice_ways import take_way
from tests.replay import HERE, ORACLE
from tests.simulator import Federation, failed, finished
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import Conflict
from treetap.lattice.histogram_ways import Way
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("kind", ["encrypted_words", "candidate_sums"])
async def test_contents_of_another_time_are_no_sums(
    kind: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words, or both halves of sums, of the first tree in the place of those of the second."""
    take_way(monkeypatch, way)
    sender, to = (LABEL_HOLDER, FEATURE) if kind == "encrypted_words" else (FEATURE, LABEL_HOLDER)
    kept: dict[int, Any] = {}

    def again(by: str, at: str, parcel: exchange_pb2.PeerMessage) -> None:
        if (by, at, name_of(parcel), parcel.stage) == (sender, to, kind, 0):
            content: Any = content_of(parcel, kind)
            if parcel.round == 0:
                kept[parcel.part] = type(content).FromString(content.SerializeToString())
            elif not (kind == "encrypted_words" and content.first):  # zeros of another query may serve: sums stay right
                content.CopyFrom(kept[parcel.part])

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = again
    status = await federation.train(JOB)
    assert status.state == "failed"
    assert re.search(f"Malformed: .*{NO_SUM}", status.error), status.error
    await resumes(federation)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", Way)
async def test_nodes_whose_records_are_not_known_are_not_summed(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words select a node's records by themselves; a party that does not know these still sends no sums of it."""
    take_way(monkeypatch, way)
    sent: list[str] = []

    def withheld(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if (to, name_of(parcel), parcel.round, parcel.stage) == (OTHER, "instance_spaces", 0, 1):
            assert parcel.growth.instance_spaces.spaces
            del parcel.growth.instance_spaces.spaces[:]
        elif (sender, parcel.round, parcel.stage) == (OTHER, 0, 1):
            sent.append(name_of(parcel))

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = withheld
    status = await federation.train(JOB)
    assert (status.state, sent) == ("failed", [])
    assert "OutOfOrder: the records of node 2 of tree 0 are not known at this party" in status.error
    await resumes(federation)


async def test_words_of_more_nodes_than_are_built(tmp_path: Path) -> None:
    """A part behind the last one that is due ends the attempt by name."""
    federation = Federation(tmp_path, HERE.tables)
    further: list[asyncio.Task[Any]] = []

    def more(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if (to, name_of(parcel), parcel.round, parcel.stage, parcel.part) == (FEATURE, "encrypted_words", 0, 0, 1):
            parcel.last = False
            behind = exchange_pb2.PeerMessage.FromString(parcel.SerializeToString())
            behind.part, behind.last = 2, True
            content: Any = content_of(behind, "encrypted_words")
            content.node, content.first, content.count, content.ciphertexts = 2, 0, 0, b""
            node = federation.node(FEATURE)
            further.append(asyncio.ensure_future(node.deliver(LABEL_HOLDER, behind)))

    federation.tamper = more
    failed(await federation.train(JOB), "Malformed: label-holder sent words of more nodes than are built in tree 0")
    await asyncio.gather(*further, return_exceptions=True)
    await resumes(federation)


async def test_words_that_come_again_with_other_content_are_a_conflict(tmp_path: Path) -> None:
    """The same bytes are acknowledged; others are refused, and the first ones count."""
    refused: list[str] = []

    federation = Federation(tmp_path, HERE.tables)
    tried: set[tuple[str, str, str]] = set()
    tasks: list[asyncio.Task[None]] = []

    async def again(sender: str, to: str, wire: bytes, kind: str) -> None:
        await asyncio.sleep(0)
        node = federation.node(to)
        await node.deliver(sender, exchange_pb2.PeerMessage.FromString(wire))
        other = exchange_pb2.PeerMessage.FromString(wire)
        content: Any = content_of(other, kind)
        field = {"seed_commitment": "commitment", "seed_nonce": "nonce"}.get(kind, "ciphertexts")
        if kind == "candidate_count":
            content.candidates += 1
        else:
            setattr(content, field, flipped(getattr(content, field)))
        with pytest.raises(Conflict, match=f"{kind} part 0 from {sender} came again with other content"):
            await node.deliver(sender, other)
        refused.append(kind)

    def seen(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        kind = name_of(parcel)
        if kind in OWN and parcel.part == 0 and (kind, sender, to) not in tried:
            tried.add((kind, sender, to))
            tasks.append(asyncio.ensure_future(again(sender, to, parcel.SerializeToString(), kind)))

    federation.tamper = seen
    finished(await federation.train(JOB))
    await asyncio.gather(*tasks)
    assert_oracles_model(federation.states, ORACLE)
    await federation.close()
    assert set(refused) == set(OWN)
