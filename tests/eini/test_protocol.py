"""Fed-EINI predictions: the oracle's scores for every objective and chain, and what the parties tell each other."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.boosting.test_protocol import OBJECTIVES
from tests.campaign.cipher import quickly_trained
from tests.crossing import BLOCK, CHAIN, HERE, LABEL_HOLDER, PARAMS, Crossed, N, crossing
from tests.published import write_manifest
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, assert_oracles_scores, spec, world
from treetap.commands.model.view import card, describe
from treetap.models.store import read_manifest
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of

pytestmark = pytest.mark.xdist_group("eini")

WIDTH = 256  # bytes of a ciphertext under a key of 1024 bits
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two parties": ({"dims": (2, 3), "missing": 0.15}, {}),
    "three parties": ({"dims": (2, 2, 2), "missing": 0.15, "levels": 2}, {"colsample_bytree": 0.8}),
    "four parties": ({"dims": (1, 2, 1, 2)}, {"max_depth": 4}),
    "label holder without columns": ({"dims": (0, 2, 2), "missing": 0.1}, {}),
    "a party without columns": ({"dims": (2, 0, 2), "missing": 0.1}, {}),
    "early stopping": (
        {"dims": (2, 2), "n": 70},
        {"n_estimators": 6, "learning_rate": 0.9, "early_stopping_rounds": 1, "validation_share": 0.25, "seed": 2},
    ),
}
WAYS: dict[str, dict[str, Any]] = {
    "eini": {"protocol": "eini"},
    "eini in blocks": {"protocol": "eini", "block": 5},
    "per tree": {"form": "per-tree", "block": 7},
    "batched": {"protocol": "interactive", "form": "batched"},
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("objective", "shape"),
    [
        (objective, shape)
        for a, objective in enumerate(OBJECTIVES)
        for b, shape in enumerate(SHAPES)
        if (a + b) % 2 == 0  # every objective with half of the shapes, every shape with half of the objectives
    ],
)
async def test_every_way_finds_the_oracles_scores(objective: str, shape: str, tmp_path: Path) -> None:
    """Encrypted or interactive, in blocks or at once, tree by tree or all at once: raw scores are the oracle's."""
    here_args, changes = SHAPES[shape]
    params = replace(BoostingParams(n_estimators=2, max_depth=3, max_bin=6), **OBJECTIVES[objective], **changes)
    classes = 3 if params.objective == "multi:softprob" else 2
    here = world(objective=params.objective, classes=classes, **{"n": 50, **here_args})
    oracle = here.oracle(params)

    federation = Federation(tmp_path, here.tables)
    job = spec(params, len(here.blocks), obfuscation="standard")
    assert (await quickly_trained(federation, job)).state == "finished"
    for asked in WAYS.values():
        status = finished(await federation.predict(predict_request(model="job", **asked)))
        assert (status.scored, status.records) == (12, 12)
        assert_oracles_scores(status.predictions, oracle, here.newcomers, len(here.y))
    for state in federation.states.values():
        assert list((state / "jobs").iterdir()) == []
        assert list(state.rglob("secret*")) == []
    for party in federation.states:
        assert federation.remembered(party) == []


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("obfuscation", ["short-exponent", "half-length"])
async def test_short_obfuscators_along_a_chain(obfuscation: str, tmp_path: Path) -> None:
    """The job's obfuscation is that of the prediction too, and its alignment; ids select the records."""
    params = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
    here = world(dims=(1, 1, 1), n=40)

    federation = Federation(tmp_path, here.tables)
    alignment = "psi" if obfuscation == "half-length" else "sorted-ids"
    await federation.train(spec(params, obfuscation=obfuscation, alignment=alignment))
    everything = await federation.predict(predict_request(model="job", protocol="eini"))
    assert_oracles_scores(everything.predictions, here.oracle(params), here.newcomers, 40)
    (tmp_path / PARTIES[0] / "ids.txt").write_text("r00045\nr00041\n")
    some = await federation.predict(predict_request(model="job", protocol="eini", records_file="ids.txt"))
    assert (some.state, some.scored) == ("finished", 2)
    table = pq.read_table(everything.predictions)
    assert pq.read_table(some.predictions) == table.take([1, 5])


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Crossed:
    """A prediction of the training records, in blocks."""
    return crossing(tmp_path_factory.mktemp("crossed") / "federation", "eini")


def _branches(tree: dict[int, tuple[Any, ...]], leaf: int, parties: list[str]) -> tuple[tuple[int, bool], ...]:
    """The branches at splits of some parties on the way to a leaf, as (node, left)."""
    ups = range(leaf.bit_length() - 1, 0, -1)
    return tuple((leaf >> up, (leaf >> (up - 1)) % 2 == 0) for up in ups if tree[leaf >> up][1] in parties)


def _entries(trees: list[dict[int, tuple[Any, ...]]], chain: list[str], own: str | None = None) -> int:
    """Sets of leaves that the chain cannot tell apart, the settled one included; `own`: those with branches of it."""
    found = set()
    for number, tree in enumerate(trees):
        for leaf in (node for node, it in tree.items() if it[0] == "leaf"):
            if (branches := _branches(tree, leaf, chain)) and (own is None or _branches(tree, leaf, [own])):
                found.add((number, branches))
    return len(found) + 1


def test_as_many_ciphertexts_as_entries_and_none_twice(crossed: Crossed) -> None:
    """Every member sees one fresh ciphertext per record and set of leaves that the rest of the chain can tell apart."""
    seen: list[bytes] = []
    for hop, party in enumerate(CHAIN):
        block = b"".join(parcel.protocol.eini.leaf_entries.ciphertexts for parcel in crossed.of("leaf_entries", party))
        entries = _entries(crossed.trees, CHAIN[hop:])
        if hop == 0:
            varying = _entries(crossed.trees, CHAIN, LABEL_HOLDER)
            constants = b"".join(
                p.protocol.eini.constant_entries.ciphertexts for p in crossed.of("constant_entries", party)
            )
            assert len(constants) == (entries - varying) * WIDTH
            assert len(block) == N * varying * WIDTH
            assert entries > varying > 1
            block += constants
        else:
            assert len(block) == N * entries * WIDTH
        seen += [block[at : at + WIDTH] for at in range(0, len(block), WIDTH)]
    sums = b"".join(parcel.protocol.eini.leaf_sums.ciphertexts for parcel in crossed.of("leaf_sums", LABEL_HOLDER))
    assert len(sums) == (2 * -(-BLOCK // 16) + 1) * WIDTH
    assert len(set(seen)) == len(seen)


def test_a_layout_tells_no_more_than_sets_of_leaves(crossed: Crossed) -> None:
    """Per tree the entry of each leaf, as the remaining chain parts them; which are constant, to the first only."""
    for hop, party in enumerate(CHAIN):
        (parcel,) = crossed.of("entry_layout", party)
        layout = parcel.protocol.eini.entry_layout
        assert bool(layout.constant) == (hop == 0)
        assert [tree.tree for tree in layout.trees] == list(range(PARAMS.n_estimators))
        for tree, model in zip(layout.trees, crossed.trees, strict=True):
            leaves = sorted((node for node, it in model.items() if it[0] == "leaf"), key=lambda node: f"{node:b}")
            for entries, chain in ((tree.incoming, CHAIN[hop:]), (tree.outgoing, CHAIN[hop + 1 :])):
                ways = [_branches(model, leaf, chain) for leaf in leaves]
                assert len(entries) == len(leaves)
                assert [entry == 0 for entry in entries] == [not way for way in ways]
                assert len(set(zip(entries, ways, strict=True))) == len(set(entries)) == len(set(ways))


def test_the_records_of_a_block_and_one_block_at_a_time(crossed: Crossed) -> None:
    """Everybody is told the records; entries of a block set out when the sums of the one before have come."""
    for party in CHAIN:
        told = [
            rows_of(parcel.prediction.block_records.chunks, N).tolist() for parcel in crossed.of("block_records", party)
        ]
        assert told == [list(range(first, min(first + BLOCK, N))) for first in range(0, N, BLOCK)]
    order = [
        (parcel.round, name_of(parcel) == "leaf_sums")
        for _, _, parcel in crossed.parcels
        if name_of(parcel) in ("leaf_entries", "leaf_sums")
    ]
    assert order == sorted(order)
    assert {block for block, _ in order} == {0, 1, 2}


def test_the_label_holder_alone_can_open_the_sums(crossed: Crossed) -> None:
    """Keys are those of this prediction: as many moduli as predictions, and none of them the training's."""
    moduli = {parcel.setup.public_key.modulus for party in CHAIN for parcel in crossed.of("public_key", party)}
    assert len(moduli) == 1
    assert np.all([len(modulus) == 128 for modulus in moduli])


async def test_a_model_with_a_commitment_of_an_earlier_version(tmp_path: Path) -> None:
    """Its parts have one entry more, the label holder's one file more: it predicts, is shown and exported."""
    federation = Federation(tmp_path, HERE.tables)
    job = spec(PARAMS, len(HERE.blocks), obfuscation="standard")
    assert (await quickly_trained(federation, job)).state == "finished"
    folders = {party: state / "models" / "job" for party, state in federation.states.items()}
    key = b'{"key": "ab"}\n'
    (folders[LABEL_HOLDER] / "leaf_key.jsonl").write_bytes(key)
    for party, folder in folders.items():
        own = read_manifest(folder) | {"leaf_commitment": "cd" * 32}
        more = {"leaf_key.jsonl": sha256(key).hexdigest()} if party == LABEL_HOLDER else {}
        write_manifest(folder, own | {"files": {**own["files"], **more}})
    status = finished(await federation.predict(predict_request("eini", model="job")))
    assert_oracles_scores(status.predictions, HERE.oracle(PARAMS), HERE.newcomers, len(HERE.y))
    await federation.close()
    for folder in folders.values():
        assert "leaf_commitment" not in describe(folder)
    assert "leaf_commitment" not in card(folders[LABEL_HOLDER], names=False)
