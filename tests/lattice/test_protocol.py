"""Lattice predictions: the oracle's scores for every objective and chain, and what the parties tell each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.boosting.test_protocol import OBJECTIVES
from tests.campaign.cipher import quickly_trained
from tests.crossing import BLOCK, CHAIN, HERE, LABEL_HOLDER, PARAMS, Crossed, N, crossing
from tests.forest.test_protocol import TARGETS
from tests.simulator import Federation, Message, finished
from tests.worlds import FOUR, assert_oracles_scores, joined_model, lattice_tolerance, spec, world
from treetap.lattice.parameters import PARAMETERS_BYTES, Parameters
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.xdist_group("lattice")

MODELS: dict[str, tuple[dict[str, Any], TreeParams]] = {
    **{
        name: (
            {"objective": changes["objective"], "classes": 3 if "multi" in changes["objective"] else 2},
            replace(BoostingParams(n_estimators=2, max_depth=3, max_bin=6), **changes),
        )
        for name, changes in OBJECTIVES.items()
    },
    **{
        f"forest, {name}": (of_world, replace(ForestParams(n_estimators=3, max_depth=3, max_bin=6), **changes))
        for name, (of_world, changes) in TARGETS.items()
    },
}
SHAPES: dict[str, dict[str, Any]] = {
    "two parties": {"dims": (2, 3), "missing": 0.15},
    "a chain of three": {"dims": (2, 2, 0, 2), "missing": 0.1, "levels": 2},
    "label holder without columns": {"dims": (0, 2, 2), "missing": 0.1},
}


@pytest.mark.campaign(but=6)
@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", MODELS)
async def test_the_oracles_scores(model: str, shape: str, tmp_path: Path) -> None:
    """At once and in blocks, to 1e-4 of the range of scores; afterwards no party holds anything of it."""
    of_world, params = MODELS[model]
    here = world(n=40, **of_world, **SHAPES[shape])
    oracle = here.oracle(params)

    federation = Federation(tmp_path, here.tables)
    assert (
        await quickly_trained(federation, spec(params, len(here.blocks), obfuscation="standard"))
    ).state == "finished"
    for block in (0, 5):
        asked = predict_request(model="job", protocol="eini-lattice", block=block)
        status = finished(await federation.predict(asked))
        assert (status.scored, status.records) == (12, 12)
        within = lattice_tolerance(oracle)
        assert_oracles_scores(status.predictions, oracle, here.newcomers, len(here.y), within)
    for party, state in federation.states.items():
        assert list((state / "jobs").iterdir()) == []
        assert federation.remembered(party) == []


async def test_a_label_holder_that_owns_every_split_needs_no_column(tmp_path: Path) -> None:
    """Nothing is encrypted, the sums are zeros, the scores right."""
    here = world(n=40, dims=(3, 0))
    params = BoostingParams(n_estimators=2, max_depth=2, max_bin=6)

    federation = Federation(tmp_path, here.tables)
    await quickly_trained(federation, spec(params, 2, obfuscation="standard"))
    status = await federation.predict(predict_request(model="job", protocol="eini-lattice"))
    oracle = here.oracle(params)
    assert_oracles_scores(status.predictions, oracle, here.newcomers, 40, lattice_tolerance(oracle))
    sent = {row.name: row.count for account in status.accounts for row in account.account.ciphertexts}
    assert sent == {"lattice_columns": 0, "lattice_sums": 1}


async def test_a_block_that_fills_more_than_half_of_a_ciphertext(tmp_path: Path) -> None:
    """4,200 records in two blocks, a column per ciphertext in the first and many side by side in the second."""
    here = world(n=40, dims=(1, 1, 1), fresh=4200, seed=3)
    params = BoostingParams(n_estimators=4, max_depth=3, max_bin=6)

    federation = Federation(tmp_path, here.tables)
    await quickly_trained(federation, spec(params, 3, obfuscation="standard"))
    progress = []

    def look(message: Message) -> None:
        if message.word == "lattice_columns" and not message.served:
            (session,) = federation.node(FOUR[0])._sessions.values()
            progress.append(session.context.progress.done)

    federation.hook = look
    asked = predict_request(model="job", protocol="eini-lattice", block=4110)
    status = await federation.predict(asked)
    assert [done for done in progress if 0 < done < 4110]  # signs of life count records while a block is under way
    oracle = here.oracle(params)
    assert_oracles_scores(status.predictions, oracle, here.newcomers, 40, lattice_tolerance(oracle))
    columns = _columns(joined_model(federation.states))
    counts = {each.party: {row.name: row.count for row in each.account.ciphertexts} for each in status.accounts}
    assert {party: each for party, each in counts.items() if each} == {
        FOUR[0]: {"lattice_columns": columns + 1},
        FOUR[1]: {"lattice_columns": columns + 1},
        FOUR[2]: {"lattice_sums": 2},
    }


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Crossed:
    """A prediction of the training records, in blocks."""
    return crossing(tmp_path_factory.mktemp("crossed") / "federation", "eini-lattice")


def _columns(trees: list[dict[int, tuple[Any, ...]]]) -> int:
    return sum(node[0] == "split" and node[1] != LABEL_HOLDER for tree in trees for node in tree.values())


@pytest.mark.second_tier
def test_every_ciphertext_is_fresh_and_sizes_say_nothing(crossed: Crossed) -> None:
    """On each hop as many as there are pages, none seen before, each of the size that the parameters give."""
    parameters = Parameters.choose(PARAMS.n_estimators, _columns(crossed.trees), 3)
    side_by_side = parameters.degree // BLOCK
    assert side_by_side > _columns(crossed.trees)  # hence one page a block
    seen: list[bytes] = []
    for hop, party in enumerate(CHAIN):
        # The ciphertexts that came to a member, block by block.
        found: defaultdict[int, list[bytes]] = defaultdict(list)
        for parcel in crossed.of("lattice_columns", party):
            found[parcel.round] += parcel.protocol.lattice.lattice_columns.ciphertexts
        blocks = list(found.values())
        assert [len(block) for block in blocks] == [1, 1, 1]
        size = parameters.ciphertext_bytes // (2 if hop == 0 else 1)
        assert all(0 <= len(data) - size < 400 for block in blocks for data in block)
        seen += [data for block in blocks for data in block]
    sums = [
        data for p in crossed.of("lattice_sums", LABEL_HOLDER) for data in p.protocol.lattice.lattice_sums.ciphertexts
    ]
    assert len(sums) == 3
    assert all(0 <= len(data) - parameters.ciphertext_bytes < 400 for data in sums)
    everything = [data[1024:] for data in seen + sums]
    assert len({part[at : at + 16] for part in everything for at in range(0, 65536, 16)}) == len(everything) * 4096


def test_a_layout_tells_a_members_own_turns_only(crossed: Crossed) -> None:
    """Per tree and node of the chain the receiver's turns on the way, ended by a left one if the node is its own."""
    for party in CHAIN:
        handles = {
            turn.handle
            for parcel in crossed.of("column_layout", party)
            for tree in parcel.protocol.lattice.column_layout.trees
            for column in tree.columns
            for turn in column.branches
        }
        trees = [
            tree
            for parcel in crossed.of("column_layout", party)
            for tree in parcel.protocol.lattice.column_layout.trees
        ]
        assert [tree.tree for tree in trees] == list(range(PARAMS.n_estimators))
        own = 0
        for tree, model in zip(trees, crossed.trees, strict=True):
            splits = {node for node, it in model.items() if it[0] == "split"}
            mine = {node for node in splits if model[node][1] == party}
            own += len(mine)
            lengths: Counter[tuple[bool, ...]] = Counter()
            for node in splits:
                if model[node][1] != LABEL_HOLDER:
                    below = 2 * node
                    ups = range(below.bit_length() - 1, 0, -1)
                    way = [(below >> (up - 1)) % 2 == 0 for up in ups if below >> up in mine]
                    lengths[tuple(way)] += 1
            assert Counter(tuple(turn.left for turn in column.branches) for column in tree.columns) == lengths
            assert tree.leaves == len(model) - len(splits)
        assert len(handles) == own


@pytest.mark.second_tier
async def test_a_tree_shows_no_order_of_its_columns(crossed: Crossed, tmp_path: Path) -> None:
    """The order within a tree is drawn for each prediction: of ten predictions of the same model not all are alike."""
    federation = Federation(tmp_path, HERE.tables)
    await quickly_trained(federation, spec(PARAMS, 4))
    orders = set()

    def keep(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "column_layout" and to == CHAIN[0]:
            orders.add(parcel.protocol.lattice.column_layout.SerializeToString())
        return parcel

    federation.tamper = keep
    for _ in range(10):
        await federation.predict(predict_request(model="job", protocol="eini-lattice"))
    assert len(orders) > 1


def test_one_key_for_all_and_the_sizes_that_follow_from_the_trees(crossed: Crossed) -> None:
    """Every member gets the same key, of the parameters that anybody can derive from the layout."""
    keys = {
        parcel.protocol.lattice.lattice_key.public for party in CHAIN for parcel in crossed.of("lattice_key", party)
    }
    (public,) = keys
    expected = Parameters.choose(PARAMS.n_estimators, _columns(crossed.trees), 3)
    assert public[:PARAMETERS_BYTES] == expected.to_bytes()


def test_the_records_of_a_block_and_one_block_at_a_time(crossed: Crossed) -> None:
    """Ciphertexts of a block set out when the sums of the one before have come."""
    order = [
        (parcel.round, name_of(parcel) == "lattice_sums")
        for _, _, parcel in crossed.parcels
        if name_of(parcel) in ("lattice_columns", "lattice_sums")
    ]
    assert order == sorted(order)
    assert {block for block, _ in order} == set(range(-(-N // BLOCK)))
