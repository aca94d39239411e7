"""The simulation counts what a training does: operations and bytes equal the accounts of a federation."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.boosting.layout import layout
from tests.simulator import Federation, run
from tests.worlds import spec, world
from treetap.additive.sums.counted_products import CountedProducts
from treetap.capacity.training import PartyColumns, PartyCounts, Training, grown_levels, label_holder_totals
from treetap.commands.capacity.messages import TreeMessages
from treetap.protocols.key_options import OKAMOTO_UCHIYAMA, PAILLIER, KeyKind
from treetap.trees.binning import FeatureBins, bin_table
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
        OKAMOTO_UCHIYAMA,
    ),
    "label holder without columns": (
        {"dims": (0, 2), "n": 60},
        BoostingParams(n_estimators=3, max_depth=2, max_bin=5, min_child_weight=0),
        PAILLIER,
    ),
}
#: Messages whose bytes are compared; those of leaf paths are bounded.
KINDS = ("gradients", "candidate_sums", "sampled_records", "children", "instance_spaces")


@pytest.mark.filterwarnings("ignore:a 1024-bit Okamoto-Uchiyama key")
@pytest.mark.parametrize("shape", SHAPES)
def test_operations_and_bytes_are_those_of_the_account(shape: str, tmp_path: Path) -> None:
    """Every operation of every party, and every byte of the messages of trees, to and from each."""
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
        counted = {names[0]: sum((Counter(label_holder_totals(each)) for each in jobs), Counter[str]())}
        for name in names[1:]:
            parts = (Counter(PartyCounts(each, each.others[name], 1).totals()) for each in jobs)
            counted[name] = sum(parts, Counter[str]())
        accounts = {each.party: each.account for each in status.accounts if each.party in names}
        for name, account in accounts.items():
            assert {each.name: each.count for each in account.operations} == dict(counted[name]), name
        sent: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        for account in accounts.values():
            for row in account.traffic:
                sent[getattr(row, "from"), row.to, row.step] += row.bytes
        expected, paths = _bytes(jobs, names)
        assert {key: count for key, count in sent.items() if key[2] in KINDS} == dict(expected)
        for name in names[1:]:
            assert 0 < sent[names[0], name, "leaf_paths"] <= paths
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
    """A grown tree as the simulation has it; each node above the depth could be split, as no weight is asked for."""
    owners = {made["node"]: names.index(made["owner"]) for made in tree["splits"]}
    levels = grown_levels(owners, defaultdict(lambda: n), params.max_depth)
    others = {name: columns[name] for name in names[1:]}
    key, slots = KeyKind(scheme, 1024), layout(params, n, 1)
    return Training(n, n, columns[names[0]], others, levels, 1, key, "short-exponent", slots)


def _bytes(jobs: list[Training], names: list[str]) -> tuple[Counter[tuple[str, str, str]], int]:
    """Bytes by sender, receiver and kind, and the most of leaf paths to one party."""
    found: Counter[tuple[str, str, str]] = Counter()
    handles, holder, paths = dict.fromkeys(names[1:], 0), names[0], 0
    for t, job in enumerate(jobs):
        messages = TreeMessages(job, "job", t, handles=handles)
        for name in names[1:]:
            found[holder, name, "gradients"] += sum(messages.gradients(1))
            found[holder, name, "sampled_records"] += messages.sampled()
            for level in range(len(job.levels)):
                found[name, holder, "candidate_sums"] += sum(messages.candidate_sums(name, level))
                found[name, holder, "children"] += messages.children(name, level)
                found[holder, name, "instance_spaces"] += messages.spaces(name, level)
        paths += messages.paths()
        for level in job.levels:
            for owner in level.owners:
                if owner:
                    handles[names[owner]] += 1
    return +found, paths


def test_products_are_counted_by_the_code_that_computes_them() -> None:
    """Of one worker's records the count is that of joint cells; of more than are looked at it grows by their groups."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, (500, 4))
    shapes = PartyColumns.alike(4, 6).shapes
    counted = CountedProducts(shapes, codes, 500)
    assert 0 < counted.at_root(500) < 4 * 500  # joint cells save products
    assert counted.at_root(900) - counted.at_root(500) == 400 * len(counted.root_groups)
    assert counted.below(0) == 0
    assert CountedProducts((), None, 10).at_root(10) == 0
