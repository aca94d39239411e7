"""Requests lost, answers lost, copies that come late, messages that overtake each other, lines that are cut.

The outcome is the oracle's model, or a named failure after which resuming finds it; never another model, never a hang.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.simulator import COORDINATOR, Faults, Federation, Message, run
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, spec, world
from treetap.errors import Unreachable
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=3, min_child_weight=0.1, subsample=0.8)
HERE = world(16, (1, 1, 1), seed=25, fresh=6)
ORACLE = HERE.oracle(PARAMS)
NETWORKS = {
    "lossy": {"drop": 0.15, "lose_reply": 0.15},
    "overtaking": {"delay_s": 3.0},
    "doubling": {"double": 0.5, "late_s": 2.0},
    "late echoes": {"double": 0.3, "late_s": 40.0, "drop": 0.1},
    "everything": {"drop": 0.1, "lose_reply": 0.1, "double": 0.2, "delay_s": 1.5, "late_s": 10.0},
    "hardly there": {"drop": 0.45, "lose_reply": 0.2, "delay_s": 2.0},
}
LINES = [
    *((COORDINATOR, party) for party in PARTIES),
    *((PARTIES[0], party) for party in PARTIES[1:]),
    *((party, PARTIES[0]) for party in PARTIES[1:]),
]
ATTEMPTS = 40
#: One seed in this many is tried with real ciphertexts.
REAL = 4


async def _until_finished(federation: Federation, status: jobs_pb2.JobStatus) -> tuple[int, jobs_pb2.JobStatus]:
    """Resume as an operator would; every stop on the way must be one that can be resumed."""
    stops = 0
    while status.state != "finished":
        assert status.state == "interrupted", status.error
        assert status.error
        stops += 1
        assert stops < ATTEMPTS
        status = await federation.resume(status.job)
    return stops, status


def _train_and_predict(folder: Path, faults: Faults) -> int:
    async def main() -> int:
        federation = Federation(folder, HERE.tables, faults=faults)
        stops, _ = await _until_finished(federation, await federation.train(spec(PARAMS, obfuscation="standard")))
        assert_oracles_model(federation.states, ORACLE)
        request = predict_request(model="job", block=4)
        more, predicted = await _until_finished(federation, await federation.predict(request))
        assert_oracles_scores(predicted.predictions, ORACLE, HERE.newcomers, 16)
        await federation.close()
        return stops + more

    with ciphers(KeysMade(), transparent=faults.seed % REAL != 0):
        return run(main())


@pytest.mark.second_tier
@pytest.mark.parametrize("network", NETWORKS)
def test_a_bad_network_costs_time_but_not_the_model(network: str, tmp_path: Path) -> None:
    """Eight seeds of each kind: training and prediction come out as the oracle has them."""
    for seed in range(8):
        try:
            _train_and_predict(tmp_path / str(seed), Faults(seed=seed, **NETWORKS[network]))
        except BaseException as failure:
            failure.add_note(f"network {network!r}, seed {seed}")
            raise


@pytest.mark.second_tier
def test_repeats_suffice_for_short_faults_and_resuming_for_long_ones(tmp_path: Path) -> None:
    """The worlds above show both: a lossy network that stops nothing, and one that stops the job again and again."""
    assert _train_and_predict(tmp_path / "a", Faults(seed=1, **NETWORKS["lossy"])) == 0
    assert _train_and_predict(tmp_path / "b", Faults(seed=1, **NETWORKS["doubling"])) == 0
    resumed = [
        _train_and_predict(tmp_path / f"c{seed}", Faults(seed=seed, **NETWORKS["hardly there"])) for seed in (1, 2, 3)
    ]
    assert sum(resumed) > 3


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("sender", "to"), LINES)
async def test_a_cut_line_is_named_and_heals(
    sender: str, to: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With one direction of one line cut the job stops within 30 s and names both ends; healed, it goes on."""

    def cut(message: Message) -> None:
        if (message.sender, message.to) == (sender, to):
            raise Unreachable(f"no route to {to}")

    federation = Federation(tmp_path, HERE.tables)
    federation.hook = cut
    status = await federation.train(spec(PARAMS, obfuscation="standard"))
    assert status.state == "interrupted"
    if sender == COORDINATOR:
        assert f"no route to {to}" in status.error
    else:  # a coordinator does not hear what is at an address in the network of a party
        assert f"{sender} cannot reach {to}; details are in the log of {sender};" in status.error
        assert f"cannot reach {to}: no route to {to}" in caplog.text
    assert status.seconds < 30
    federation.hook = None
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)
