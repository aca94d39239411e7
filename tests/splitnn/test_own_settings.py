"""Settings of a party's own file: an amplified optimiser, and defences that change between two attempts at a job."""

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
from tests.worlds import PARTIES, manifest, world
from tests.worlds import spec as spec_of_trees
from treetap.neural.centralised import CentralNetwork
from treetap.party.defences.settings import Defences
from treetap.trees.params import BoostingParams

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


def _amplifying(federation: Federation) -> None:
    """Start the feature party anew, with the line in its file."""
    config = federation.configs[FEATURE]
    federation.configs[FEATURE] = config.model_copy(update={"optimizer": "amplified"})
    federation.kill(FEATURE)
    federation.start(FEATURE)


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
def test_a_job_goes_on_with_the_defences_of_its_time(case: str, tmp_path: Path) -> None:
    """Epochs after a restart have the new settings: neither the old result nor that of the new ones from the start."""
    before, after = (Defences(**each) for each in CHANGES[case])

    async def main() -> None:
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

    run(main())
    for number, own in enumerate((before, after)):
        folder = tmp_path / str(number)
        assert run(trained(folder, HERE, LONGER, defences={HOLDER: own})).state == "finished"
        one, other = (published(each, HERE)[FEATURE] for each in (folder, tmp_path / "changed"))
        assert any(one[name].tobytes() != other[name].tobytes() for name in one)
