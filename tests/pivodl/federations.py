"""Federations of PIVODL in the simulator, and what their shards must hold to be the centralised model."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.pivodl.jobs import policies
from tests.pivodl.worlds import binned
from tests.simulator import Faults, Federation
from tests.worlds import World, spec
from treetap.models.store import read_model
from treetap.party.pivodl import division, participant
from treetap.party.pivodl.leaf_weights import NoiseLedger
from treetap.trees.centralised_pivodl import CentralPivodlModel, CentralPivodlTree, train
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import barred
from treetap.wire.v2 import setup_pb2

#: Of keys in these tests, which hide nothing unless a test says so.
KEY_BITS = 512
#: Weights (K,) with noise by tree and leaf.
Released = dict[tuple[int, int], np.ndarray[Any, np.dtype[np.float64]]]


@contextmanager
def transparent() -> Iterator[None]:
    """Within the block ciphertexts hide nothing: see `tests.campaign.cipher`. What parties draw follows from a seed."""
    with ciphers(KeysMade(), transparent=True), repeatable():
        yield


@contextmanager
def repeatable(seed: int = 0) -> Iterator[None]:
    """Within the block nonces of roles, orders of candidates and the noise of weights follow from a seed."""
    draw = random.Random(seed)
    drawn = SimpleNamespace(token_bytes=draw.randbytes, SystemRandom=lambda: draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(participant, "secrets", drawn)
        patch.setattr(division, "secrets", drawn)
        patch.setattr(NoiseLedger.__init__, "__defaults__", (draw.randrange,))
        yield


def job_of(here: World, params: PivodlParams, **changes: Any) -> setup_pb2.JobSpec:
    """A job over all parties of a world, with short keys."""
    return spec(params, len(here.tables), **{"key_bits": KEY_BITS, "obfuscation": "standard"} | changes)


def federation_of(
    folder: Path, here: World, job: setup_pb2.JobSpec, faults: Faults | None = None, **policy: Any
) -> Federation:
    """A federation whose policies permit a job. `policy`: other lines of every party's."""
    return Federation(folder, here.tables, faults=faults, policies=policies(job, **policy))


def centralised(here: World, params: PivodlParams) -> CentralPivodlModel:
    """The model that a federation must find, bit for bit."""
    return train(binned(here, params), here.y, params, here.ownership)


def released(states: dict[str, Path], job: str = "job") -> Released:
    """The weights with noise, by tree and leaf, that the keepers' shards have."""
    return {
        (line["tree"], each["node"]): np.array(each["released"])
        for state in states.values()
        for line in read_model(state / "models" / job)[1]
        for each in line["weights"]
        if "released" in each
    }


def centralised_with(noise: Released, here: World, params: PivodlParams) -> CentralPivodlModel:
    """The model that a federation must find whose noised weights are these, bit for bit."""
    return train(binned(here, params), here.y, params, here.ownership, lambda tree, leaf, _: noise[tree, leaf])


def assert_central_model(states: dict[str, Path], model: CentralPivodlModel, job: str = "job") -> None:
    """The shards are the centralised trees: split for split, leaf for leaf, weights bit for bit.

    Every party knows the same shape. A split's source alone knows its meaning, its opener is another party that no
    draw bars, and keeps the weights of the leaves below it, which no other party keeps.
    """
    shards = {name: read_model(state / "models" / job)[1] for name, state in states.items()}
    for shard in shards.values():
        assert [line["tree"] for line in shard] == list(range(len(model.trees)))
    for t, tree in enumerate(model.trees):
        lines = {name: shard[t] for name, shard in shards.items()}
        first = next(iter(lines.values()))
        assert all((line["nodes"], line["leaves"]) == (first["nodes"], first["leaves"]) for line in lines.values())
        assert {node["node"] for node in first["nodes"]} == set(tree.splits)
        assert {leaf["node"] for leaf in first["leaves"]} == set(tree.leaves)
        _assert_splits(lines, first["nodes"], model, t)
        _assert_leaves(lines, first, model, t)


def _assert_splits(lines: dict[str, Any], nodes: list[dict[str, Any]], model: CentralPivodlModel, t: int) -> None:
    tree = model.trees[t]
    sources = {node: split.source for node, split in tree.splits.items()}
    for node in nodes:
        number, source = node["node"], node["source"]
        expected = tree.splits[number]
        assert source == expected.source
        known = [leaf for leaf in tree.leaves if _known(leaf, number, tree)]
        out = frozenset[str]() if model.params.as_published else barred(number, sources, known)
        assert node["opener"] in set(lines) - {source} - out
        (own,) = [each for each in lines[source]["splits"] if each["handle"] == node["handle"]]
        threshold = math.inf if own["threshold"] is None else own["threshold"]
        found = (own["node"], own["feature"], own["bin"], own["missing_left"], threshold)
        candidate = expected.candidate
        assert found == (number, candidate.feature, candidate.bin, candidate.missing_left, expected.threshold)
    assert {name: len(line["splits"]) for name, line in lines.items()} == {
        name: list(sources.values()).count(name) for name in lines
    }


def _known(leaf: int, node: int, tree: CentralPivodlTree) -> bool:
    """True for a leaf that was known when the level of a node began: of a level above, or one by the stopping rules."""
    level, own = node.bit_length(), leaf.bit_length()
    return own < level or (own == level and leaf not in tree.divisible)


def _assert_leaves(lines: dict[str, Any], first: dict[str, Any], model: CentralPivodlModel, t: int) -> None:
    nodes = {node["node"]: node for node in first["nodes"]}
    keepers = {leaf["node"]: leaf["keeper"] for leaf in first["leaves"]}
    kept = {(name, each["node"]): each for name, line in lines.items() for each in line["weights"]}
    assert {node: name for name, node in kept} == keepers
    assert len(kept) == len(keepers)
    for (name, leaf), each in kept.items():
        assert each["weight"] == [float(value) for value in model.trees[t].leaves[leaf]]
        above = nodes.get(leaf >> 1, {"source": "", "handle": 0, "opener": name})
        assert (above["source"], above["handle"], above["opener"]) == (each["source"], each["handle"], name)
        assert each["left"] == (leaf % 2 == 0)
