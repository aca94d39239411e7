"""Sets of records that are released, and those that are withheld.

- The label holder's live account of what released sets say, and the policy that stops a job or withdraws sets.
- ID-LMID and Reduced-Leakage in a federation: the oracle's trees, and no set of records that breaks Eq. 6.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.recorded import KEY_BITS, transcript
from tests.library.trees.repairs import by_number
from tests.simulator import Federation, finished, run
from tests.worlds import PARTIES, World, spec, world
from treetap.attacks.sections import bound_rows, signature
from treetap.attacks.view.known_trees import expected_views
from treetap.attacks.view.view import read_view
from treetap.errors import ConfigError
from treetap.models.store import LEAKAGE, read_leakage, read_model
from treetap.party.config import PartyConfig
from treetap.party.defences.settings import Defences, IdLmid, LabelDp, ReducedLeakage
from treetap.party.policy import Policy
from treetap.process.config import TlsConfig
from treetap.tables.labels import Labels
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.centralised import CentralForest, CentralModel, train_forest
from treetap.trees.ensemble import ROOT, Tree
from treetap.trees.information import class_counts, class_entropy, mutual_information, node_bounds, permuted_information
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")

HERE = world(60, seed=3)
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
FOREST = ForestParams(n_estimators=2, max_depth=4, max_bin=6, party_dropout={"feature-b": 0.5})
LABELS = Labels(HERE.y, ["0", "1"])
Sent = list[tuple[str, str, exchange_pb2.PeerMessage]]
Steps = list[control_pb2.StepRequest]
WITHHELD_BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, subsample=0.8)
WITHHELD_FOREST = ForestParams(n_estimators=2, max_depth=4, max_bin=6, colsample_bytree=0.7)
THREE: dict[str, Any] = {"objective": "multi:softprob", "classes": 3}
#: World, parameters, ξ and its counts, trees that the label holder grows alone.
CASES: dict[str, tuple[dict[str, Any], TreeParams, dict[str, Any]]] = {
    "boosting": ({}, WITHHELD_BOOSTING, {"id_lmid": IdLmid(xi=0.3)}),
    "boosting, early stopping": (
        {},
        replace(WITHHELD_BOOSTING, early_stopping_rounds=1, validation_share=0.2),
        {"id_lmid": IdLmid(xi=0.35)},
    ),
    "boosting, vector leaves": (
        THREE,
        replace(
            WITHHELD_BOOSTING, objective="multi:softprob", multi_strategy="multi_output_tree", min_child_weight=0.0
        ),
        {"id_lmid": IdLmid(xi=0.3, counts="paper")},
    ),
    "boosting, a tree per class": (
        THREE,
        replace(WITHHELD_BOOSTING, objective="multi:softprob", max_depth=2, n_estimators=1),
        {"id_lmid": IdLmid(xi=0.3), "reduced_leakage": ReducedLeakage(trees=1)},
    ),
    "boosting, the best split first": (
        {},
        replace(WITHHELD_BOOSTING, grow_policy="lossguide", min_child_weight=0.5),
        {"id_lmid": IdLmid(xi=0.3)},
    ),
    "boosting, few leaves, the best split first": (
        {},
        replace(WITHHELD_BOOSTING, grow_policy="lossguide", max_leaves=5, min_child_weight=0.5),
        {"reduced_leakage": ReducedLeakage(trees=1)},
    ),
    "forest": (THREE, WITHHELD_FOREST, {"id_lmid": IdLmid(xi=0.35)}),
    "forest, counts of the paper": ({}, WITHHELD_FOREST, {"id_lmid": IdLmid(xi=0.3, counts="paper")}),
    "forest, drawn with replacement, bins per node": (
        {},
        replace(WITHHELD_FOREST, bootstrap=True, subsample=1.0, binning="per-node", min_samples_leaf=2),
        {"id_lmid": IdLmid(xi=0.4)},
    ),
    "forest, parties sit trees out": (
        {},
        replace(WITHHELD_FOREST, n_estimators=4, party_dropout={"feature-b": 0.5}),
        {"id_lmid": IdLmid(xi=0.4), "reduced_leakage": ReducedLeakage(trees=1)},
    ),
}


@pytest.mark.parametrize("params", [BOOSTING, FOREST], ids=["boosting", "forest"])
async def test_the_account_is_what_an_audit_of_the_transcripts_finds(params: TreeParams, tmp_path: Path) -> None:
    """Per tree and party the number of sets, the largest bound, and the information of the signature."""
    status, federation = await _train(tmp_path, params)
    assert status.state == "finished"
    lines = read_leakage(federation.state(PARTIES[0]) / "models" / "job")
    assert [line["tree"] for line in lines] == [0, 1]
    for party in PARTIES[1:]:
        view = read_view(transcript(federation.states, party), party=party)
        bounds, said = bound_rows(view, LABELS), signature(view, LABELS)
        for tree, line in enumerate(lines):
            mine, found = [row["nats"] for row in bounds if row["tree"] == tree], line["parties"][party]
            if isinstance(params, BoostingParams):  # the audit of a forest counts drawn records, as the paper does
                assert found["bound_nats"] == pytest.approx(max(mine, default=0.0))
            assert found["sets"] == len(mine)
            assert found["information_nats"] == pytest.approx(said["by_tree"][tree]["mutual_information"])
            chance = said["by_tree"][tree]["by_chance"]
            assert found["by_chance_nats"] == pytest.approx(chance, abs=0.1 * said["label_entropy"])
            excess = (found["information_nats"] - found["by_chance_nats"]) / line["entropy_nats"]
            assert found["excess_share"] == pytest.approx(excess)


async def test_a_resumed_job_has_the_account_of_one_that_nothing_disturbed(tmp_path: Path) -> None:
    """A tree that is grown again changes no figure but those by chance."""

    federation = Federation(tmp_path, HERE.tables)

    federation.kill_at(
        PARTIES[0],
        lambda message: (
            message.word == "store_tree" and message.to == PARTIES[0] and federation.jobs.status("job")[0].round
        ),
    )
    job = spec(BOOSTING, key_bits=KEY_BITS, obfuscation="standard")
    assert (await federation.train(job)).state == "interrupted"
    federation.start(PARTIES[0])
    assert (await federation.resume()).state == "finished"
    await federation.close()
    resumed = read_leakage(federation.state(PARTIES[0]) / "models" / "job")
    _, whole = await _train(tmp_path / "whole", BOOSTING)
    assert _certain(resumed) == _certain(read_leakage(whole.state(PARTIES[0]) / "models" / "job"))


@pytest.mark.parametrize("params", [BOOSTING, FOREST], ids=["boosting", "forest"])
async def test_a_policy_stops_a_job_and_tells_no_figure(params: TreeParams, tmp_path: Path) -> None:
    """No set above the bound is relayed, and the coordinator learns only that the label holder has stopped the job."""
    status, federation = await _train(tmp_path, params, policy={"labels": {"max_leakage": 0.2}})
    assert status.state != "finished"
    assert f"{PARTIES[0]} has stopped job job: its policy has a limit" in status.error
    told = "".join(federation.told_coordinator)
    assert not any(word in told for word in ("nats", "node", "0.2", "feature"))
    for party in PARTIES[1:]:
        for tree in read_view(transcript(federation.states, party), party=party).trees:
            received = [found.records for found in tree.nodes.values() if found.source == "received"]
            counts = [np.bincount(HERE.y[rows], minlength=2) / len(rows) for rows in received]
            whole = np.bincount(HERE.y) / len(HERE.y)
            assert all((share * np.log(np.where(share > 0, share / whole, 1))).sum() <= 0.2 for share in counts)


async def test_a_policy_withdraws_as_the_defence_does(tmp_path: Path) -> None:
    """`on_max_leakage = "withdraw"` is ID-LMID with the policy's bound; the smaller of two bounds holds."""
    _, by_policy = await _train(
        tmp_path / "policy", BOOSTING, policy={"labels": {"max_leakage": 0.3, "on_max_leakage": "withdraw"}}
    )
    _, by_defence = await _train(tmp_path / "defence", BOOSTING, Defences(id_lmid=IdLmid(xi=0.3)))
    _, by_both = await _train(
        tmp_path / "both",
        BOOSTING,
        Defences(id_lmid=IdLmid(xi=0.9)),
        policy={"labels": {"max_leakage": 0.3, "on_max_leakage": "withdraw"}},
    )
    trees = [read_model(each.state(PARTIES[0]) / "models" / "job")[1] for each in (by_policy, by_defence, by_both)]
    assert trees[0] == trees[1] == trees[2]
    assert any(line["tree"]["local"] for line in trees[0])


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (
            Defences(id_lmid=IdLmid(xi=0.5, counts="paper")),
            "id_lmid with counts = 'paper' and on_max_leakage",
        ),
        (
            Defences(label_dp=LabelDp(epsilon=1.0), grafting=True),
            "grafting and on_max_leakage = 'withdraw'",
        ),
    ],
    ids=["counts of the paper", "grafting"],
)
def test_withdrawing_by_policy_goes_with_what_id_lmid_goes_with(own: Defences, says: str) -> None:
    """Refused when the party's file is read; a policy that stops jobs goes with both."""
    tls = TlsConfig(ca=Path("none"), certificate=Path("none"), key=Path("none"))
    config = PartyConfig(name="bank", state=Path("state"), tls=tls, defences=own)
    config.under(Policy(labels={"max_leakage": 0.5})).check_withdrawing()
    with pytest.raises(ConfigError, match=says):
        config.under(Policy(labels={"max_leakage": 0.5, "on_max_leakage": "withdraw"})).check_withdrawing()


def test_numbers_have_no_bound(tmp_path: Path) -> None:
    """A regression keeps no account; with a bound in the policy it is refused before any work."""
    here = world(60, seed=3, objective="reg:squarederror")
    params = BoostingParams(objective="reg:squarederror", n_estimators=1, max_depth=2)

    async def main(folder: Path, policies: dict[str, dict[str, Any]]) -> tuple[jobs_pb2.JobStatus, Federation]:
        federation = Federation(folder, here.tables, policies=policies)
        status = await federation.train(spec(params, key_bits=KEY_BITS, obfuscation="standard"))
        await federation.close()
        return status, federation

    status, federation = run(main(tmp_path / "none", {}))
    model = federation.state(PARTIES[0]) / "models" / "job"
    assert status.state == "finished"
    assert LEAKAGE not in json.loads((model / "manifest.json").read_text())["files"]
    status, _ = run(main(tmp_path / "bound", {PARTIES[0]: {"labels": {"max_leakage": 0.5}}}))
    assert "takes no part in this job by its policy: max_leakage and a regression do not go together" in status.error


def test_the_information_by_chance_is_that_of_permuted_labels() -> None:
    """The mean over drawn tables is the mean over permuted labels, for two classes and for three."""
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        labels, groups = rng.integers(classes, size=90), rng.integers(12, size=90)
        permuted = np.mean([mutual_information(rng.permutation(labels), groups) for _ in range(400)])
        assert permuted_information(labels, groups, rng, 400) == pytest.approx(permuted, rel=0.05)
        everyone = permuted_information(labels, np.arange(90), rng)
        assert everyone == pytest.approx(class_entropy(np.bincount(labels)))


async def _train(
    folder: Path, params: TreeParams, own: Defences | None = None, policy: dict[str, Any] | None = None
) -> tuple[jobs_pb2.JobStatus, Federation]:

    federation = Federation(
        folder,
        HERE.tables,
        record="received",
        defences={PARTIES[0]: own or Defences()},
        policies={PARTIES[0]: policy or {}},
    )
    status = await federation.train(spec(params, key_bits=KEY_BITS, obfuscation="standard"))
    return status, federation


def _certain(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines without what is drawn."""
    drawn = ("by_chance_nats", "excess_share")
    return [
        {
            **line,
            "parties": {
                name: {key: value for key, value in row.items() if key not in drawn}
                for name, row in line["parties"].items()
            },
        }
        for line in lines
    ]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("setting", "params", "defences"), CASES.values(), ids=CASES)
async def test_the_federation_finds_the_oracles_trees_and_shows_no_more(
    setting: dict[str, Any], params: TreeParams, defences: dict[str, Any], tmp_path: Path
) -> None:
    """Trees, withdrawn parts and views equal those of the joined table; every set in a transcript keeps Eq. 6."""
    here, own = world(60, seed=3, **setting), Defences(**defences)
    states, sent, steps = await _withheld(tmp_path, here, params, own)
    central = _central(here, params, own)
    lines = read_model(states[PARTIES[0]] / "models" / "job")[1]
    trees = tuple(Tree.from_dict(line["tree"]) for line in lines)
    assert [by_number(tree) for tree in trees] == [by_number(tree) for tree in central.ensemble.trees]
    assert any(tree.local for tree in trees)
    for party in PARTIES[1:]:
        view = read_view(transcript(states, party), party=party)
        columns = here.tables[party][0]
        foreseen = expected_views(central, here.parties, party, columns)
        known = [{node: found.records.tolist() for node, found in tree.nodes.items()} for tree in view.trees]
        assert known == [{node: found.records.tolist() for node, found in tree.nodes.items()} for tree in foreseen]
        if own.id_lmid is not None and own.id_lmid.counts == "shown":
            worst = max(_bounds(here, [rows for tree in known for node, rows in tree.items() if node != ROOT]))
            assert worst <= own.id_lmid.xi
    _assert_nothing_below_withdrawn(trees, states, sent, steps)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", range(6))
async def test_no_set_in_a_transcript_breaks_the_limit(seed: int, tmp_path: Path) -> None:
    """Random jobs: labels, protocol, depth, draws and ξ; every set that a party receives, makes or derives keeps ξ."""
    rng = np.random.default_rng(seed)
    classes, xi = int(rng.integers(2, 5)), float(rng.uniform(0.05, 0.8))
    here = world(int(rng.integers(40, 90)), seed=seed, objective="multi:softprob", classes=classes, missing=0.1)
    depth, draws = int(rng.integers(2, 5)), float(rng.choice([0.5, 0.8, 1.0]))
    if seed % 2:
        params: TreeParams = replace(WITHHELD_FOREST, max_depth=depth, subsample=draws, bootstrap=bool(rng.integers(2)))
    else:
        params = BoostingParams(
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=2,
            max_depth=depth,
            max_bin=6,
            subsample=draws,
            min_child_weight=0.0,
            early_stopping_rounds=[None, 2][int(rng.integers(2))],
        )
    states, *_ = await _withheld(tmp_path, here, params, Defences(id_lmid=IdLmid(xi=xi)))
    for party in PARTIES[1:]:
        trees = read_view(transcript(states, party), party=party).trees
        shown = [known.records.tolist() for tree in trees for node, known in tree.nodes.items() if node != ROOT]
        assert max(_bounds(here, shown), default=0.0) <= xi


@pytest.mark.second_tier
async def test_without_a_limit_the_model_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    """ξ = ∞ changes no byte of any party's shard, and ξ = 0 leaves the other parties nothing but the root."""
    here = world(60, seed=3)
    for params in (WITHHELD_BOOSTING, WITHHELD_FOREST):
        shards = []
        for name, own in {"none": Defences(), "inf": Defences(id_lmid=IdLmid(xi=np.inf))}.items():
            states, *_ = await _withheld(tmp_path / type(params).__name__ / name, here, params, own)
            shards.append([(state / "models" / "job" / "trees.jsonl").read_bytes() for state in states.values()])
        assert shards[0] == shards[1]
        states, *_ = await _withheld(
            tmp_path / type(params).__name__ / "zero", here, params, Defences(id_lmid=IdLmid(xi=0.0))
        )
        for party in PARTIES[1:]:
            assert all(set(tree.nodes) == {ROOT} for tree in read_view(transcript(states, party), party=party).trees)


async def test_a_limit_costs_no_ciphertext_of_a_record_and_few_of_candidates(tmp_path: Path) -> None:
    """The class of a record shares its ciphertext; candidates take ⌈candidates / groups⌉ with fewer groups in each."""
    here = world(60, seed=3)
    counts = {}
    params = replace(WITHHELD_BOOSTING, subsample=1.0)
    for name, own in {"none": Defences(), "inf": Defences(id_lmid=IdLmid(xi=np.inf))}.items():
        _, sent, _ = await _withheld(tmp_path / name, here, params, own)
        bodies = [(name_of(each), each) for _, _, each in sent]
        records = sum(len(each.protocol.boosting.gradients.ciphertexts) for kind, each in bodies if kind == "gradients")
        sums = sum(len(each.growth.candidate_sums.ciphertexts) for kind, each in bodies if kind == "candidate_sums")
        counts[name] = records, sums
    assert counts["none"][0] == counts["inf"][0]
    assert counts["none"][1] <= counts["inf"][1] <= 2 * counts["none"][1]


async def _withheld(
    folder: Path, here: World, params: TreeParams, own: Defences
) -> tuple[dict[str, Path], Sent, Steps]:
    """The parties' states, every message between them, and every step that the coordinator asked for."""
    sent: Sent = []
    steps: Steps = []

    def keep(sender: str, to: str, message: exchange_pb2.PeerMessage) -> None:
        sent.append((sender, to, message))

    federation = Federation(folder, here.tables, record="received", defences={PARTIES[0]: own})
    federation.tamper = keep
    finished(await federation.train(spec(params, key_bits=KEY_BITS, obfuscation="standard")))
    steps.extend(request for kind, _, request in federation.conducted if kind == "begin")
    return federation.states, sent, steps


def _central(here: World, params: TreeParams, own: Defences) -> CentralModel | CentralForest:
    """The same model of the joined table."""
    if isinstance(params, ForestParams):
        return train_forest(here.parties, here.y, params, here.classes, withholding=own.withholding)
    assert isinstance(params, BoostingParams)
    tables = [
        (name, bin_table(block, [f"{name}-{j}" for j in range(block.shape[1])], params.max_bin))
        for name, block in here.parties
    ]
    return centralised.train(tables, here.y, params, here.classes, own.withholding)


def _bounds(here: World, sets: list[list[int]]) -> Iterator[float]:
    """The larger divergence of Eq. 6 of each set of records, over all records."""
    counts = np.array([class_counts(here.y[rows], here.classes) for rows in sets])
    yield from node_bounds(counts, class_counts(here.y, here.classes)).larger.tolist() if sets else [0.0]


def _assert_nothing_below_withdrawn(trees: tuple[Tree, ...], states: dict[str, Path], sent: Sent, steps: Steps) -> None:
    """No message, step or shard of another party has a node below a withdrawn one, which is one leaf to all others."""
    for tree in trees:
        hidden = {each.node for sub in tree.local for each in (*sub.splits, *sub.leaves)} - {s.root for s in tree.local}
        assert {each.root for each in tree.local} <= {leaf.node for leaf in tree.leaves}
        nodes = set()
        for _, _, message in sent:
            if message.round == tree.index and message.WhichOneof("body") == "growth":
                growth = message.growth
                nodes |= set(growth.candidate_sums.nodes) | {each.node for each in growth.children.children}
                nodes |= {each.node for each in (*growth.instance_spaces.spaces, *growth.won_splits.splits)}
        for step in steps:
            if step.round == tree.index:
                nodes |= set(step.growth.build_histograms.nodes)
        assert nodes or not tree.splits
        assert not nodes & hidden
        for party in PARTIES[1:]:
            line = read_model(states[party] / "models" / "job")[1][tree.index]
            assert len(line["leaves"]) == len(tree.leaves)
            assert not {split["node"] for split in line["splits"]} & hidden
