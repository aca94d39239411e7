"""`column_privacy` in a federation: the trainer's trees with the noise that was drawn, budgets, refusals by name."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gmpy2
import numpy as np
import pytest

from tests.attacks.recorded import transcript
from tests.boosting.drawn_noise import DrawnNoise, assert_drawn_model
from tests.commands.command import treetap_here, write
from tests.joint_noise import assert_independent, contrasts
from tests.simulator import Federation, finished, run
from tests.worlds import PARTIES, World, manifest, spec, world
from treetap.additive.paillier.public_key import PublicKey
from treetap.attacks.view.view import read_label_holder
from treetap.errors import Malformed, OutOfOrder, Refused
from treetap.party.defences.budgets import ColumnBudget
from treetap.party.defences.settings import ColumnPrivacyTable, Defences, IdLmid
from treetap.party.growth.column_noise import ColumnNoise, NoisedParties
from treetap.party.growth.feature_party import OwnTree
from treetap.party.growth.offered_candidates import OfferedCandidates
from treetap.party.runtime.ledger import Occasion
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.privacy.zcdp import epsilon_of
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees import noised_sums
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.growing_tree import Choice, GrowingTree
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, setup_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
LABEL_HOLDER, FEATURE, OTHER = PARTIES
BASE = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.0)
#: Weak enough that noised candidates win on small tables.
WEAK = ColumnPrivacyTable(epsilon=500.0, delta=1e-6, trees=2)
#: Chance that a statistical test fails on right code.
ALPHA = 1e-6
#: World, parameters, ε by feature party.
CASES: dict[str, tuple[dict[str, Any], BoostingParams, tuple[float, ...]]] = {
    "missing values, sampled": ({"missing": 0.2}, replace(BASE, subsample=0.8), (3000.0, 900.0)),
    "one party alone, strong noise": ({}, BASE, (60.0,)),
    "several outputs": (
        {"objective": "multi:softprob", "classes": 3},
        replace(BASE, objective="multi:softprob", multi_strategy="multi_output_tree"),
        (4000.0, 4000.0),
    ),
    "a tree per class, parties sit trees out": (
        {"objective": "multi:softprob", "classes": 3},
        replace(BASE, objective="multi:softprob", n_estimators=1, party_dropout={FEATURE: 0.3}),
        (2000.0, 2000.0),
    ),
    "numbers, few columns and leaves": (
        {"objective": "reg:squarederror", "missing": 0.1},
        replace(BASE, objective="reg:squarederror", colsample_bytree=0.6, max_leaves=5),
        (20000.0,),
    ),
}


def _defences(epsilons: tuple[float, ...], trees: int = 3) -> dict[str, Defences]:
    return {
        party: Defences(column_privacy=ColumnPrivacyTable(epsilon=epsilon, delta=1e-6, trees=trees))
        for party, epsilon in zip(PARTIES[1:], epsilons, strict=False)
    }


def _federation(folder: Path, here: World, defences: dict[str, Defences], **policies: Any) -> Federation:
    given = {LABEL_HOLDER: {"labels": {"noised_sums": True}}, **policies}
    return Federation(folder, here.tables, defences=defences, policies=given)


def _spec(params: TreeParams, parties: int = 3, scheme: str = PAILLIER) -> Any:
    keys = {} if scheme == LATTICE else {"key_bits": 512, "obfuscation": "standard"}
    return spec(params, scheme=scheme, parties=parties, **keys)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("case", "scheme"), [(case, scheme) for scheme in (PAILLIER, LATTICE) for case in CASES][::-1])
async def test_the_federation_finds_the_trees_of_the_drawn_noise(
    case: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees, gains, weights and split tables are the trainer's with that noise, bit for bit; the report names it."""
    of_world, params, epsilons = CASES[case]
    here, drawn, defences = world(80, (1, 3, 2), seed=4, **of_world), DrawnNoise(monkeypatch), _defences(epsilons)

    federation = _federation(tmp_path, here, defences)
    finished(await federation.train(_spec(params, scheme=scheme)))
    await federation.close()
    states = federation.states
    trees = assert_drawn_model(states, here, params, defences, drawn)
    told = manifest(states[LABEL_HOLDER])["column_privacy"]
    for party, epsilon in zip(PARTIES[1:], epsilons, strict=False):
        assert told[party] == manifest(states[party])["column_privacy"]
        assert told[party]["epsilon"] == epsilon
        (charge,) = ColumnBudget(states[party], None).charges()
        assert (charge.occasion.table, charge.occasion.job) == ("train", "job")
        assert charge.details["epsilon"] == epsilon
    assert any(split.owner in defences for tree in trees for split in tree.splits)


@pytest.mark.parametrize("scheme", [PAILLIER, LATTICE])
async def test_sums_given_the_left_sets_have_the_stated_distribution(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums that a label holder opened, less the exact ones: independent over nodes, siblings, slots and cells."""
    here = world(60, (1, 4), seed=2)
    noise = ColumnPrivacy(50.0, 1e-6, 2).noise(BASE, 1)
    take = OfferedCandidates.take

    async def kept(offered: Any, party: str, t: int, stage: int) -> Any:
        sums = await take(offered, party, t, stage)
        for node, of_node in zip(offered._growing.build, sums, strict=True):
            rows = offered._growing.rows[node]
            opened.append((t, node, of_node, rows, offered._growing.values))
        return sums

    opened: list[tuple[int, int, Any, Any, Any]] = []
    columns: dict[int, OwnTree] = {}
    draw = ColumnNoise.of

    async def seen(own: ColumnNoise, tree: OwnTree, stage: int, nodes: list[int]) -> Any:
        columns[tree.index] = tree
        return await draw(own, tree, stage, nodes)

    monkeypatch.setattr(OfferedCandidates, "take", kept)
    monkeypatch.setattr(ColumnNoise, "of", seen)

    federation = _federation(tmp_path, here, _defences((50.0,), trees=2))
    assert (await federation.train(_spec(BASE, parties=2, scheme=scheme))).state == "finished"
    await federation.close()
    assert {node for _, node, *_ in opened} >= {1, 2, 3}
    told = []
    for t, _, sums, rows, values in opened:
        bins: Any = columns[t].columns.bins
        order, of_node = columns[t].columns.order(1), []
        for column, shape in enumerate(bins.candidates.shapes):
            places = np.flatnonzero(bins.candidates.feature[order] == column)
            cuts = bins.candidates.bin[order][places]
            exact = [values[rows[bins.all_codes[rows, column] <= cut]].sum(axis=0) for cut in cuts]
            rest = (sums[places] - np.array(exact))[np.argsort(cuts)] / np.array(noise.bounds)
            # cells' noise of which a W-th part of the whole is taken off: its parts add up to 0
            cells = np.diff(np.vstack([np.zeros((1, 3)), rest, np.zeros((1, 3))]), axis=0)
            of_node.append(contrasts(shape.n_bins) @ cells / math.sqrt(noise.variance))
        told.append(np.concatenate(of_node))
    by_node = np.array(told)  # (nodes, cells, slots)
    assert by_node.size > 300
    for axis in range(3):
        assert_independent(np.moveaxis(by_node, axis, -1).reshape(-1, by_node.shape[axis]), ALPHA / 3)


@pytest.mark.parametrize(
    ("first", "then", "fault"),
    [
        (None, WEAK, r"is {epsilon 500.0, delta 1e-06, trees 2} and was not there"),
        (WEAK, WEAK.model_copy(update={"epsilon": 90.0}), r"is {epsilon 90.0, .*} and was {epsilon 500.0, "),
        (
            WEAK,
            None,
            "column_privacy of feature-b is not there and was {epsilon 500.0, delta 1e-06, trees 2} when job job",
        ),
    ],
)
async def test_all_trees_of_a_job_have_one_setting(
    first: ColumnPrivacyTable | None, then: ColumnPrivacyTable | None, fault: str, tmp_path: Path
) -> None:
    """Exact sums of an attempt with noised ones of the next would be named as noised; the last ε as that of all."""
    here = world(60, seed=3)

    defences = {FEATURE: Defences(column_privacy=first)}
    federation = _federation(tmp_path, here, defences, **{FEATURE: {"columns": {"column_budget": 5000.0}}})
    sent = ("gradients", FEATURE, False)
    federation.kill_at(
        FEATURE,
        lambda message: (message.word, message.to, message.served) == sent,
        nth=2,  # the first tree is stored
        back=True,
        defences=Defences(column_privacy=then),
    )
    status = await federation.train(_spec(BASE))
    if status.state == "interrupted" and "column_privacy" not in status.error:
        await asyncio.sleep(200)
        status = await federation.resume("job")
    assert re.search(fault, status.error), status.error
    await federation.close()
    assert federation.hook is None


def test_jobs_that_begin_at_once_are_charged_one_after_the_other(tmp_path: Path) -> None:
    """Each with a ledger object of its own: of eight attempts three go, and three are on disk."""
    privacy, gate = ColumnPrivacy(1.0, 1e-6, 2), threading.Barrier(8)
    most = epsilon_of(3.5 * privacy.rho, 1e-6)

    def attempt(number: int) -> bool:
        budget = ColumnBudget(tmp_path, most)
        budget.check("shop", "train", privacy)
        gate.wait()
        try:
            budget.charge("shop", Occasion("train", ("bank",), "coordinator", f"job-{number}", 1), privacy)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 3
    assert len(ColumnBudget(tmp_path, most).charges()) == 3


def test_noise_that_is_said_too_late_is_refused() -> None:
    """A coordinator that has keys made before a party has told of its noise does not get around `noised_sums`."""

    async def said(party: str, kind: str) -> setup_pb2.NoisedSums | None:
        assert kind == "noised_sums"
        return setup_pb2.NoisedSums(epsilon=1.0, delta=1e-6, trees=2) if party == FEATURE else None

    heard: Any = object.__new__(NoisedParties)
    context = SimpleNamespace(party=LABEL_HOLDER, mailbox=SimpleNamespace(only_if_sent=said))
    heard.part = SimpleNamespace(context=context, spec=SimpleNamespace(feature_parties=[FEATURE, OTHER]))
    heard._noises = {}
    with pytest.raises(OutOfOrder, match="feature-b: sums have noise, which was said after the keys were made"):
        run(heard.begin())


def test_a_key_of_another_form_reads_through_noise() -> None:
    """A key with p | q − 1, which a feature party cannot tell from others, makes sums with a part without noise."""
    p = int(gmpy2.next_prime(1 << 200))
    k = next(k for k in range(1 << 110, 1 << 111) if gmpy2.is_prime(2 * k * p + 1))
    q = 2 * k * p + 1
    n = p * q
    public = PublicKey(n, allow_breakable=True)
    # of order p modulo q, and 1 modulo p²: no n-th power, and no part of a plaintext
    mark = pow(3, 2 * k * q, q * q)
    mark = mark + q * q * ((1 - mark) * pow(q * q, -1, p * p) % (p * p))
    cell = [mark, 1, mark, mark]  # records with the mark, in a cell
    summed = public.ring.batch([math.prod(cell) % (n * n)])
    sent = public.shifted(public.rerandomise_standard(summed), [123456789])
    (value,) = public.ring.numbers(sent)
    read = pow(int(value), 2 * k, q)
    assert [count for count in range(8) if pow(mark, 2 * k * count, q) == read] == [3]


async def test_without_a_budget_one_attempt_is_all(tmp_path: Path) -> None:
    """The default is the ε of one attempt, over all jobs on a table."""
    here = world(60, seed=3)

    federation = _federation(tmp_path, here, {FEATURE: Defences(column_privacy=WEAK)})
    assert (await federation.train(_spec(BASE))).state == "finished"
    status = await federation.train(_spec(BASE), "another")
    assert re.search("sends no sums of table 'train' in this attempt: it costs ε = 500 ", status.error)
    assert "has no column_budget, which leaves ε = 0 ('treetap ledger' at feature-b lists them)" in status.error


#: Parameters, label holder's policy and defences, the feature party's trees, the error.
REFUSED: dict[str, tuple[TreeParams, dict[str, Any], dict[str, Any], int, str]] = {
    "a policy without noised sums": (
        BASE,
        {"labels": {"noised_sums": False}},
        {},
        2,
        "write noised_sums = true under .labels. of",
    ),
    "more trees": (replace(BASE, n_estimators=3), {}, {}, 2, "is for 2 trees, and the job has 3 with sums of it"),
    "classes of a label": (BASE, {}, {"id_lmid": IdLmid(xi=0.5)}, 2, "column_privacy and id_lmid do not go together"),
    "too little room": (BASE, {}, {}, 1_000_000, "noise .* a greater epsilon or fewer trees"),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_have_it_is_refused_before_a_sum_is_sent(case: str, tmp_path: Path) -> None:
    """By name, with what to change."""
    params, policy, of_labels, trees, fault = REFUSED[case]
    here, sent = world(60, seed=3), set[str]()
    epsilon = 500.0 if trees < 10 else 1e-6

    own = ColumnPrivacyTable(epsilon=epsilon, delta=1e-6, trees=trees)
    defences = {LABEL_HOLDER: Defences(**of_labels), FEATURE: Defences(column_privacy=own)}
    federation = _federation(tmp_path, here, defences, **{LABEL_HOLDER: {"labels": {"noised_sums": True}, **policy}})

    def keep(sender: str, _: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        sent.add(f"{sender} {name_of(message)}")
        return message

    federation.tamper = keep
    status = await federation.train(_spec(params))
    assert status.state in ("failed", "interrupted")
    assert re.search(fault, status.error), status.error
    assert not ColumnBudget(federation.configs[FEATURE].state, None).charges()
    await federation.close()
    assert f"{FEATURE} candidate_sums" not in sent


def test_its_owner_sums_no_record_twice_at_a_level() -> None:
    """Nodes at other levels, asked for again, at max_depth, that overlap, or are not their parent's are refused."""
    tree: Any = SimpleNamespace(index=0, total=6, rows={1: [0, 1, 2, 3, 4, 5], 2: [0, 1], 3: [2, 3], 4: [0, 2]})
    tree.rows_of = lambda node: np.array(tree.rows[node])
    noise = object.__new__(ColumnNoise)
    noise._params = replace(BASE, max_depth=3)
    noise._spaces, noise._trees = {}, set()
    noise._check(tree, 0, [1])
    for stage, nodes in ((1, [1]), (0, [2]), (2, [4]), (1, [4])):
        with pytest.raises(Malformed, match="column_privacy"):
            noise._check(tree, stage, nodes)
    tree.rows[3] = [1, 2]
    with pytest.raises(Malformed, match="also another"):
        noise._check(tree, 1, [2, 3])
    noise._spaces = {1: np.arange(6)}
    noise._check(tree, 1, [2])
    with pytest.raises(Malformed, match="come once"):
        noise._check(tree, 1, [2])
    tree.rows[3] = [1, 5]
    with pytest.raises(Malformed, match="also another"):  # of an earlier request
        noise._check(tree, 1, [3])
    with pytest.raises(Malformed, match="not all its parent's"):
        noise._check(tree, 2, [4])
    tree.rows[8] = [0]
    noise._spaces[4] = np.array([0])
    with pytest.raises(Malformed, match="at level 3"):
        noise._check(tree, 3, [8])
    noise._trees = {0}  # begun again in the attempt, other gradients under it
    with pytest.raises(Malformed, match="come once in an attempt"):
        noise._check(tree, 0, [1])


async def test_of_noised_sums_audits_read_left_sets_alone(tmp_path: Path) -> None:
    """A label holder's transcript says which sums have noise."""
    here = world(80, (1, 3, 2), seed=4)
    policies = {LABEL_HOLDER: {"labels": {"noised_sums": True}, "people": {"record_sums": True}}}

    federation = Federation(tmp_path, here.tables, defences=_defences((3000.0,)), policies=policies, record="received")
    assert (await federation.train(_spec(BASE))).state == "finished"
    await federation.close()
    states = federation.states
    opened = read_label_holder(transcript(states, LABEL_HOLDER)).opened
    assert opened is not None
    assert opened.noised == {FEATURE: ColumnPrivacy(3000.0, 1e-6, 3)}
    assert {split.party for tree in opened.trees for split in tree.won} == {FEATURE, OTHER}


def test_the_command_shows_what_is_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Attempts, and by table the ε that is spent and left."""
    own = {"column_privacy": WEAK.model_dump()}
    config = write(tmp_path / "shop.toml", {"name": "shop", "state": "state", "insecure": True, "defences": own})
    privacy = ColumnPrivacy(WEAK.epsilon, WEAK.delta, WEAK.trees)
    occasion = Occasion("train", ("bank",), "coordinator", "credit", 1)
    ColumnBudget(tmp_path / "state", None).charge("shop", occasion, privacy)
    assert treetap_here("ledger", "--config", str(config)) == 0
    shown = capsys.readouterr().out
    assert "shop: columns of table train: ε 500 spent, 0 left" in shown


@pytest.mark.parametrize("params", [replace(BASE, max_depth=4, n_estimators=3)])
async def test_a_split_that_leaves_a_side_without_records_is_none(
    params: BoostingParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without floor and handicap noise wins at small nodes; the model is the trainer's all the same, and predicts."""
    monkeypatch.setattr(noised_sums, "FLOOR", -1e9)
    monkeypatch.setattr(noised_sums, "HANDICAP", 0.0)
    here, drawn, defences = world(60, (1, 3, 2), seed=4), DrawnNoise(monkeypatch), _defences((60.0, 60.0))
    undone = []
    divide = GrowingTree.divide

    def noticed(tree: GrowingTree, node: int, *given: Any) -> None:
        divide(tree, node, *given)
        undone.extend([] if node in tree.made else [node])

    monkeypatch.setattr(GrowingTree, "divide", noticed)

    federation = _federation(tmp_path, here, defences)
    finished(await federation.train(_spec(params)))
    finished(await federation.predict(predict_request("interactive", model="job")))
    await federation.close()
    states = federation.states
    of_federation = len(undone)
    assert_drawn_model(states, here, params, defences, drawn)
    assert of_federation == len(undone) - of_federation > 0


def test_sums_beyond_the_room_for_noise_are_refused() -> None:
    """Those that a party offers, and those of the children that it sends; a side may differ by the room."""
    values = np.tile(np.array([[1, 1, 1]], dtype=np.int64), (8, 1))
    criterion = BoostingCriterion(1.0, BASE)
    noise = SumNoise(Fraction(4), (1, 1, 1), 2, 10)
    room = noise.rooms[0]
    tree = GrowingTree(values, criterion, BASE.expansion, subtract=True)
    tree.expect_noise(1, noise)
    most = criterion.ranges(3)[1]
    tree.check_offered(np.array([[[-8 * most[0] - room, -room, -room], [8 * most[0] + room, 8 * most[1] + room, 8]]]))
    for wrong in ([8 * most[0] + room + 1, 0, 0], [0, -room - 1, 0], [0, 0, 8 + room + 1], [0, 0, -room - 1]):
        with pytest.raises(Malformed, match="no records of it can have them"):
            tree.check_offered(np.array([[wrong]]))
    for off, there in ((room, True), (room + 1, False)):
        tree.choices[1] = Choice(1, 1, [0], 1.0, np.array([[4 + off, 4, 4 - off]]), 0)
        if there:
            tree.split(1, 0, np.arange(4))
            continue
        with pytest.raises(Malformed, match="do not have the sums that its owner offered"):
            tree.split(1, 0, np.arange(4))
