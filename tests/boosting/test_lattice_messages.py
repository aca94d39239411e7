"""Messages of a job on a lattice that are false, late, repeated or lost, and what every attempt draws anew."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from party.growth import lattice_values
from tests.lattice_ways import take_way
from tests.replay import HERE, ORACLE, PARAMS
from tests.simulator import Faults, Federation, Message, run
from tests.worlds import PARTIES, assert_oracles_model, spec
from treetap.errors import Conflict
from treetap.lattice.histogram_ways import Way
from treetap.lattice.joint_seed import self_test
from treetap.native import histograms
from treetap.native.histograms import SEED_BYTES
from treetap.protocols.key_options import LATTICE
from treetap.wire.frame import content_of, name_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
JOB = spec(PARAMS, scheme=LATTICE)
N = len(HERE.y)
#: Contents that only a job on a lattice has.
OWN = ("candidate_count", "seed_commitment", "seed_nonce", "encrypted_words")
Change = Callable[[Any], None]
NO_SUM = "feature-b has offered what is no sum over its columns: "


def _set(**fields: Any) -> Change:
    """Give fields other contents."""

    def change(content: Any) -> None:
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(content, name)[:]
                getattr(content, name).extend(value)
            else:
                setattr(content, name, value)

    return change


def _bytes_of(field: str, other: Callable[[bytes], bytes]) -> Change:
    """Give a field of bytes other ones."""
    return lambda content: setattr(content, field, other(getattr(content, field)))


def _flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def _noise(data: bytes) -> bytes:
    return bytes((37 * place + 11) % 251 for place in range(len(data)))


# (content, sender, receiver, tree, stage, part, the change, what the operator reads)
FALSE: dict[str, tuple[str, str, str, tuple[int, int, int], Change, str]] = {
    "a modulus": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(modulus=b"\x05" * 128),
        "label-holder sent a modulus, and scheme 'lattice' has none",
    ),
    "a modulus of zeros": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(modulus=b"\0"),
        "label-holder sent a modulus, and scheme 'lattice' has none",
    ),
    "another scheme": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(scheme="paillier"),
        "the key of label-holder is one of scheme 'paillier', the job says 'lattice'",
    ),
    "wider slots": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(slot_widths=[39, 36, 6]),
        "the key of label-holder cannot be used: it comes with slots of 39, 36, 6 bits, the job implies 38, 36, 6",
    ),
    "slots beyond all": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(slot_widths=[63] * 49),
        "the key of label-holder cannot be used: one record needs 3087 bits",
    ),
    "too few candidates": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(candidates=1),
        "label-holder says that a party has at most 1 candidates, .* feature-b has 2 candidates",
    ),
    "no queries": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(queries=0),
        "and that 0 nodes are built; feature-b has 2 candidates",
    ),
    "bounds beyond all": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(candidates=1 << 31),
        "the layout of label-holder cannot be used: .*candidates 2147483648 is outside",
    ),
    "fewer nodes than are built": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(queries=2),
        f"label-holder asks for more than the 2 nodes that it said|{NO_SUM}",
    ),
    "more candidates than there may be": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _set(candidates=(1 << 32) - 1),
        "feature-b says that it has 4294967295 candidates",
    ),
    "another commitment": (
        *("seed_commitment", FEATURE, OTHER, (0, 0, 0)),
        _bytes_of("commitment", _flipped),
        "Malformed: the nonce of feature-b is not the one that it has committed to",
    ),
    "no commitment": (
        *("seed_commitment", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(commitment=b""),
        "Malformed: the nonce of label-holder is not the one that it has committed to",
    ),
    "another nonce": (
        *("seed_nonce", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("nonce", _flipped),
        "Malformed: the nonce of label-holder is not the one that it has committed to",
    ),
    "a nonce that is cut": (
        *("seed_nonce", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _bytes_of("nonce", lambda nonce: nonce[:-1]),
        "Malformed: the nonce of feature-b is not the one that it has committed to",
    ),
    "words of a later record": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(first=1),
        "label-holder sent words out of place in tree 0",
    ),
    "words of another node": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 1)),
        _set(node=2),
        "label-holder sent words out of place in tree 0",
    ),
    "words that are cut": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("ciphertexts", lambda words: words[:-1]),
        r"label-holder sent what are no words of node \d: words of 16 records from 0 on are not those that are due",
    ),
    "words of fewer records": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(count=N - 1),
        r"label-holder sent what are no words of node \d: words of 15 records from 0 on are not those that are due",
    ),
    "words of no records": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(count=0, ciphertexts=b""),
        r"label-holder sent what are no words of node \d: words of 0 records from 0 on are not those that are due",
    ),
    "zeros that are cut": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (1, 0, 1)),
        _bytes_of("ciphertexts", lambda words: words[: len(words) // 2]),
        r"label-holder sent what are no words of node \d: words of 4096 records from 16 on are not those that are due",
    ),
    "words of noise": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _bytes_of("ciphertexts", _noise),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "zeros of noise": (
        *("encrypted_words", LABEL_HOLDER, FEATURE, (0, 0, 1)),
        _bytes_of("ciphertexts", _noise),
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
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 1)),
        _bytes_of("second_halves", lambda halves: halves[:-1]),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "no second halves": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 1)),
        _set(second_halves=b""),
        f"{NO_SUM}sums of 2 candidates have other sizes",
    ),
    "second halves of noise": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 1)),
        _bytes_of("second_halves", _noise),
        f"{NO_SUM}(a sum has more noise than|.*above the last slot|sums of node . are such that no)",
    ),
    "second halves that are not due": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 1, 0)),
        _set(second_halves=bytes(1000)),
        f"{NO_SUM}(sums of 2 candidates have other sizes|a sum has more noise than|.*above the last slot)",
    ),
    "other candidates than before": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _set(candidates=3),
        "feature-b .*candidates",
    ),
    "merged bins": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _set(min_cell_records=3),
        "feature-b does not say of tree 0 what it said with the key, whether it merges its bins",
    ),
    "bins that are merged by the key alone": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _set(merges_bins=True),
        "feature-b does not say of tree 0 what it said with the key, whether it merges its bins",
    ),
    "second halves that a party does not keep": (
        *("public_key", LABEL_HOLDER, FEATURE, (0, 0, 0)),
        _set(keeps_second_halves=True),
        "label-holder does not say of all parties what feature-b has said of its sums",
    ),
    "second halves that the label holder is to keep": (
        *("candidate_count", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _set(keeps_second_halves=True),
        f"{NO_SUM}(sums of 2 candidates have other sizes|a sum has more noise than|.*above the last slot)",
    ),
    "sums of another node": (
        *("candidate_sums", FEATURE, LABEL_HOLDER, (0, 0, 0)),
        _set(nodes=[7]),
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


async def _resumes(federation: Federation) -> None:
    federation.tamper = None
    resumed = await federation.resume()
    assert (resumed.state, resumed.error) == ("finished", "")
    assert_oracles_model(federation.states, ORACLE)


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize(("case", "way"), [(case, way) for case in FALSE for way in Way if (case, way) != HARMLESS])
def test_false_contents_are_named_and_not_kept(
    case: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One parcel changed on its way: the party is named at once, none hangs, and resuming gives the oracle's model."""
    *which, change, message = FALSE[case]
    take_way(monkeypatch, way)

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, silence_s=1000.0)
        line = federation.tamper = Line(*which, change)  # type: ignore[arg-type]
        status = await federation.train(JOB)
        assert line.changed
        assert status.state == "failed"
        assert status.error.startswith("Malformed: "), status.error
        assert re.search(message, status.error), status.error
        assert status.seconds < 100
        await _resumes(federation)
        await federation.close()

    run(main())


def test_transforms_that_are_not_exact_enough_end_the_attempt_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reads at which party a limb was too far from a whole number, and can resume."""
    self_test()  # made of the same products, once

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        with monkeypatch.context() as patch:
            patch.setattr(histograms, "FARTHEST", 1e-12)
            status = await federation.train(JOB)
        assert status.state == "interrupted"
        assert re.search("label-holder: encrypted histograms, encrypt: a limb is .* from a whole number", status.error)
        await _resumes(federation)
        await federation.close()

    run(main())


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("kind", ["encrypted_words", "candidate_sums"])
def test_contents_of_another_time_are_no_sums(
    kind: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words, or both halves of sums, of the first tree in the place of those of the second."""
    take_way(monkeypatch, way)
    sender, to = (LABEL_HOLDER, FEATURE) if kind == "encrypted_words" else (FEATURE, LABEL_HOLDER)
    kept: dict[int, Any] = {}

    def again(by: str, at: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if (by, at, name_of(parcel), parcel.stage) == (sender, to, kind, 0):
            content: Any = content_of(parcel, kind)
            if parcel.round == 0:
                kept[parcel.part] = type(content).FromString(content.SerializeToString())
            elif not (
                kind == "encrypted_words" and content.first
            ):  # zeros of another query may serve: nobody is misled
                content.CopyFrom(kept[parcel.part])
        return parcel

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        federation.tamper = again
        status = await federation.train(JOB)
        assert status.state == "failed"
        assert re.search(f"Malformed: .*{NO_SUM}", status.error), status.error
        await _resumes(federation)
        await federation.close()

    run(main())


@pytest.mark.parametrize("way", Way)
def test_nodes_whose_records_are_not_known_are_not_summed(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words select a node's records by themselves; a party that does not know these still sends no sums of it."""
    take_way(monkeypatch, way)
    sent: list[str] = []

    def withheld(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if (to, name_of(parcel), parcel.round, parcel.stage) == (OTHER, "instance_spaces", 0, 1):
            assert parcel.growth.instance_spaces.spaces
            del parcel.growth.instance_spaces.spaces[:]
        elif (sender, parcel.round, parcel.stage) == (OTHER, 0, 1):
            sent.append(name_of(parcel))
        return parcel

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        federation.tamper = withheld
        status = await federation.train(JOB)
        assert (status.state, sent) == ("failed", [])
        assert "OutOfOrder: the records of node 2 of tree 0 are not known at this party" in status.error
        await _resumes(federation)
        await federation.close()

    run(main())


def test_words_of_more_nodes_than_are_built(tmp_path: Path) -> None:
    """A part behind the last one that is due ends the attempt by name."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        further: list[asyncio.Task[Any]] = []

        def more(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if (to, name_of(parcel), parcel.round, parcel.stage, parcel.part) == (FEATURE, "encrypted_words", 0, 0, 1):
                parcel.last = False
                behind = exchange_pb2.PeerMessage.FromString(parcel.SerializeToString())
                behind.part, behind.last = 2, True
                content: Any = content_of(behind, "encrypted_words")
                content.node, content.first, content.count, content.ciphertexts = 2, 0, 0, b""
                node = federation.node(FEATURE)
                further.append(asyncio.ensure_future(node.deliver(LABEL_HOLDER, behind)))
            return parcel

        federation.tamper = more
        status = await federation.train(JOB)
        assert status.state == "failed"
        assert "Malformed: label-holder sent words of more nodes than are built in tree 0" in status.error
        await asyncio.gather(*further, return_exceptions=True)
        await _resumes(federation)
        await federation.close()

    run(main())


def test_words_that_come_again_with_other_content_are_a_conflict(tmp_path: Path) -> None:
    """The same bytes are acknowledged; others are refused, and the first ones count."""
    refused: list[str] = []

    async def main() -> None:
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
                setattr(content, field, _flipped(getattr(content, field)))
            with pytest.raises(Conflict, match=f"{kind} part 0 from {sender} came again with other content"):
                await node.deliver(sender, other)
            refused.append(kind)

        def seen(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            kind = name_of(parcel)
            if kind in OWN and parcel.part == 0 and (kind, sender, to) not in tried:
                tried.add((kind, sender, to))
                tasks.append(asyncio.ensure_future(again(sender, to, parcel.SerializeToString(), kind)))
            return parcel

        federation.tamper = seen
        status = await federation.train(JOB)
        assert (status.state, status.error) == ("finished", "")
        await asyncio.gather(*tasks)
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())
    assert set(refused) == set(OWN)


# ---- attempts and repeats


def _fields(parcel: exchange_pb2.PeerMessage) -> list[bytes]:
    """What a parcel has that must be drawn anew: nonces, commitments, words, and both halves of sums."""
    content: Any = content_of(parcel, name_of(parcel))
    names = ("commitment", "nonce", "ciphertexts", "second_halves")
    return [data for name in names if len(data := getattr(content, name, b"")) >= 16]


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(("victim", "way"), [(victim, way) for victim in (LABEL_HOLDER, FEATURE) for way in Way])
def test_every_attempt_draws_all_anew(victim: str, way: Way, tmp_path: Path) -> None:
    """Killed in a tree: no nonce, word or half of the first attempt comes again in the second, nor a half of a tree."""
    by_attempt: defaultdict[int, set[bytes]] = defaultdict(set)
    halves: dict[tuple[int, str, int, int], bytes] = {}
    seeds: list[bytes] = []

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)

        def seen(sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if name_of(parcel) in (*OWN, "candidate_sums"):
                by_attempt[parcel.attempt].update(_fields(parcel))
            if parcel.growth.candidate_sums.second_halves:
                halves[parcel.attempt, sender, parcel.round, parcel.stage] = parcel.growth.candidate_sums.second_halves
            return parcel

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

    with pytest.MonkeyPatch.context() as patch:
        token_bytes = lattice_values.secrets.token_bytes

        def drawn(size: int) -> bytes:
            seeds.append(token_bytes(size))
            return seeds[-1]

        patch.setattr("party.growth.lattice_values.secrets.token_bytes", drawn)
        take_way(patch, way)
        run(main())
    assert set(by_attempt) == {1, 2}
    assert all(len(contents) > 10 for contents in by_attempt.values())
    assert not by_attempt[1] & by_attempt[2]
    assert len(set(halves.values())) == len(halves) > 4  # in every tree too
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("way", Way)
def test_a_repeat_within_an_attempt_is_the_same_bytes(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost answers and copies: a parcel that is sent again is what was sent, never words encrypted again."""
    take_way(monkeypatch, way)
    contents: defaultdict[tuple[Any, ...], list[bytes]] = defaultdict(list)

    def seen(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        where = (parcel.attempt, sender, to, name_of(parcel), parcel.round, parcel.stage, parcel.part)
        contents[where].append(parcel.SerializeToString(deterministic=True))
        return parcel

    async def main() -> None:
        faults = Faults(drop=0.1, lose_reply=0.15, double=0.2, delay_s=0.3, late_s=2.0, seed=3)
        federation = Federation(tmp_path, HERE.tables, faults=faults)
        federation.tamper = seen
        status = await federation.train(JOB)
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())
    assert all(len(set(each)) == 1 for each in contents.values())
    again = {where[3] for where, sent in contents.items() if len(sent) > 1}
    assert again >= {"encrypted_words", "candidate_sums", "seed_nonce", "seed_commitment"}


def test_no_secret_is_in_a_file_or_a_message_and_workers_forget(tmp_path: Path) -> None:
    """Seeds of queries, from which their secrets come, stay in the label holder's memory, and are gone at the end."""
    seeds: list[bytes] = []
    token_bytes = lattice_values.secrets.token_bytes

    def drawn(size: int) -> bytes:
        seeds.append(token_bytes(size))
        return seeds[-1]

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, record="both")
        assert (await federation.train(JOB)).state == "finished"
        for party in PARTIES:
            assert federation.remembered(party) == {}
        await federation.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("party.growth.lattice_values.secrets.token_bytes", drawn)
        run(main())
    queries = [seed for seed in seeds if len(seed) == SEED_BYTES]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    messages = [
        record.message
        for party in PARTIES
        for record in TranscriptReader(tmp_path / party / "state" / "transcripts" / "job")
    ]
    assert len(messages) > 50
    nodes = sum(1 for _ in queries)
    assert nodes >= 2 * len(ORACLE)
    nonces = [seed for seed in queries if any(seed in message for message in messages)]
    assert len(nonces) <= len(PARTIES)  # what `joint_seed` draws is opened, by the same function
    for seed in set(queries) - set(nonces):
        assert not any(seed in content for content in files)
