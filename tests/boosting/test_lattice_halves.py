"""Second halves of words on a lattice, and attempts at such a job.

- Second halves of candidates: how long they serve, what they link, and what a refused opening ends.
- Attempts at a job on a lattice: each draws all anew, a repeat is the same bytes, and no secret stays.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from os import SEEK_END
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest

from tests.boosting.lattice_jobs import JOB, OWN
from tests.lattice_ways import take_way
from tests.replay import HERE, ORACLE
from tests.simulator import Faults, Federation, finished
from tests.worlds import PARTIES, World, assert_oracles_model, spec, world
from treetap.errors import Malformed
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_sets import HistogramSets
from treetap.lattice.histogram_ways import Way
from treetap.party.growth import feature_party, lattice_values
from treetap.party.growth.split_table import TreeColumns
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams
from treetap.wire.frame import content_of, name_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
PARAMS = BoostingParams(n_estimators=3, max_depth=4, max_bin=4, min_child_weight=0.0)
WITH_MISSING = world(80, (1, 2, 2), missing=0.1)
#: A policy that lets second halves serve all trees.
BY_JOB = {"keys": {"second_halves": "job"}}


class Halves:
    """Second halves of a training, as they were sent, by attempt, party and tree; and orders of candidates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: defaultdict[tuple[int, str, int], bytes] = defaultdict(bytes)
        self.orders: list[tuple[int, ...]] = []
        order = TreeColumns.order

        def noted(columns: TreeColumns, node: int) -> Any:
            made = order(columns, node)
            if columns._permuted and columns.table.party == FEATURE and (key := tuple(made.tolist())):
                self.orders += [key] if not self.orders or self.orders[-1] != key else []
            return made

        monkeypatch.setattr(TreeColumns, "order", noted)

    def __call__(self, sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        """See a parcel on its way."""
        if name_of(parcel) == "candidate_sums" and parcel.growth.candidate_sums.second_halves:
            self.sent[parcel.attempt, sender, parcel.round] += parcel.growth.candidate_sums.second_halves
        return parcel


async def _train(
    folder: Path, halves: Halves, params: BoostingParams, keeping: Sequence[str], way: Way, here: World = WITH_MISSING
) -> None:
    """A training that finds the oracle's model; `keeping`: the parties whose second halves may serve all trees."""

    with pytest.MonkeyPatch.context() as patch:
        chosen = take_way(patch, way)
        federation = Federation(folder, here.tables, policies=dict.fromkeys(keeping, BY_JOB))
        federation.tamper = halves
        finished(await federation.train(spec(params, len(here.blocks), scheme=LATTICE)))
        assert_oracles_model(federation.states, here.oracle(params))
        await federation.close()
        assert set(chosen) == {way}


async def test_second_halves_of_a_job_are_sent_once_in_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a party whose policy says so, more queries than four; another party draws them anew in every tree."""
    halves = Halves(monkeypatch)
    await _train(tmp_path, halves, PARAMS, [FEATURE], Way.QUERIES)
    assert {tree for _, party, tree in halves.sent if party == FEATURE} == {0}
    assert {tree for _, party, tree in halves.sent if party == OTHER} == {0, 1, 2}
    sizes = {party: len(halves.sent[1, party, 0]) for party in (FEATURE, OTHER)}
    assert sizes[OTHER] > sizes[FEATURE]  # of a tree with more than four queries, twice
    assert len(halves.orders) == 1


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("keeping", "params", "way"),
    [
        ([], PARAMS, Way.QUERIES),
        ([FEATURE, OTHER], replace(PARAMS, colsample_bytree=0.5), Way.QUERIES),
        ([FEATURE, OTHER], PARAMS, Way.SETS),
    ],
)
async def test_second_halves_are_drawn_anew_otherwise(
    keeping: list[str], params: BoostingParams, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the policy's word, where trees have other columns, and by sets: no half of a tree comes again."""
    halves = Halves(monkeypatch)
    await _train(tmp_path, halves, params, keeping, way)
    assert {tree for _, _, tree in halves.sent} == {0, 1, 2}
    parts = [data[at : at + 1000] for data in halves.sent.values() for at in range(0, len(data), 1000)]
    assert len(set(parts)) == len(parts)
    assert len(halves.orders) >= 2


@pytest.mark.parametrize("keeping", [True, False])
async def test_candidates_are_linked_over_trees_by_kept_halves_alone(
    keeping: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label holder tries second halves of the first tree on first halves of the last one, each on each."""
    kept: list[tuple[bytes, int]] = []
    links: list[tuple[int, int]] = []
    keep, open_halves = HistogramKeyHolder.keep_second_halves, HistogramKeyHolder.open

    async def noted(holder: HistogramKeyHolder, party: str, halves: IO[bytes], candidates: int) -> None:
        if party == FEATURE:
            halves.seek(0)
            kept.append((halves.read(), candidates))
        await keep(holder, party, halves, candidates)

    queries: list[bytes] = []

    async def tried(holder: HistogramKeyHolder, party: str, firsts: bytes, candidates: int, query: bytes) -> Any:
        opened = await open_halves(holder, party, firsts, candidates, query)
        queries.append(query)
        if party == FEATURE and len(set(queries)) == 1 + opened_nodes:
            width = holder.parameters.second_half_bytes
            first_tree = np.frombuffer(kept[0][0], dtype=np.uint8).reshape(candidates, width)
            for shift in range(candidates):
                await keep(holder, party, BytesIO(np.roll(first_tree, shift, axis=0).tobytes()), candidates)
                try:
                    await open_halves(holder, party, firsts, candidates, query)
                except Malformed:
                    continue
                links.append((shift, len(links)))
            await keep(holder, party, BytesIO(kept[-1][0]), candidates)
        return opened

    params = replace(PARAMS, n_estimators=2, max_depth=1)
    opened_nodes = 1  # of the first tree: its root alone
    monkeypatch.setattr(HistogramKeyHolder, "keep_second_halves", noted)
    monkeypatch.setattr(HistogramKeyHolder, "open", tried)
    halves = Halves(monkeypatch)
    await _train(tmp_path, halves, params, [FEATURE] if keeping else [], Way.QUERIES)
    assert len(set(queries)) == 2
    # halves as they lie open all candidates, and so say which is which; turned, or of another tree, they open none
    assert links == ([(0, 0)] if keeping else [])
    assert len(halves.orders) == (1 if keeping else 2)


@pytest.mark.second_tier
async def test_a_resumed_job_draws_kept_halves_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt sends its own, once."""
    halves = Halves(monkeypatch)

    with pytest.MonkeyPatch.context() as patch:
        take_way(patch, Way.QUERIES)
        federation = Federation(tmp_path, WITH_MISSING.tables, policies={FEATURE: BY_JOB, OTHER: BY_JOB})
        federation.tamper = halves
        federation.kill_at(FEATURE, lambda message: (message.word, message.to) == ("store_tree", FEATURE), back=True)
        assert (await federation.train(spec(PARAMS, scheme=LATTICE))).state == "interrupted"
        assert (await federation.resume()).state == "finished"
        assert_oracles_model(federation.states, WITH_MISSING.oracle(PARAMS))
        await federation.close()
    by_attempt = {attempt: data for (attempt, party, _), data in halves.sent.items() if party == FEATURE}
    assert len([key for key in halves.sent if key[1] == FEATURE]) == 2
    assert set(by_attempt) == {1, 2}
    assert by_attempt[1][:1000] != by_attempt[2][:1000]


async def test_halves_of_a_node_are_sent_before_the_next_ones_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sets every node has second halves: neither role holds those of a stage that a message does not."""
    events: list[str] = []
    answer, keep = HistogramSets.answer, HistogramKeyHolder.keep_second_halves

    async def answered(sets: HistogramSets, *given: Any) -> Any:
        events.append("made")
        return await answer(sets, *given)

    async def kept(holder: HistogramKeyHolder, party: str, halves: IO[bytes], candidates: int) -> None:
        assert halves.seek(0, SEEK_END) == candidates * holder.parameters.second_half_bytes
        await keep(holder, party, halves, candidates)

    class Seen(Halves):
        def __call__(self, sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if name_of(parcel) == "candidate_sums":
                events.append(f"sent {parcel.stage} {bool(parcel.growth.candidate_sums.nodes)}")
            return super().__call__(sender, to, parcel)

    monkeypatch.setattr(feature_party, "SUMS_BYTES", 1 << 14)
    monkeypatch.setattr(HistogramSets, "answer", answered)
    monkeypatch.setattr(HistogramKeyHolder, "keep_second_halves", kept)
    deep = replace(PARAMS, n_estimators=1)
    await _train(tmp_path, Seen(monkeypatch), deep, [], Way.SETS, here=world(80, (1, 3), missing=0.1))
    first = events.index("sent 3 True")
    assert events[first:].count("made") > 1


# ---- a refused opening by sets


@pytest.mark.second_tier
@pytest.mark.parametrize("place", [0, 16, 24])
@pytest.mark.parametrize("field", ["ciphertexts", "second_halves"])
async def test_a_refused_opening_ends_the_attempt_and_says_nothing_of_where(
    field: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some numbers are changed: nothing is opened under the same secrets after that, and no text names a half."""
    opened: list[tuple[str, bytes]] = []
    open_halves = HistogramKeyHolder.open

    async def noted(holder: HistogramKeyHolder, party: str, firsts: bytes, candidates: int, query: bytes) -> Any:
        opened.append((party, query))
        return await open_halves(holder, party, firsts, candidates, query)

    monkeypatch.setattr(HistogramKeyHolder, "open", noted)
    chosen = take_way(monkeypatch, Way.SETS)

    federation = Federation(tmp_path, WITH_MISSING.tables)

    def changed(sender: str, _: str, parcel: exchange_pb2.PeerMessage) -> None:
        sums = parcel.growth.candidate_sums
        if (sender, parcel.round, parcel.stage) == (FEATURE, 0, 1) and (data := bytearray(getattr(sums, field))):
            data[place : place + 16] = bytes(byte ^ 0xFF for byte in data[place : place + 16])
            setattr(sums, field, bytes(data))

    federation.tamper = changed
    status = await federation.train(spec(PARAMS, scheme=LATTICE))
    assert status.state == "failed"
    assert re.fullmatch(
        r"Malformed: feature-b has offered what is no sum over its columns: (a sum has more noise "
        r"than sums of words can have|a plaintext .* has bits left above the last slot|sums of node [23] are such "
        r"that no records of it can have them)",
        status.error,
    ), status.error
    (query,) = {query for _, query in opened}  # that of the tree: the changed sums were the last ones
    assert opened[-1][0] == FEATURE
    federation.tamper, before = None, len(opened)
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, WITH_MISSING.oracle(PARAMS))
    assert [query] * before == [query for _, query in opened[:before]]
    assert query not in {query for _, query in opened[before:]}
    await federation.close()
    assert set(chosen) == {Way.SETS}


def _seeds_of_queries(patch: pytest.MonkeyPatch) -> list[bytes]:
    """Those that a label holder draws from now on, as it draws them."""
    seeds: list[bytes] = []
    token_bytes = lattice_values.secrets.token_bytes

    def drawn(size: int) -> bytes:
        seeds.append(token_bytes(size))
        return seeds[-1]

    patch.setattr("treetap.party.growth.lattice_values.secrets", SimpleNamespace(token_bytes=drawn))
    return seeds


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("victim", "way"), [(victim, way) for victim in (LABEL_HOLDER, FEATURE) for way in Way])
async def test_every_attempt_draws_all_anew(victim: str, way: Way, tmp_path: Path) -> None:
    """Killed in a tree: no nonce, word or half of the first attempt comes again in the second, nor a half of a tree."""
    by_attempt: defaultdict[int, set[bytes]] = defaultdict(set)
    halves: dict[tuple[int, str, int, int], bytes] = {}
    seeds: list[bytes] = []

    with pytest.MonkeyPatch.context() as patch:
        seeds = _seeds_of_queries(patch)
        take_way(patch, way)
        federation = Federation(tmp_path, HERE.tables)

        def seen(sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
            if name_of(parcel) in (*OWN, "candidate_sums"):
                # Parts of a parcel that must be drawn anew: nonces, commitments, words, and both halves of sums.
                content: Any = content_of(parcel, name_of(parcel))
                names = ("commitment", "nonce", "ciphertexts", "second_halves")
                by_attempt[parcel.attempt].update(
                    [data for name in names if len(data := getattr(content, name, b"")) >= 16]
                )
            if parcel.growth.candidate_sums.second_halves:
                halves[parcel.attempt, sender, parcel.round, parcel.stage] = parcel.growth.candidate_sums.second_halves

        federation.tamper = seen
        federation.kill_at(
            victim, lambda message: message.word == "candidate_sums" and len(by_attempt[1]) > 20, back=True
        )
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

    faults = Faults(drop=0.1, lose_reply=0.2, double=0.3, delay_s=0.3, late_s=2.0, seed=2)
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
    with pytest.MonkeyPatch.context() as patch:
        seeds = _seeds_of_queries(patch)
        federation = Federation(tmp_path, HERE.tables, record="both")
        assert (await federation.train(JOB)).state == "finished"
        for party in PARTIES:
            assert federation.remembered(party) == []
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
