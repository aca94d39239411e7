"""From a transcript to a view: just what the protocol let the party know, of each tree, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.attacks.present import present
from tests.attacks.recorded import KEY_BITS, knowable, known, train, transcript
from tests.oracle import OracleModel, OracleSplit
from tests.simulator import Faults, Federation, Message, finished, run
from tests.worlds import PARTIES, World, spec, world
from treetap.attacks.view.known_trees import TreeView
from treetap.attacks.view.view import View, read_view
from treetap.errors import BadInput
from treetap.protocols.prediction import predict_request
from treetap.trees import sampling
from treetap.trees.params import BoostingParams

PARAMS = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, reg_lambda=0.5)
FEATURES = PARTIES[1:]
CIPHERTEXT = 2 * KEY_BITS // 8  # bytes
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")


def _assert_knowable(view: View, here: World, oracle: OracleModel, params: BoostingParams) -> None:
    assert [tree.index for tree in view.trees] == list(range(len(oracle)))
    for tree, expected in zip(view.trees, oracle, strict=True):
        assert known(tree) == knowable(here, expected, view.party, params)
        assert tree.complete


def _assert_consistent(tree: TreeView) -> None:
    """Leaves are the known nodes without known children; cells are their innermost sets; splits are on own nodes."""
    children = {u for node in tree.nodes for u in (2 * node, 2 * node + 1)} & tree.nodes.keys()
    assert {leaf.node for leaf in tree.leaves()} == {u for u in tree.nodes if not {2 * u, 2 * u + 1} & children}
    leaves = sorted(record for leaf in tree.leaves() for record in leaf.records.tolist())
    assert leaves == list(range(tree.total))  # in this protocol they cover every record once
    cells = tree.cells()
    assert all((cells[leaf.records] == leaf.node).all() for leaf in tree.leaves())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", range(6))
def test_a_view_is_what_the_oracles_tree_and_the_owners_say(seed: int, tmp_path: Path) -> None:
    """For many small worlds, each feature party: every knowable node with just its records and how it is known."""
    rng = np.random.default_rng(seed)
    params = replace(
        PARAMS,
        max_depth=int(rng.integers(1, 5)),
        min_child_weight=float(rng.choice([0.2, 1.0, 2.0])),
        subsample=float(rng.choice([1.0, 0.7])),
        gamma=float(rng.choice([0.0, 0.5])),
        seed=seed,
    )
    here = world(int(rng.integers(40, 90)), (1 + seed % 2, 2, 2), missing=0.1, seed=seed)
    oracle = here.oracle(params)
    states = train(tmp_path / "federation", here, params)
    sources = set()
    for party in FEATURES:
        view = read_view(transcript(states, party), party=party)  # who won no split, the transcript does not name
        assert (view.party, view.job, view.label_holder, view.protocol) == (party, "job", PARTIES[0], "boosting")
        assert (view.records, view.attempt, view.max_depth) == (len(here.y), 1, params.max_depth)
        assert view.finished
        assert view.faults == ()
        _assert_knowable(view, here, oracle, params)
        for tree, expected in zip(view.trees, oracle, strict=True):
            _assert_consistent(tree)
            sources |= {node.source for node in tree.nodes.values()}
            own = {u: (node.split.feature, node.split.threshold) for u, node in tree.nodes.items() if node.split}
            assert own == {
                u: (node.feature, node.cut)
                for u, node in expected.nodes.items()
                if isinstance(node, OracleSplit) and node.owner == party
            }
            drawn = sampling.rows(seed, tree.index, view.records, params.subsample, np.ones(view.records, dtype=bool))
            assert present(tree.drawn).tolist() == drawn.astype(int).tolist()
    if params.max_depth > 1:
        assert "own" in sources


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", FEATURES)
def test_received_only_is_what_messages_named(party: str, tmp_path: Path) -> None:
    """The root and the spaces that were relayed; no child of an own split and nothing worked out."""
    here = world(100, (2, 2, 2), seed=5)
    oracle = here.oracle(PARAMS)
    view = read_view(transcript(train(tmp_path / "federation", here, PARAMS), party))
    dropped = set()
    for tree, received, expected in zip(view.trees, view.received_only().trees, oracle, strict=True):
        assert [leaf.node for leaf in received.leaves()] == [
            u for u in sorted(received.nodes) if not {2 * u, 2 * u + 1} & received.nodes.keys()
        ]
        everything = knowable(here, expected, party, PARAMS)
        assert known(received) == {u: it for u, it in everything.items() if it[1] in ("root", "received")}
        assert all(node.split is None for node in received.nodes.values())
        dropped |= {source for _, source in everything.values()} - {"root", "received"}
        assert len(received.nodes) < len(tree.nodes)
    assert dropped == {"own", "difference"}
    assert [[rows.tolist() for rows in tree] for tree in view.leaves()] == [
        [leaf.records.tolist() for leaf in tree.leaves()] for tree in view.trees
    ]


def test_rows_lead_from_positions_to_the_own_file(tmp_path: Path) -> None:
    """Under private set intersection the common order is nobody's; rows say which row of the file a position is."""
    here = world(60, (2, 2, 2), seed=3)
    states = train(tmp_path / "federation", here, PARAMS, alignment="psi")
    for party in FEATURES:
        view = read_view(transcript(states, party))
        ids = pq.read_table(states[party].parent / "train.parquet").column("id").to_pylist()
        record = np.array([int(ids[row][1:]) for row in present(view.rows)])
        assert record.tolist() != sorted(record.tolist())
        assert sorted(record.tolist()) == list(range(60))
        for tree, expected in zip(view.trees, here.oracle(PARAMS), strict=True):
            of_node = here.members(expected)
            for u, node in tree.nodes.items():
                assert sorted(record[node.records].tolist()) == of_node[u].tolist()


def test_traffic_is_counted_by_class_peer_and_step(tmp_path: Path) -> None:
    """Every received and sent byte of the record, under the other side's name; sent only where it was recorded."""
    here = world(40, (1, 2), seed=1)
    both = read_view(transcript(train(tmp_path / "both", here, PARAMS, "both"), "feature-b"))
    assert {(row["from"], row["class"]) for row in both.received if row["step"] == "gradients"} == {
        (PARTIES[0], "CIPHERTEXT"),
        (PARTIES[0], "CONTROL"),
    }
    ciphertexts = next(row for row in both.received if row["class"] == "CIPHERTEXT")
    assert ciphertexts["bytes"] >= 2 * 40 * CIPHERTEXT  # two trees, one ciphertext per record
    assert {row["step"] for row in both.sent} == {"record_digest", "candidate_sums", "children"}
    assert {row["to"] for row in both.sent} == {PARTIES[0]}
    assert both.own_digest is not None
    received = read_view(transcript(train(tmp_path / "received", here, PARAMS), "feature-b"))
    assert received.sent == []
    assert received.own_digest is None


def test_messages_that_come_doubled_and_late_change_nothing(tmp_path: Path) -> None:
    """A network that doubles and delays parcels leaves other records, the same view."""
    here = world(40, (1, 2, 2), seed=2)

    async def main() -> Federation:
        faults = Faults(double=0.5, delay_s=0.5, late_s=3.0, lose_reply=0.05, seed=4)
        federation = Federation(tmp_path, here.tables, faults=faults, record="received")
        finished(await federation.train(spec(PARAMS, key_bits=KEY_BITS, obfuscation="standard")))
        return federation

    states = run(main()).states
    for party in FEATURES:
        _assert_knowable(read_view(transcript(states, party)), here, here.oracle(PARAMS), PARAMS)


def test_a_resumed_job_and_its_transcript_while_it_was_interrupted(tmp_path: Path) -> None:
    """Of a tree grown in two attempts the complete growth counts; before, the tree is marked as unfinished."""
    here = world(60, (1, 2, 2), seed=7)
    oracle = here.oracle(PARAMS)
    between: dict[str, View] = {}

    async def main() -> Federation:
        federation = Federation(tmp_path, here.tables, record="received")
        applied = 0

        def kill_everybody(message: Message) -> None:
            nonlocal applied
            applied += message.word == "relay_children" and not message.served
            if applied == 5:  # in the middle of the second tree
                federation.hook = None
                for party in PARTIES:
                    federation.restart(party)

        federation.hook = kill_everybody
        assert (await federation.train(spec(PARAMS, key_bits=KEY_BITS, obfuscation="standard"))).state == "interrupted"
        for party in FEATURES:
            between[party] = read_view(transcript(federation.states, party))
        assert (await federation.resume()).state == "finished"
        return federation

    states = run(main()).states
    for party, view in between.items():
        assert [tree.index for tree in view.trees] == [0]
        assert [(tree.index, tree.complete) for tree in view.unfinished] == [(1, False)]
        partly, whole = known(view.unfinished[0]), knowable(here, oracle[1], party, PARAMS)
        assert partly.keys() < whole.keys()
        assert all(partly[u][0] == whole[u][0] for u in partly)
        assert not view.finished
        assert "ends before its job does (after 1 complete trees)" in view.faults[-1]
        resumed = read_view(transcript(states, party))
        _assert_knowable(resumed, here, oracle, PARAMS)
        assert [tree.attempt for tree in resumed.trees] == [1, 2]
        assert (resumed.attempt, resumed.unfinished, resumed.finished) == (2, (), True)


async def test_a_job_can_be_read_at_every_moment(tmp_path: Path) -> None:
    """While messages still arrive: what is there is read, never more than is true, and in the end everything."""
    here = world(30, (1, 2), seed=9)
    oracle = here.oracle(PARAMS)
    seen: list[int] = []

    federation = Federation(tmp_path, here.tables, record="received")

    def look(message: Message) -> None:
        if message.word not in ("relay_children", "store_tree", "leave") or message.served:
            return
        view = read_view(transcript(federation.states, "feature-b"))
        assert view.rows is not None
        for tree in (*view.trees, *view.unfinished):
            whole = knowable(here, oracle[tree.index], "feature-b", PARAMS)
            assert all(whole[u][0] == records for u, (records, _) in known(tree).items())
        seen.append(sum(len(tree.nodes) for tree in (*view.trees, *view.unfinished)))

    federation.hook = look
    await federation.train(spec(PARAMS, 2, key_bits=KEY_BITS, obfuscation="standard"))
    await federation.close()
    assert len(seen) > 6
    assert all(a <= b for a, b in pairwise(seen))
    assert seen[0] < seen[-1]


async def test_the_label_holder_and_predictions_have_no_view(tmp_path: Path) -> None:
    """Both are told in words: the one knows the labels, the other grows no tree."""
    here = world(30, (1, 2), seed=9)

    federation = Federation(tmp_path, here.tables, record="received")
    await federation.train(spec(PARAMS, 2, key_bits=KEY_BITS, obfuscation="standard"))
    await federation.predict(predict_request(model="job", job="ask", block=4))
    await federation.close()
    states = federation.states
    with pytest.raises(BadInput, match="is the transcript of label-holder, the label holder"):
        read_view(transcript(states, PARTIES[0]))
    with pytest.raises(BadInput, match="'ask' is of a prediction"):
        read_view(transcript(states, "feature-b", "ask"))
    assert read_view(states["feature-b"]).job == "job"  # the only training
    assert read_view(states["feature-b"], party="feature-b").party == "feature-b"
    with pytest.raises(BadInput, match="is not the transcript of feature-c, but of feature-b"):
        read_view(states["feature-b"], party="feature-c")
