"""Safeguards that no model shows: candidates in secret orders, keys that are forgotten or kept, sums that just fit."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle import OracleLeaf, OracleSplit
from tests.simulator import Federation, Message, finished
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.models.store import read_model
from treetap.trees import sampling
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.v2.exchange_pb2 import PeerMessage

LABEL_HOLDER = PARTIES[0]
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=4, min_child_weight=0.1)
SMALL = world(24, (1, 1, 1), seed=25)

Places = dict[tuple[str, int, int], tuple[list[int], int]]  # (party, tree, node) → (winning places, canonical winner)


def _places(federation: Federation, job: str, bins: int, told: dict[tuple[str, int, int], list[int]]) -> Places:
    """What was said of each winner, and which candidate its owner kept; all columns have `bins` bins, none missing."""
    kept = {}
    for party in PARTIES[1:]:
        for tree in read_model(federation.state(party) / "models" / job)[1]:
            for split in tree["splits"]:
                kept[party, tree["tree"], split["node"]] = split["feature"] * (bins - 1) + split["bin"]
    assert told.keys() == kept.keys()
    return {where: (told[where], kept[where]) for where in told}


@pytest.mark.second_tier
async def test_winning_places_say_nothing_of_candidates(tmp_path: Path) -> None:
    """The place of a winner is not its canonical one, and another tree or job has it at another place."""
    bins = 16
    params = BoostingParams(n_estimators=4, max_depth=2, max_bin=bins, min_child_weight=0.1)
    here = world(60, (0, 2, 2), seed=3)
    found: list[Places] = []

    federation = Federation(tmp_path, here.tables)
    for job in ("one", "two"):
        told: dict[tuple[str, int, int], list[int]] = {}

        def keep(
            _sender: str,
            to: str,
            parcel: PeerMessage,
            told: dict[tuple[str, int, int], list[int]] = told,
        ) -> None:
            for split in parcel.growth.won_splits.splits:
                told[to, parcel.round, split.node] = list(split.candidates)

        federation.tamper = keep
        assert (await federation.train(spec(params, obfuscation="standard"), job)).state == "finished"
        found.append(_places(federation, job, bins, told))
    one, two = found
    assert {where: kept for where, (_, kept) in one.items()} == {where: kept for where, (_, kept) in two.items()}
    assert len(one) >= 8
    assert len({(party, tree) for party, tree, _ in one}) >= 5
    for each in found:
        canonical = [kept in places for places, kept in each.values()]
        assert sum(canonical) < len(canonical) / 2
    assert sum(one[where][0] != two[where][0] for where in one) > len(one) / 2
    places = defaultdict(set)  # of a candidate that won in several trees
    for (party, tree, _), (told, kept) in [*one.items(), *(((p, t + 100, n), v) for (p, t, n), v in two.items())]:
        places[party, kept].add((tree, min(told)))
    several = [found for found in places.values() if len({tree for tree, _ in found}) > 1]
    assert several
    assert any(len({place for _, place in found}) > 1 for found in several)


def _held(federation: Federation, party: str) -> set[str]:
    """Kinds of what a party's only worker holds: a key, or a tree's ciphertexts."""
    return {type(part).__name__ for part in federation.remembered(party)}


async def test_workers_hold_keys_and_ciphertexts_only_while_a_job_needs_them(tmp_path: Path) -> None:
    """They are there while trees grow; the key is gone when the model is, ciphertexts when their tree is stored."""
    seen: dict[str, dict[str, set[str]]] = defaultdict(dict)
    federation = Federation(tmp_path, SMALL.tables)

    def look(message: Message) -> None:
        if (
            message.word in ("choose_splits", "leaf_paths", "store_tree", "publish")
            and message.to in PARTIES
            and (message.word != "store_tree" or message.served)
        ):
            seen[message.word][message.to] = _held(federation, message.to)

    federation.hook = look
    assert (await federation.train(spec(PARAMS, obfuscation="standard"))).state == "finished"
    assert [_held(federation, party) for party in PARTIES] == [set()] * 3
    await federation.close()
    assert seen["choose_splits"] == {LABEL_HOLDER: {"SecretKey"}}
    assert seen["leaf_paths"] == {party: {"HeldTree"} for party in PARTIES[1:]}
    assert seen["store_tree"] == {LABEL_HOLDER: {"SecretKey"}, PARTIES[1]: set(), PARTIES[2]: set()}
    assert seen["publish"] == {party: set() for party in PARTIES}  # not only when the parties leave the job


@pytest.mark.parametrize("end", ["interrupted", "cancelled"])
async def test_workers_forget_a_job_that_does_not_finish(end: str, tmp_path: Path) -> None:
    """A peer that dies, or a cancel, in the midst of a tree: nobody keeps a key or a ciphertext in memory."""
    federation = Federation(tmp_path, SMALL.tables)
    during: list[set[str]] = []
    cancelling: list[asyncio.Task[Any]] = []

    def stop(message: Message) -> None:
        if message.word == "relay_children" and message.served and not during:
            during.extend(_held(federation, party) for party in PARTIES)
            if end == "interrupted":
                federation.kill(PARTIES[2])
            else:
                cancelling.append(asyncio.ensure_future(federation.jobs.cancel("job")))

    federation.hook = stop
    status = await federation.train(spec(PARAMS, obfuscation="standard"))
    await asyncio.gather(*cancelling)
    assert during == [{"SecretKey"}, {"HeldTree"}, {"HeldTree"}]
    assert status.state == end
    assert [_held(federation, party) for party in PARTIES[:2]] == [set()] * 2


async def _trained(folder: Path, here: Any, params: BoostingParams) -> list[tuple[str, PeerMessage]]:
    """Train, compare with the oracle; every parcel with its receiver."""
    parcels: list[tuple[str, PeerMessage]] = []

    def keep(sender: str, to: str, parcel: PeerMessage) -> None:
        parcels.append((to, parcel))

    federation = Federation(folder, here.tables)
    federation.tamper = keep
    finished(await federation.train(spec(params)))
    assert_oracles_model(federation.states, here.oracle(params))
    return parcels


async def test_nodes_of_one_sampled_record_are_told_to_nobody(tmp_path: Path) -> None:
    """They cannot be split, and whoever learnt of one would have that record's place in the tree alone."""
    params = BoostingParams(
        objective="reg:squarederror", n_estimators=2, max_depth=5, max_bin=16, min_child_weight=0.0, subsample=0.8
    )
    here = world(30, (1, 2, 1), objective="reg:squarederror", seed=8)
    alone = sum(
        isinstance(it, OracleLeaf) and it.cover == 1.0 and node.bit_length() - 1 < params.max_depth
        for tree in here.oracle(params)
        for node, it in tree.nodes.items()
    )
    assert alone > 5
    told = 0
    for _, parcel in await _trained(tmp_path, here, params):
        if name_of(parcel) == "instance_spaces":
            sample = sampling.rows(params.seed, parcel.round, 30, params.subsample, np.ones(30, dtype=bool))
            for space in parcel.growth.instance_spaces.spaces:
                assert sample[rows_of([space.records], 30)].sum() >= 2
                told += 1
    assert told > 5


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("side", [1, -1])
async def test_sums_at_the_border_of_their_slot_are_exact(side: int, tmp_path: Path) -> None:
    """A start so far away that every gradient is nearly 1 (or −1) fills the slot, and the model is still the oracle's.

    Left sums of 62 of 63 records need every bit that all 63 are given.
    """
    params = BoostingParams(
        objective="reg:squarederror",
        n_estimators=2,
        max_depth=2,
        max_bin=64,
        reg_lambda=0.0,
        base_score=side * (2.0**16 - 200),
    )
    here = world(63, (0, 2, 1), objective="reg:squarederror", seed=9)
    residuals = (params.base_score or 0) - here.y
    assert (np.abs(residuals) < 2**16).all()
    assert (side * residuals > 0.99 * 2**16).all()
    assert any(isinstance(tree.nodes[1], OracleSplit) for tree in here.oracle(params))
    await _trained(tmp_path, here, params)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("victim", PARTIES[:2])
async def test_every_attempt_has_a_key_of_its_own(victim: str, tmp_path: Path) -> None:
    """No two attempts, whoever was killed, and no two jobs share a public key; within one all parties have the same."""
    keys: dict[str, dict[int, set[bytes]]] = {"job": defaultdict(set), "other": defaultdict(set)}

    federation = Federation(tmp_path, SMALL.tables)

    def keep(sender: str, to: str, parcel: PeerMessage) -> None:
        if name_of(parcel) == "public_key":
            keys[parcel.job][parcel.attempt].add(parcel.setup.public_key.modulus)

    federation.tamper = keep
    for _ in range(2):
        federation.kill_at(victim, lambda message: message.word == "store_tree", back=True)
        status = await (federation.resume() if keys["job"] else federation.train(spec(PARAMS)))
        assert status.state == "interrupted"
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, SMALL.oracle(PARAMS))
    assert (await federation.train(spec(PARAMS), "other")).state == "finished"
    await federation.close()
    assert set(keys["job"]) == {1, 2, 3}
    moduli = [modulus for attempts in keys.values() for each in attempts.values() for modulus in each]
    assert len(moduli) == len(set(moduli)) == 4
    assert {int.from_bytes(modulus, "big").bit_length() for modulus in moduli} == {1024}
