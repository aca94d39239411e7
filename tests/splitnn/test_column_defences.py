"""Defences of a feature party's columns: the network is that of one graph; jobs that cannot have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.simulator import Message, run
from tests.splitnn.jobs import PARAMS
from tests.splitnn.networks import assert_same_bits, federation, oracle, published, trained
from tests.worlds import PARTIES, manifest, spec, world
from treetap.errors import Refused
from treetap.neural import own_step
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams
from treetap.party.defences.checks import check_own
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.tables.config import TableConfig
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.second_tier

HOLDER, FEATURE, OTHER = PARTIES
HERE = world(49, (2, 2, 1), seed=3)
TABLE = TableConfig(path=Path("t.csv"), id="id", columns=["a"])
BOTH = {
    "record": ({"sensitivity": 0.2}, {}),
    "batch": ({"sensitivity": 0.2, "sensitivity_norm": "batch"}, {"sensitivity": 0.01}),
    "noise": ({"dp_sgd": {"clip": 0.5, "noise": 0.3}}, {"sensitivity": 0.3, "sensitivity_norm": "batch"}),
}
CONVOLUTIONS = replace(PARAMS, bottom={**PARAMS.bottom, FEATURE: Bottom("cnn", channels=(3,), norm="batch")})


def _own(case: str) -> dict[str, Defences]:
    first, second = BOTH[case]
    return {FEATURE: Defences.model_validate(first), OTHER: Defences.model_validate(second)}


@pytest.mark.parametrize(("case", "exact"), [("record", 20_000), ("batch", 20_000), ("batch", 0), ("noise", 0)])
def test_the_federations_weights_are_those_of_one_graph(
    case: str, exact: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both norms, all rows or a projection, and noise; a party that sits a batch out does not step by its defence."""
    monkeypatch.setattr(own_step, "EXACT", exact)
    params, own = replace(PARAMS, party_dropout={FEATURE: 0.4}, optimizer="adam"), _own(case)
    status = run(trained(tmp_path, HERE, params, defences=own))
    assert status.state == "finished", status.error
    network, _ = oracle(tmp_path, HERE, params, of_columns=own)
    assert_same_bits(published(tmp_path, HERE), network.weights())
    plain, _ = oracle(tmp_path, HERE, params)
    for party in (FEATURE, OTHER) if case != "record" else (FEATURE,):
        before = plain.weights()[party]
        assert any(before[name].tobytes() != each.tobytes() for name, each in network.weights()[party].items())


def test_nothing_changes_without_a_defence(tmp_path: Path) -> None:
    """ε 0 leaves every bit as it was, and the manifest as it was."""
    own = {FEATURE: Defences(sensitivity=0.0, sensitivity_norm="batch", projections=3)}
    assert run(trained(tmp_path, HERE, PARAMS, defences=own)).state == "finished"
    network, _ = oracle(tmp_path, HERE, PARAMS)
    assert_same_bits(published(tmp_path, HERE), network.weights())
    found = manifest(tmp_path / FEATURE / "state")
    assert not {"sensitivity", "sensitivity_norm", "dp_sgd"} & set(found)


async def test_a_resumed_training_has_the_same_draws(tmp_path: Path) -> None:
    """Stopped in its second epoch and trained on: the weights are those of a training without a stop."""
    own = _own("noise")

    running = federation(tmp_path, HERE, defences=own)
    left = 5 + 2

    def hook(message: Message) -> None:
        nonlocal left
        if (message.word, message.to, message.served) == ("embedding_gradients", FEATURE, True):
            left -= 1
            if left == 0:
                running.hook = None
                running.kill(FEATURE)

    running.hook = hook
    assert (await running.train(spec(PARAMS))).state == "interrupted"
    running.start(FEATURE)
    assert (await running.resume()).state == "finished"
    network, _ = oracle(tmp_path, HERE, PARAMS, of_columns=own)
    assert_same_bits(published(tmp_path, HERE), network.weights())


def test_the_partys_log_and_manifest_say_what_the_noise_covers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The accountant's ε, and that it does not cover embeddings; of SensFL the norm."""
    own = _own("noise")
    assert run(trained(tmp_path, HERE, PARAMS, defences=own)).state == "finished"
    (line,) = [line for line in caplog.messages if "DP-SGD" in line]
    assert "does not cover embeddings" in line
    found = manifest(tmp_path / FEATURE / "state")["dp_sgd"]
    assert (found["clip"], found["noise"], found["delta"]) == (0.5, 0.3, 1e-5)
    assert f"ε = {found['epsilon']:.4g} at" in line
    other = manifest(tmp_path / OTHER / "state")
    assert (other["sensitivity"], other["sensitivity_norm"], other["projections"]) == (0.3, "batch", 1)


def test_other_defences_are_accepted() -> None:
    """SensFL with batch normalisation, and noise with group normalisation, or of a perceptron, which has none."""
    noise = Defences.model_validate({"dp_sgd": {"clip": 1.0, "noise": 0.1}})
    group = replace(PARAMS, bottom={DEFAULT: Bottom("cnn", channels=(3,))})
    perceptron = replace(PARAMS, bottom={DEFAULT: Bottom(norm="batch")})
    cases: list[tuple[SplitnnParams, Defences]] = [
        (CONVOLUTIONS, Defences(sensitivity=0.1)),
        (group, noise),
        (perceptron, noise),
    ]
    for params, own in cases:
        check_own(FEATURE, own, Policy(), TABLE, None, spec(params))


def test_a_policy_may_ask_for_a_least_sensitivity() -> None:
    """Of a feature party of a split network; trees send no embedding."""
    policy = Policy(networks={"min_sensitivity": 0.1})
    for own in (Defences(), Defences(sensitivity=0.05)):
        with pytest.raises(
            Refused, match=r"min_sensitivity = 0.1; write at least that under \[defences\] of feature-b"
        ):
            check_own(FEATURE, own, policy, TABLE, None, spec(PARAMS))
    check_own(FEATURE, Defences(sensitivity=0.1), policy, TABLE, None, spec(PARAMS))
    check_own(FEATURE, Defences(), policy, TABLE, None, spec(BoostingParams()))
    check_own(HOLDER, Defences(), policy, TABLE, None, spec(PARAMS))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sensitivity": -0.1}, "greater than or equal to 0"),
        ({"sensitivity": float("nan")}, "finite"),
        ({"sensitivity": 0.1, "sensitivity_norm": "spectral"}, "'record' or 'batch'"),
        ({"sensitivity": 0.1, "projections": 0}, "greater than or equal to 1"),
        ({"sensitivity_norm": "batch"}, "sensitivity_norm: of sensitivity, which is not given"),
        ({"dp_sgd": {"clip": 0.0, "noise": 0.1}}, "greater than or equal to 0.000001"),
        ({"dp_sgd": {"clip": 1.0, "noise": 0.0}}, "greater than or equal to 0.000001"),
        ({"dp_sgd": {"noise": 0.1}}, "clip"),
        ({"sensitivity": 0.1, "dp_sgd": {"clip": 1.0, "noise": 0.1}}, "do not go together"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, Any], says: str) -> None:
    """With the range that a number must lie in."""
    with pytest.raises(ValueError, match=r"(?s).*") as fault:
        Defences.model_validate(given)
    assert says in str(fault.value)
