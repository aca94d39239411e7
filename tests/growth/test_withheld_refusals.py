"""Instance spaces withheld: policies, left sets and predictions that cannot be, and what is kept of such a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.growth.test_withheld import PADDED, SMALL, job_of
from tests.simulator import Federation, Message, failed, run
from tests.worlds import PARTIES, assert_oracles_model, joined_model, manifest, world
from treetap.errors import Malformed
from treetap.models.kept import read_leakage
from treetap.party.growth.messages import child_messages
from treetap.protocols.prediction import predict_request
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.expansion import ExpansionRules
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2, transcript_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

LABEL_HOLDER, FEATURE, OTHER = PARTIES
HERE = world(60, (1, 2, 2), missing=0.1)
N = len(HERE.y)
ORACLE = HERE.oracle(SMALL)
WITH_DATA = {"encrypted_words", "candidate_sums"}


Change = Callable[[Sequence[int]], Sequence[int]]
LEFT_SETS: dict[str, tuple[Change, str]] = {
    "none": (lambda _: [], "the split of node 1, which won, sends all of its records to one side"),
    "all": (lambda _: range(N), "the split of node 1, which won, sends all of its records to one side"),
    "others": (
        lambda left: [row for row in range(N) if row not in left],
        "do not have the sums that its owner offered",
    ),
}


@pytest.mark.parametrize("case", LEFT_SETS)
async def test_left_sets_that_are_not_those_of_the_winner(case: str, tmp_path: Path) -> None:
    """The label holder compares them, within the node, with the sums of the candidate that won."""
    change, fault = LEFT_SETS[case]

    def forge(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "children" and parcel.stage == 0 and len(parcel.growth.children.children):
            (child,) = parcel.growth.children.children
            left = rows_of([child.left], N).tolist()
            rows = np.array(change(left), dtype=np.int64)
            (body,) = child_messages([(child.node, child.handle, rows)], N)
            parcel.growth.children.CopyFrom(body.body)
        return parcel

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = forge
    failed(await federation.train(job_of(SMALL)), fault)


def test_sums_over_no_records_are_treated_as_others() -> None:
    """Those of a node that a padded tree does not have: dropped, and refused where a node's own would be."""
    values = np.array([[2, 1, 1], [-2, 1, 1], [2, 1, 1], [-2, 1, 1]], dtype=np.int64)
    criterion = BoostingCriterion(1.0, BoostingParams())
    tree = GrowingTree(values, criterion, ExpansionRules(3), subtract=True, left_first=True, padded=True)
    tree.next_stage()  # nothing was chosen
    assert (tree.build, tree.asked) == ([], [2])
    assert not len(tree.rows_asked(2))
    assert tree.take_asked(np.zeros((1, 5, 3), dtype=np.int64)).shape == (0, 5, 3)
    assert not len(tree.take_asked(np.ones((1, 5, 3), dtype=np.int64)))
    tree.check_offered(np.array([[[2, 1, 4]]]))
    with pytest.raises(Malformed, match="sums of node 2 are such that no records"):
        tree.check_offered(np.array([[[2, 1, 5]]]))
    tree.next_stage()
    assert tree.asked == [4, 6]
    tree.next_stage()
    assert tree.asked == []


def test_a_nodes_size_does_not_show_by_what_is_refused() -> None:
    """Sums of more records than a node has, but no more than the tree: taken where the party does not know its size."""
    values = np.array([[g << 30, 1 << 30, 1] for g in (2, -2, 2, -2, -2, 2)], dtype=np.int64)
    for withheld in (False, True):
        criterion = BoostingCriterion(1.0, BoostingParams(min_child_weight=0.0))
        tree = GrowingTree(values, criterion, ExpansionRules(3), subtract=True, left_first=withheld)
        tree.take_candidates([np.array([[values[[0, 2]].sum(axis=0)]])], [()])
        (choice,) = tree.choose()
        tree.split(choice.node, 0, np.array([0, 2]))
        tree.next_stage()
        more = values[:3].sum(axis=0)[np.newaxis, np.newaxis]
        assert (tree.build, len(tree.rows[2]), more[0, 0, 2]) == ([2], 2, 3)
        if withheld:
            tree.check_offered(more)
        else:
            with pytest.raises(Malformed, match="sums of node 2 are such that no records"):
                tree.check_offered(more)


async def test_a_node_that_the_party_did_not_offer_is_not_split(tmp_path: Path) -> None:
    """A label holder that names another node as won, or the same one twice."""
    seen: list[int] = []

    def forge(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if to == FEATURE and name_of(parcel) == "won_splits" and parcel.growth.won_splits.splits:
            split = parcel.growth.won_splits.splits[0]
            seen.append(split.node)
            split.node = 6 if len(seen) == 1 else split.node
        return parcel

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = forge
    failed(await federation.train(job_of(SMALL)), "of tree 0, a winning candidate of node 6, which is not to be split")


def test_what_is_kept_of_such_a_job(tmp_path: Path) -> None:
    """Manifests, a continued model's too; accounts of sets and cells; own splits over all records; predictions."""
    continued = replace(SMALL, instance_spaces="sent", n_estimators=1)

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, record="both")
        assert (await federation.train(job_of(SMALL), "before")).state == "finished"
        assert (await federation.train(job_of(continued, base_model="before"))).state == "finished"
        for model in ("before", "job"):
            for state in federation.states.values():
                assert manifest(state, model)["instance_spaces"] == "withheld"
            predicted = failed(
                await federation.predict(predict_request(job=f"by-{model}", model=model)), bad_input=True
            )
            assert re.search(
                f"model {model}: a model that was trained with instance_spaces = 'withheld' and protocol 'interactive' "
                "do not go together: .*; use protocol eini or eini-lattice",
                predicted.error,
            ), predicted.error
        await federation.close()
        trees = joined_model(federation.states, "before")
        assert_oracles_model(federation.states, ORACLE, "before")
        accounts = read_leakage(federation.state(LABEL_HOLDER) / "models" / "before")
        for tree, account in zip(trees, accounts, strict=True):
            owners = {node: what[1] for node, what in tree.items() if what[0] == "split"}
            for party in PARTIES[1:]:
                assert account["parties"][party]["sets"] == _known(owners, party)
        assert sum(account["parties"][party]["sets"] for account in accounts for party in PARTIES[1:])
        for party in PARTIES[1:]:
            for split in _own_splits(federation.state(party) / "transcripts" / "before"):
                left, right = (rows_of(chunks, N).tolist() for chunks in (split.left, split.right))
                assert sorted([*left, *right]) == list(range(N))

    run(main())


def _known(owners: dict[int, str], party: str) -> int:
    """The nodes below splits of a party alone."""
    return sum(2 for node in owners if all(owners[node >> up] == party for up in range(node.bit_length())))


def _own_splits(folder: Path) -> list[transcript_pb2.OwnSplit]:
    records = [record for record in TranscriptReader(folder) if record.kind == TranscriptRecord.OWN]
    kind = transcript_pb2.OwnSplit.DESCRIPTOR.full_name
    return [transcript_pb2.OwnSplit.FromString(each.message) for each in records if each.message_type == kind]


@pytest.mark.second_tier
def test_bytes_are_named_before_the_first_tree(tmp_path: Path) -> None:
    """Those of words and sums, as layout gives them: a padded job takes just these, another one fewer."""
    named: list[int] = []

    async def main(params: BoostingParams, folder: Path) -> tuple[int, int]:
        federation = Federation(folder, HERE.tables)

        def hook(message: Message) -> None:
            if message.word == "begin_tree" and not message.served:
                named.append(federation.jobs.status("job")[0].planned_bytes)

        federation.hook = hook
        status = await federation.train(job_of(params))
        await federation.close()
        rows = [row for each in status.accounts for row in each.account.traffic]
        data = ("CIPHERTEXT", "CANDIDATE_SUM")
        sent = (row.bytes for row in rows if row.step in WITH_DATA and row.disclosure in data)
        return status.planned_bytes, sum(sent)

    planned, sent = run(main(PADDED, tmp_path / "padded"))
    assert planned == pytest.approx(sent, rel=1e-3)  # frames of messages are not counted
    assert set(named) == {planned}
    more, fewer = run(main(replace(SMALL, max_depth=5), tmp_path / "not padded"))
    assert more > planned
    assert fewer < more
