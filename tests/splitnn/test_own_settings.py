"""Settings of a party alone, policies, and the weights.

- Settings of a party's own file: an amplified optimiser, and defences that change between two attempts at a job.
- Policies that a split network does not fit: refused when the job is opened, by the rule's name.
- A federation's network is that of one graph, bit by bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.blindness.comparison import PLAIN, shown
from tests.blindness.observed import Observed, observed
from tests.simulator import Federation, Message, run
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.splitnn.networks import assert_same_bits, federation, oracle, published, trained
from tests.worlds import PARTIES, World, manifest, world
from tests.worlds import spec as spec_of_trees
from treetap.neural.centralised import CentralNetwork
from treetap.neural.params import SplitnnParams
from treetap.party.defences.settings import Defences, Gradient
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.second_tier

HOLDER, FEATURE, OTHER = PARTIES
HERE = world(49, (2, 2, 1), seed=3)
LONGER = replace(PARAMS, epochs=3)
#: Defences of the first attempt, and of the second.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a weight added": ({}, {"dimip": {FEATURE: 0.3}}),
    "another party's": ({"dimip": {FEATURE: 0.3}}, {"dimip": {OTHER: 0.1}}),
    "a change of gradients": ({}, {"gradient": {"kind": "levels", "levels": 4}}),
}
NUMBERS = world(49, (2, 2, 1), seed=3, objective="reg:squarederror")
REGRESSION = replace(PARAMS, objective="reg:squarederror")
TWO = world(49, (2, 2), seed=4)
DROPOUT = {"feature-b": 0.4}
SETTINGS: dict[str, tuple[SplitnnParams, dict[str, Any]]] = {
    "plain": (PARAMS, {}),
    "adam, bfloat16": (replace(PARAMS, optimizer="adam", wire_type="bfloat16", learning_rate=0.01), {}),
    "dropout, cosine": (replace(PARAMS, party_dropout=DROPOUT, schedule="cosine", epochs=3), {}),
    "dimip": (PARAMS, {"dimip": {"feature-b": 0.3}}),
    "noise": (replace(PARAMS, party_dropout=DROPOUT), {"gradient": {"kind": "noise", "scale": 0.01}}),
    "early stopping": (replace(PARAMS, early_stopping_rounds=1, validation_share=0.2, epochs=6, learning_rate=1.0), {}),
}


def _amplifying(federation: Federation) -> None:
    """Start the feature party anew, with the line in its file."""
    config = federation.configs[FEATURE]
    federation.configs[FEATURE] = config.model_copy(update={"optimizer": "amplified"})
    federation.restart(FEATURE)


def test_an_amplified_optimiser_shows_in_the_partys_own_log_and_model_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The network is that of one graph with the same optimiser; messages are as many and as long as without it."""

    async def act(running: Observed) -> None:
        if running.folder.name == "amplified":
            _amplifying(running)
        assert (await running.train(spec(PARAMS))).state == "finished"

    plain, amplified = (observed(tmp_path / name, HERE.tables, act, policies=EMITS) for name in ("plain", "amplified"))
    network, _ = oracle(tmp_path / "plain", HERE, PARAMS)
    assert_same_bits(published(tmp_path / "plain", HERE), network.weights())
    parties = [replace(each, amplified=each.name == FEATURE) for each in network.parties]
    expected = CentralNetwork(PARAMS, parties, HERE.y, HERE.classes).train()
    assert_same_bits(published(tmp_path / "amplified", HERE), expected.weights())
    one, other = network.weights()[FEATURE], expected.weights()[FEATURE]
    assert all(one[name].tobytes() != other[name].tobytes() for name in one)
    for name, told in (("plain", False), ("amplified", True)):
        assert manifest(tmp_path / name / FEATURE / "state")["amplified"] is told
    assert len([line for line in caplog.messages if 'optimizer = "amplified"' in line]) == 1
    first, second = (
        [(sender, to, step, shown(message, PLAIN - {"METRIC"})) for sender, to, step, message in crossed]
        for crossed, _ in (plain, amplified)
    )
    assert first == second


@pytest.mark.filterwarnings("ignore:a 512-bit")
async def test_trees_take_no_notice_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same model with the line and without."""
    params = BoostingParams(n_estimators=1, max_depth=2, max_bin=4)

    running = Federation(tmp_path, HERE.tables)
    _amplifying(running)
    assert (await running.train(spec_of_trees(params, key_bits=512))).state == "finished"
    await running.close()
    assert "amplified" not in caplog.text
    assert "amplified" not in manifest(tmp_path / FEATURE / "state")


@pytest.mark.parametrize("case", CHANGES)
async def test_a_job_goes_on_with_the_defences_of_its_time(case: str, tmp_path: Path) -> None:
    """Epochs after a restart have the new settings: neither the old result nor that of the new ones from the start."""
    before, after = (Defences(**each) for each in CHANGES[case])

    running = federation(tmp_path / "changed", HERE, defences={HOLDER: before})

    def change(message: Message) -> None:
        if message.word == "store_epoch" and message.to == HOLDER and message.served:
            running.hook = None
            running.kill(HOLDER)
            config = running.configs[HOLDER]
            running.configs[HOLDER] = config.model_copy(update={"defences": after})
            running.start(HOLDER)

    running.hook = change
    assert (await running.train(spec(LONGER))).state == "interrupted"
    status = await running.resume()
    assert (status.state, running.hook) == ("finished", None), status.error
    for number, own in enumerate((before, after)):
        folder = tmp_path / str(number)
        assert (await trained(folder, HERE, LONGER, defences={HOLDER: own})).state == "finished"
        one, other = (published(each, HERE)[FEATURE] for each in (folder, tmp_path / "changed"))
        assert any(one[name].tobytes() != other[name].tobytes() for name in one)


async def test_regressions_have_changed_gradients(tmp_path: Path) -> None:
    """A change of gradients does not ask for classes."""
    own = {HOLDER: Defences(gradient=Gradient(kind="compression", share=0.5))}
    assert (await _ended(tmp_path, NUMBERS, REGRESSION, defences=own)).state == "finished"


async def test_a_job_with_private_draws_needs_no_switch(tmp_path: Path) -> None:
    """The default of a policy suffices."""
    policies = {name: {"emits": lines["emits"]} for name, lines in EMITS.items()}
    assert (await _ended(tmp_path, HERE, replace(PARAMS, reproducible=False), policies=policies)).state == "finished"


async def _ended(folder: Path, here: World, params: SplitnnParams, **options: Any) -> jobs_pb2.JobStatus:
    """The status of a job that has ended."""

    running = federation(folder, here, **options)
    status = await running.train(spec(params))
    await running.close()
    if status.state == "failed":
        assert {message.word for message in running.log} <= {"prepare", "leave"}
    return status


@pytest.mark.parametrize("case", SETTINGS)
def test_the_federations_weights_are_those_of_one_graph(case: str, tmp_path: Path) -> None:
    """All weights of all parties, whatever optimiser, type, dropout or defence."""
    params, defences = SETTINGS[case]
    own = Defences(**defences)
    status = run(trained(tmp_path, HERE, params, defences={"label-holder": own}))
    assert status.state == "finished", status.error
    network, _ = oracle(tmp_path, HERE, params, own)
    assert_same_bits(published(tmp_path, HERE), network.weights())
    assert status.used_trees == (
        status.stored_trees if params.early_stopping_rounds is None else network.stopping.best_round + 1
    )
