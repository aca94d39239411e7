"""Requests lost, answers lost, copies that come late, messages that overtake each other, lines that are cut.

The outcome is the oracle's model, or a named failure after which resuming finds it; never another model, never a hang.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.replay import HERE as SUSPENDED_HERE
from tests.replay import JOB, faultless
from tests.replay import ORACLE as SUSPENDED_ORACLE
from tests.simulator import COORDINATOR, Call, Faults, Federation, Message, Process, finished, run
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, spec, world
from treetap.errors import Unreachable
from treetap.party.config import PartyConfig
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.rpc import GIVE_UP_S
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


async def test_an_asleep_party_is_noticed_by_its_silence(tmp_path: Path) -> None:
    """A party that takes requests but neither answers nor shows signs of life ends the job after the agreed silence."""
    federation = Federation(tmp_path, HERE.tables, silence_s=20.0)
    asleep = federation.node(PARTIES[2])

    async def never(*_: object) -> object:
        await asyncio.get_running_loop().create_future()
        yield

    awake = asleep.step
    asleep.step = never  # type: ignore[method-assign, assignment]
    status = await federation.train(spec(PARAMS, obfuscation="standard"))
    assert (status.state, status.error.split(";")[0]) == (
        "interrupted",
        f"{PARTIES[2]} has been silent for 20 s in prepare",
    )
    assert status.seconds < 30
    asleep.step = awake  # type: ignore[method-assign]
    assert (await federation.resume()).state == "finished"


# ---- A process that is suspended: the process that needs it next stops within the agreed silence, and names it


SUSPENDED_S = 20.0
#: Seconds after the silence within which the job has ended: the coordinator has all parties leave it.
NAMED_S = 5.0


def _freeze_and_thaw(folder: Path, victim: str, number: int, served: bool) -> None:
    async def main() -> None:
        federation = Federation(folder, SUSPENDED_HERE.tables, silence_s=SUSPENDED_S)
        frozen_at: list[float] = []

        def freeze(message: Message) -> None:
            if (message.number, message.served) == (number, served) and not frozen_at:
                frozen_at.append(asyncio.get_running_loop().time())
                federation.freeze(victim)

        federation.hook = freeze
        status = await federation.train(JOB)
        took = asyncio.get_running_loop().time() - frozen_at[0]
        assert status.state == "interrupted"
        assert victim in status.error
        assert took <= SUSPENDED_S + NAMED_S
        federation.freeze(victim, thaw=True)
        if number % 3:
            return
        for _ in range(3):  # what was under way at the thaw may cost an attempt
            if status.state != "finished":
                status = await federation.resume()
        assert status.state == "finished", status.error
        assert_oracles_model(federation.states, SUSPENDED_ORACLE)

    run(main())


def _first_of_each_kind(folder: Path) -> list[tuple[str, Message]]:
    """The first message of each kind between two processes, and a party at either end of it."""
    found: dict[str, Message] = {}
    for message in faultless(folder):
        found.setdefault(message.word, message)
    return [
        (victim, message)
        for message in found.values()
        for victim in (message.sender, message.to)
        if victim != COORDINATOR and message.word != "leave"
    ]


@pytest.mark.second_tier
def test_a_suspended_party_is_named_within_the_silence(tmp_path: Path) -> None:
    """At every kind of message; in turn before it arrives, and when it has been served but not answered."""
    cases = _first_of_each_kind(tmp_path / "faultless")
    assert {victim for victim, _ in cases} == set(PARTIES[:2])
    for place, (victim, message) in enumerate(cases):
        served = place % 2 == 1 and message.word != "account"  # a job whose last account is served is over
        try:
            _freeze_and_thaw(tmp_path / str(place), victim, message.number, served=served)
        except BaseException as failure:
            failure.add_note(f"{victim} is frozen at {message}")
            raise


# ---- Parties that are far from each other: who has new connections to several peers makes them at once


FAR = world(60, (2, 2, 1), seed=5)
SHORTEST_S = 5.0
#: Seconds of a round trip, and round trips of a message over a used and a new connection: TCP and TLS to look at the
#: server's certificate, TCP, TLS and settings of gRPC, the call.
ROUND_TRIP_S, USED, NEW = 0.6, 1, 6


class _Far(Federation):
    """Every message between parties takes as long as over such lines; the coordinator is near, and patient."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self._used_at: dict[tuple[str, str], float] = {}
        super().__init__(folder, FAR.tables, silence_s=60.0, **more)

    def _config(self, *about: Any) -> PartyConfig:
        return super()._config(*about).model_copy(update={"silence_s": SHORTEST_S})

    async def carry(self, sender: Process, to: str, word: str, call: Call[Any]) -> Any:
        if sender.name not in PARTIES or to not in PARTIES:
            return await super().carry(sender, to, word, call)
        clock, line = asyncio.get_running_loop().time, (sender.name, to)
        idle = clock() - self._used_at.get(line, -GIVE_UP_S) >= GIVE_UP_S
        self._used_at[line] = clock()
        await asyncio.sleep(ROUND_TRIP_S * ((NEW if idle else USED) - 0.5))
        answer = await super().carry(sender, to, word, call)
        await asyncio.sleep(ROUND_TRIP_S / 2)
        self._used_at[line] = clock()
        return answer


@pytest.mark.second_tier
@pytest.mark.parametrize("params", [BoostingParams(2, max_depth=2, max_bin=4), ForestParams(2, max_depth=2, max_bin=4)])
async def test_a_round_trip_of_600_ms_trains_and_predicts(
    params: BoostingParams | ForestParams, tmp_path: Path
) -> None:
    """With the shortest silence, though every connection is new: no party waits for what goes to another one first."""
    with ciphers(KeysMade(), transparent=True):  # arithmetic takes no virtual time
        federation = _Far(tmp_path)
        finished(await federation.train(spec(params, alignment="psi")))
        for form in ("batched", "per-tree"):
            finished(await federation.predict(predict_request(model="job", job=form, form=form)))
