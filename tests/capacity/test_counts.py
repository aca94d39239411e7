"""An estimate counts what a training does: operations equal the accounts of a federation, bytes nearly so."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.grown_levels import grown_levels
from tests.simulator import Federation, run
from tests.worlds import spec, world
from treetap.additive.sums.counted_products import CountedProducts
from treetap.commands.capacity.lattice import LatticeTree
from treetap.commands.capacity.measuring import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import HOLDER, PartyColumns, PartyCounts, Training, agreed_sizes
from treetap.lattice.histogram_timings import LatticeCosts
from treetap.lattice.histogram_ways import Way
from treetap.protocols.boosting import PROTOCOL
from treetap.protocols.key_options import LATTICE, PAILLIER, KeyKind
from treetap.protocols.messages import Series
from treetap.trees.binning import FeatureBins, bin_table
from treetap.trees.candidates import Shape
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.second_tier

SHAPES: dict[str, tuple[dict[str, Any], BoostingParams, str]] = {
    "three parties": (
        {"dims": (2, 2, 1), "n": 70},
        BoostingParams(n_estimators=2, max_depth=3, max_bin=8, min_child_weight=0),
        PAILLIER,
    ),
    "two parties, missing values, many candidates": (
        {"dims": (1, 3), "n": 80, "missing": 0.1},
        BoostingParams(n_estimators=2, max_depth=2, max_bin=24, min_child_weight=0),
        PAILLIER,
    ),
    "label holder without columns": (
        {"dims": (0, 2), "n": 60},
        BoostingParams(n_estimators=3, max_depth=2, max_bin=5, min_child_weight=0),
        PAILLIER,
    ),
}
KEY = KeyKind(LATTICE, 0)
#: Contents whose bytes are nearly those of ciphertexts, and those that are bounded: a few sets of records and numbers.
OF_CIPHERTEXTS = ("gradients", "candidate_sums")
BOUNDED = ("sampled_records", "children", "instance_spaces", "leaf_paths")


@pytest.mark.parametrize("shape", SHAPES)
def test_operations_and_bytes_are_those_of_the_account(shape: str, tmp_path: Path) -> None:
    """Every operation of every party; bytes of the messages of trees, to and from each, by the rows that declare them.

    The frames of messages, some hundred bytes, are not in a row.
    """
    how, params, scheme = SHAPES[shape]
    here = world(**how)
    names = list(here.tables)
    columns = {
        name: PartyColumns(tuple(each.shape for each in _binned(block, params.max_bin)))
        for name, block in zip(names, here.blocks, strict=True)
    }

    async def main() -> None:
        federation = Federation(tmp_path, here.tables)
        status = await federation.train(spec(params, len(names), scheme=scheme))
        assert (status.state, status.error) == ("finished", "")
        model = federation.state(names[0]) / "models" / "job" / "trees.jsonl"
        trees = [json.loads(line)["tree"] for line in model.read_text().splitlines()]
        jobs = [_training(tree, names, columns, len(here.y), params, scheme) for tree in trees]
        counted = defaultdict[str, Counter[str]](Counter)
        for job in jobs:
            for name, of in job.operations(
                {name: PartyCounts(job, job.others[name], 1) for name in job.others}
            ).items():
                counted[names[0] if name == HOLDER else name].update(of)
        accounts = {each.party: each.account for each in status.accounts if each.party in names}
        sent: Counter[tuple[str, str]] = Counter()
        messages: Counter[tuple[str, str]] = Counter()
        for name, account in accounts.items():
            assert {each.name: each.count for each in account.operations} == dict(counted[name]), name
            for row in account.traffic:
                party = row.to if getattr(row, "from") == names[0] else getattr(row, "from")
                sent[party, row.step] += row.bytes
                messages[party, row.step] += row.messages
        for name in names[1:]:
            for row in PROTOCOL.sends:
                pairs = [pair for pair in row.route(jobs[0].sizes.members) if name in pair]
                if row.content not in (*OF_CIPHERTEXTS, *BOUNDED):
                    continue
                assert row.times is not None
                assert row.bound is not None
                [(sender, receiver)] = pairs
                levels = range(params.max_depth) if len(row.times(jobs[0].sizes, sender, receiver)[1]) > 1 else [0]
                declared = sum(
                    row.bound(job.sizes, Series(sender, receiver, 0, level)) for job in jobs for level in levels
                )
                frames = sent[name, row.content] - declared
                assert frames < 128 * messages[name, row.content], (name, row.content)
                assert frames > 0 or row.content in BOUNDED, (name, row.content)
        await federation.close()

    run(main())


ON_LATTICE: dict[str, tuple[dict[str, Any], BoostingParams]] = {
    "three parties": ({"dims": (2, 2, 1), "n": 600}, replace(SHAPES["three parties"][1], max_depth=4, max_bin=16)),
    "two parties, missing values, two blocks": (
        {"dims": (0, 3), "n": 4_200, "missing": 0.1},
        BoostingParams(n_estimators=1, max_depth=2, max_bin=24, min_child_weight=0),
    ),
    "by sets": ({"dims": (1, 2), "n": 4_200}, BoostingParams(n_estimators=2, max_depth=3, max_bin=4)),
}


@pytest.mark.parametrize("shape", ON_LATTICE)
def test_operations_and_bytes_on_a_lattice(shape: str, tmp_path: Path) -> None:
    """The same of a job on a lattice: words that are sent, and sums with the second halves that are drawn anew."""
    how, params = ON_LATTICE[shape]
    here = world(**how)
    names = list(here.tables)
    columns = {
        name: PartyColumns(tuple(each.shape for each in _binned(block, params.max_bin)))
        for name, block in zip(names, here.blocks, strict=True)
    }
    agreed = agreed_sizes(params, len(here.y), [columns[name] for name in names[1:]])

    async def main() -> None:
        federation = Federation(tmp_path, here.tables)
        status = await federation.train(spec(params, len(names), scheme=LATTICE))
        assert (status.state, status.error) == ("finished", "")
        model = federation.state(names[0]) / "models" / "job" / "trees.jsonl"
        trees = [
            LatticeTree(
                replace(_training(json.loads(line)["tree"], names, columns, len(here.y), params, LATTICE), key=KEY),
                Site(cores=1),
                HostCosts(*[1.0] * 14),
                agreed,
                LatticeCosts(*[1.0] * 9),
            )
            for line in model.read_text().splitlines()
        ]
        counted = defaultdict[str, Counter[str]](Counter)
        for tree in trees:
            for name, of in tree.operations().items():
                counted[names[0] if name == HOLDER else name].update(of)
        levels = range(params.max_depth)
        assert {tree.way for tree in trees} == {Way.SETS if shape == "by sets" else Way.QUERIES}
        sent, messages = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
        for account in (each for each in status.accounts if each.party in names):
            assert {each.name: each.count for each in account.account.operations} == counted[account.party]
            for row in account.account.traffic:  # by the sender, one for each class of a content
                sent[way := (getattr(row, "from"), row.to, row.step)] += row.bytes
                messages[way] = max(messages[way], row.messages)
        words = sum(tree.queries(level) for tree in trees for level in levels)
        assert words == (
            len(trees) if shape == "by sets" else sum(tree.nodes(level) for tree in trees for level in levels)
        )
        for name in names[1:]:
            into, back = (names[0], name, "encrypted_words"), (name, names[0], "candidate_sums")
            assert messages[into] == words * trees[0].messages()
            assert 0 < sent[into] - words * agreed.query_bytes < 128 * messages[into]
            least = sum(tree.returned(name, level) for tree in trees for level in levels)
            assert 0 < sent[back] - least < 128 * messages[back]
        await federation.close()

    run(main())


def _binned(block: Any, max_bin: int) -> list[FeatureBins]:
    """The bins of a party's columns."""
    return list(bin_table(block, [f"c{place}" for place in range(block.shape[1])], max_bin).features)


def _training(
    tree: dict[str, Any],
    names: list[str],
    columns: dict[str, PartyColumns],
    n: int,
    params: BoostingParams,
    scheme: str,
) -> Training:
    """A grown tree as an estimate has it; each node above the depth could be split, as no weight is asked for."""
    owners = {made["node"]: names.index(made["owner"]) for made in tree["splits"]}
    levels = grown_levels(owners, defaultdict(lambda: n), params.max_depth)
    others = {name: columns[name] for name in names[1:]}
    one = replace(params, n_estimators=1)
    return Training(n, one, columns[names[0]], others, levels, KeyKind(scheme, 1024), "short-exponent")


def test_products_are_counted_by_the_code_that_computes_them() -> None:
    """Of one worker's records the count is that of joint cells; of more than are looked at it grows by their groups."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, (500, 4))
    counted = CountedProducts((Shape(6, False),) * 4, codes, 500)
    assert 0 < counted.at_root(500) < 4 * 500  # joint cells save products
    assert counted.at_root(900) - counted.at_root(500) == 400 * len(counted.root_groups)
    assert counted.below(0) == 0
    assert CountedProducts((), None, 10).at_root(10) == 0
