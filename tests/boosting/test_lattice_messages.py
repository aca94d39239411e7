"""Messages of boosting on a lattice, and their order.

- Messages of a job on a lattice that are false: named, and not kept.
- Contents of a job on a lattice that come at another time, too often, or again: no sums, and a conflict.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.boosting.lattice_jobs import JOB, NO_SUM, OWN, N, flipped, resumes
from tests.lattice_ways import take_way
from tests.replay import HERE, ORACLE
from tests.simulator import Federation, failed, finished
from tests.tampered import with_fields
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import Conflict
from treetap.lattice.histogram_scheme import self_test
from treetap.lattice.histogram_ways import Way
from treetap.native import histograms
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
Change = Callable[[Any], None]


def _bytes_of(field: str, other: Callable[[bytes], bytes]) -> Change:
    """Give a field of bytes other ones."""
    return lambda content: setattr(content, field, other(getattr(content, field)))


def _noise(data: bytes) -> bytes:
    return bytes((37 * place + 11) % 251 for place in range(len(data)))


# (content, sender, receiver, tree, stage, part, the change, what the operator reads)
FALSE: dict[str, tuple[str, str, str, tuple[int, int, int], Change, str]] = {
    "a modulus": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(modulus=b"\x05" * 128),
        "label-holder sent a modulus, and scheme 'lattice' has none",
    ),
    "a modulus of zeros": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(modulus=b"\0"),
        "label-holder sent a modulus, and scheme 'lattice' has none",
    ),
    "another scheme": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(scheme="paillier"),
        "the key of label-holder is one of scheme 'paillier', the job says 'lattice'",
    ),
    "wider slots": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(slot_widths=[39, 36, 6]),
        "the key of label-holder cannot be used: it comes with slots of 39, 36, 6 bits, the job implies 38, 36, 6",
    ),
    "slots beyond all": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(slot_widths=[63] * 49),
        "the key of label-holder cannot be used: one record needs 3087 bits",
    ),
    "too few candidates": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(candidates=1),
        "label-holder says that a party has at most 1 candidates, .* feature-b has 2 candidates",
    ),
    "no queries": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(queries=0),
        "and that 0 nodes are built; feature-b has 2 candidates",
    ),
    "bounds beyond all": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(candidates=1 << 31),
        "the layout of label-holder cannot be used: .*candidates 2147483648 is outside",
    ),
    "fewer nodes than are built": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(queries=2),
        f"label-holder asks for more than the 2 nodes that it said|{NO_SUM}",
    ),
    "more candidates than there may be": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(candidates=(1 << 32) - 1),
        "feature-b says that it has 4294967295 candidates",
    ),
    "sets that are hidden more than can be": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(hiding=65),
        "the layout of label-holder cannot be used: .*hiding 65 is outside of what the lattice scheme takes: 40 to 64",
    ),
    "more hiding than there is": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(hiding=65),
        "feature-b asks for 65 bits of hiding, a lattice gives 40 to 64",
    ),
    "another commitment": (
        *("seed_commitment", FEATURE, OTHER, (0, 0, 0)),
        _bytes_of("commitment", flipped),
        "Malformed: the nonce of feature-b is not the one that it has committed to",
    ),
    "no commitment": (
        *("seed_commitment", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(commitment=b""),
        "Malformed: the nonce of label-holder is not the one that it has committed to",
    ),
    "another nonce": (
        *("seed_nonce", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("nonce", flipped),
        "Malformed: the nonce of label-holder is not the one that it has committed to",
    ),
    "a nonce that is cut": (
        *("seed_nonce", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("nonce", lambda nonce: nonce[:-1]),
        "Malformed: the nonce of feature-b is not the one that it has committed to",
    ),
    "words of a later record": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(first=1),
        "label-holder sent words out of place in tree 0",
    ),
    "words of another node": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(node=2),
        "label-holder sent words out of place in tree 0",
    ),
    "words that are cut": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda words: words[:-1]),
        r"label-holder sent what are no words of node \d: words of 4112 records from 0 on are not those that are due",
    ),
    "words of fewer records": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(count=N - 1),
        r"label-holder sent what are no words of node \d: words of 15 records from 0 on are not those that are due",
    ),
    "words of no records": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(count=0, ciphertexts=b""),
        r"label-holder sent what are no words of node \d: words of 0 records from 0 on are not those that are due",
    ),
    "zeros that are cut": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (1, 0, 0)),
        _bytes_of("ciphertexts", lambda words: words[: len(words) // 2]),
        r"label-holder sent what are no words of node \d: words of 4112 records from 0 on are not those that are due",
    ),
    "words of noise": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("ciphertexts", _noise),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "zeros of noise": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda words: words[: -len(words) // 2] + _noise(words[-len(words) // 2 :])),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "first halves that are cut": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda halves: halves[:-1]),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "first halves twice": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 1, 0)),
        _bytes_of("ciphertexts", lambda halves: 2 * halves),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "first halves of zeros": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda halves: bytes(len(halves))),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "second halves that are cut": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("second_halves", lambda halves: halves[:-1]),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "no second halves": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(second_halves=b""),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "second halves of noise": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("second_halves", _noise),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "second halves that are not due": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 1, 0)),
        with_fields(second_halves=bytes(1000)),
        f"{NO_SUM}(sums of 2 candidates have other sizes|a sum has more noise than|.*above the last slot)",
    ),
    "other candidates than before": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(candidates=3),
        "feature-b .*candidates",
    ),
    "merged bins": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(min_cell_records=3),
        "feature-b does not say of tree 0 what it said with the key, whether it merges its bins",
    ),
    "bins that are merged by the key alone": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(merges_bins=True),
        "feature-b does not say of tree 0 what it said with the key, whether it merges its bins",
    ),
    "second halves that a party does not keep": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        with_fields(keeps_second_halves=True),
        "label-holder does not say of all parties what feature-b has said of its sums",
    ),
    "second halves that the label holder is to keep": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(keeps_second_halves=True),
        f"{NO_SUM}(sums of 2 candidates have other sizes|a sum has more noise than|.*above the last slot)",
    ),
    "sums of another node": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        with_fields(nodes=[7]),
        r"feature-b sent candidates of nodes \[7\], expected \[1\]",
    ),
}

#: Second halves come with every node by sets, whoever keeps them.
HARMLESS = ("second halves that the label holder is to keep", Way.SETS)


class Line:
    """A line on which one parcel is changed, whenever it comes; `seen` has the contents of all before."""

    def __init__(self, kind: str, sender: str, to: str, at: tuple[int, int, int], change: Change) -> None:
        self._which, self._change, self.changed = (kind, sender, to, at), change, False

    def __call__(self, sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        """Carry a parcel."""
        kind = name_of(parcel)
        if (kind, sender, to, (parcel.round, parcel.stage, parcel.part)) == self._which:
            self._change(content_of(parcel, kind))
            self.changed = True
        return parcel


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("case", "way"), [(case, way) for case in FALSE for way in Way if (case, way) != HARMLESS])
async def test_false_contents_are_named_and_not_kept(
    case: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One parcel changed on its way: the party is named at once, none hangs, and resuming gives the oracle's model."""
    *which, change, message = FALSE[case]
    take_way(monkeypatch, way)

    federation = Federation(tmp_path, HERE.tables, silence_s=1000.0)
    line = federation.tamper = Line(*which, change)  # type: ignore[arg-type]
    status = await federation.train(JOB)
    assert line.changed
    assert status.state == "failed"
    assert status.error.startswith("Malformed: "), status.error
    assert re.search(message, status.error), status.error
    assert status.seconds < 100
    await resumes(federation)


async def test_transforms_that_are_not_exact_enough_end_the_attempt_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reads at which party a limb was too far from a whole number, and can resume."""
    self_test()  # made of the same products, once

    federation = Federation(tmp_path, HERE.tables)
    with monkeypatch.context() as patch:
        patch.setattr(histograms, "FARTHEST", 1e-12)
        status = await federation.train(JOB)
    assert status.state == "interrupted"
    assert re.search("label-holder: encrypted histograms, encrypt: a limb is .* from a whole number", status.error)
    await resumes(federation)


@pytest.mark.second_tier(but=1)
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
        if (to, name_of(parcel), parcel.round, parcel.stage, parcel.part) == (FEATURE, "encrypted_words", 0, 0, 0):
            parcel.last = False
            behind = exchange_pb2.PeerMessage.FromString(parcel.SerializeToString())
            behind.part, behind.last = 1, True
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
