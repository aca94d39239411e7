"""Jobs of processes that call each other at one address, a relay's; the relay is killed and comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.commands.command import treetap
from tests.relay.hostile import AtRandom
from tests.relay.processes import RelayedFederation
from tests.system.federations import ended, has_stored, settings, states, until
from tests.worlds import assert_oracles_model, assert_oracles_scores, spec, world
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("relay")]

HERE = world(60, (2, 1, 1), seed=8, missing=0.1)
FEW, MANY = (BoostingParams(n_estimators=trees, max_depth=2, max_bin=8) for trees in (2, 12))


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedFederation]:
    """Three parties, a coordinator and an operator at one relay."""
    folder = tmp_path_factory.mktemp("relayed")
    parties = {name: {**own, "silence_s": 5.0} for name, own in settings(folder, {"train": HERE}).items()}
    with RelayedFederation(folder, parties, limits={"metrics": "127.0.0.1:0"}, silence_s=5.0) as running:
        running.await_registered(4)
        yield running


def test_a_job_through_a_relay(relayed: RelayedFederation) -> None:
    """The oracle's model, and every process was called at the relay."""
    operator = relayed.federation.operator
    operator.submit(jobs_pb2.SubmitRequest(job="plain", spec=spec(FEW)))
    status = operator.watch("plain", lambda _: None)
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_model(states(relayed.federation, HERE), HERE.oracle(FEW), "plain")
    log = relayed.log.read_text()
    for name in ("coordinator 'coordinator'", "party 'label-holder'", "party 'feature-b'", "party 'feature-c'"):
        assert f"{name}: a connection of" in log


@pytest.mark.parametrize("protocol", ["interactive", "eini"])
def test_predictions_through_a_relay(protocol: str, relayed: RelayedFederation) -> None:
    """By both ways that ask the parties differently, the scores are the oracle's."""
    operator = relayed.federation.operator
    job = operator.predict(predict_request(protocol, job=f"new-{protocol}", model="plain", table="train-new"))
    status = operator.watch(job, lambda _: None)
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_scores(status.predictions, HERE.oracle(FEW), HERE.newcomers, len(HERE.y), within=1e-6)


def test_doctor_looks_through_the_relay(relayed: RelayedFederation) -> None:
    """At the coordinator: each party answers there; at a party: the relay, and itself through it."""
    done = treetap("doctor", "--config", relayed.folder / "coordinator" / "config.toml")
    assert done.status == 0, done.out
    for name in ("label-holder", "feature-b", "feature-c"):
        assert f"{name} at {relayed.address}: answers and serves" in done.out
    assert "have one address" not in done.out
    done = treetap("doctor", "--config", relayed.folder / "feature-b" / "config.toml")
    assert f"relay = {relayed.address}: feature-b is registered and reached there" in done.out


def test_the_relays_own_file(relayed: RelayedFederation) -> None:
    """Health and doctor ask the relay at its port; without it they say so, with their statuses."""
    file = relayed.folder / "relay.toml"
    done = treetap("health", "--config", file)
    assert (done.status, done.out) == (0, f"relay serves at {relayed.address}\n")
    done = treetap("doctor", "--config", file)
    assert (done.status, f"listen = {relayed.address}: relay runs" in done.out) == (0, True)


def test_metrics_have_names_and_sizes(relayed: RelayedFederation) -> None:
    """Prometheus reads who is registered, how many connections there are and how many bytes went through."""
    with urlopen(f"http://{relayed.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for name, role in (("feature-b", "party"), ("coordinator", "coordinator")):
        assert f'treetap_relay_registered{{peer="{name}",role="{role}"}} 1.0' in text
    carried = re.search(r'treetap_relay_carried_bytes{peer="feature-b",role="party"} (\S+)', text)
    assert carried is not None
    assert float(carried[1]) > 10_000
    assert 'treetap_relay_turned_away{reason="unknown name"}' in text


def test_a_relay_that_is_killed_and_comes_back(relayed: RelayedFederation) -> None:
    """While it is away the job is interrupted with an error that names it; resumed, it is the oracle's model."""
    federation, direct = relayed.federation, relayed.direct_operator
    direct.submit(jobs_pb2.SubmitRequest(job="killed", spec=spec(MANY)))
    until(lambda: has_stored(federation, "label-holder", "killed"), "a tree")
    relayed.kill()
    status = direct.watch("killed", lambda _: None)
    assert status.state == "interrupted"
    assert relayed.address in status.error
    assert "connection refused" in status.error
    relayed.start()
    relayed.await_registered(4)
    federation.operator.resume("killed")
    status = ended(federation, "killed")
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_model(states(federation, HERE), HERE.oracle(MANY), "killed")


def test_a_relay_that_is_away_for_a_moment(relayed: RelayedFederation) -> None:
    """The job outlasts it: calls are repeated, and processes register again by themselves."""
    federation, direct = relayed.federation, relayed.direct_operator
    direct.submit(jobs_pb2.SubmitRequest(job="moment", spec=spec(MANY)))
    until(lambda: has_stored(federation, "label-holder", "moment"), "a tree")
    relayed.kill()
    relayed.start()
    status = direct.watch("moment", lambda _: None)
    if status.state == "interrupted":  # a busy machine: the processes registered too late
        direct.resume("moment")
        status = direct.watch("moment", lambda _: None)
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_model(states(federation, HERE), HERE.oracle(MANY), "moment")


@pytest.mark.campaign
def test_a_slow_relay_behind_a_hostile_one(tmp_path: Path) -> None:
    """Connections are cut, and their records altered and repeated, at random: the model is the oracle's, or none."""
    with ExitStack() as stack:
        ways: list[AtRandom] = []

        def reached(address: str) -> str:
            if not ways:
                ways.append(stack.enter_context(AtRandom(address, seed=5, one_in=60)))
            return ways[0].at

        parties = settings(tmp_path, {"train": HERE})
        limits = {"bytes_s": 400_000}
        running = stack.enter_context(RelayedFederation(tmp_path, parties, reached, limits))
        running.await_registered(4)
        running.direct_operator.submit(jobs_pb2.SubmitRequest(job="meddled", spec=spec(MANY)))
        for _ in range(20):
            status = running.direct_operator.watch("meddled", lambda _: None)
            if status.state != "interrupted":
                break
            running.direct_operator.resume("meddled")
        print(status.state, status.error)
        assert (status.state, status.error) == ("finished", "")
        assert ways[0].meddled > 5
        assert_oracles_model(states(running.federation, HERE), HERE.oracle(MANY), "meddled")
