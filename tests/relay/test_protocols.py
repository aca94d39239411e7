"""Federations behind a relay: every protocol, and what disturbs them.

- Jobs of processes that call each other at one address, a relay's; the relay is killed and comes back.
- Jobs of each protocol with messages of its own, by processes that call each other at a relay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest

from tests.certificates import dns_of
from tests.commands.command import treetap
from tests.pivodl.jobs import SMALL, SPREAD
from tests.relay.processes import RelayedFederation
from tests.system.federations import ended, has_stored, settings, states, until, write_operator_file
from tests.trainings import oracle, policies
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, spec, world
from treetap.commands.certs.authority import issue
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Role
from treetap.wire.v2 import jobs_pb2, serving_pb2, serving_pb2_grpc, setup_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("relay")]

LARGER = world(60, (2, 1, 1), seed=8, missing=0.1)
FEW, MANY = (BoostingParams(n_estimators=trees, max_depth=2, max_bin=8) for trees in (2, 12))
HERE = world(30, (1, 1, 1), seed=31, fresh=6)
BOOSTED = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
DIVIDED = spec(SMALL, table="spread")
#: Seconds for a hello, which each job here outlasts.
HELLO_S = 0.5


@pytest.fixture(scope="module")
def relayed_larger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedFederation]:
    """Three parties, a coordinator and an operator at one relay."""
    folder = tmp_path_factory.mktemp("relayed")
    parties = {name: {**own, "silence_s": 5.0} for name, own in settings(folder, {"train": LARGER}).items()}
    with RelayedFederation(folder, parties, limits={"metrics": "127.0.0.1:0"}, silence_s=5.0) as running:
        running.await_registered(4)
        yield running


def test_a_job_through_a_relay(relayed_larger: RelayedFederation) -> None:
    """The oracle's model, and every process was called at the relay."""
    operator = relayed_larger.federation.operator
    operator.submit(jobs_pb2.SubmitRequest(job="plain", spec=spec(FEW)))
    status = operator.watch("plain", lambda _: None)
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_model(states(relayed_larger.federation, LARGER), LARGER.oracle(FEW), "plain")
    log = relayed_larger.log.read_text()
    for name in ("coordinator 'coordinator'", "party 'label-holder'", "party 'feature-b'", "party 'feature-c'"):
        assert f"{name}: a connection of" in log


@pytest.mark.parametrize("protocol", ["interactive", "eini"])
def test_predictions_through_a_relay(protocol: str, relayed_larger: RelayedFederation) -> None:
    """By both ways that ask the parties differently, the scores are the oracle's."""
    operator = relayed_larger.federation.operator
    job = operator.predict(predict_request(protocol, job=f"new-{protocol}", model="plain", table="train-new"))
    status = operator.watch(job, lambda _: None)
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_scores(status.predictions, LARGER.oracle(FEW), LARGER.newcomers, len(LARGER.y), within=1e-6)


def test_doctor_looks_through_the_relay(relayed_larger: RelayedFederation) -> None:
    """At the coordinator: each party answers there; at a party: the relay, and itself through it."""
    done = treetap("doctor", "--config", relayed_larger.folder / "coordinator" / "config.toml")
    assert done.status == 0, done.out
    for name in ("label-holder", "feature-b", "feature-c"):
        assert f"{name} at {relayed_larger.address}: answers and serves" in done.out
    assert "have one address" not in done.out
    done = treetap("doctor", "--config", relayed_larger.folder / "feature-b" / "config.toml")
    assert f"relay = {relayed_larger.address}: feature-b is registered and reached there" in done.out


def test_the_relays_own_file(relayed_larger: RelayedFederation) -> None:
    """Health and doctor ask the relay at its port; without it they say so, with their statuses."""
    file = relayed_larger.folder / "relay.toml"
    done = treetap("health", "--config", file)
    assert (done.status, done.out) == (0, f"relay serves at {relayed_larger.address}\n")
    done = treetap("doctor", "--config", file)
    assert (done.status, f"listen = {relayed_larger.address}: relay runs" in done.out) == (0, True)


def test_metrics_have_names_and_sizes(relayed_larger: RelayedFederation) -> None:
    """Prometheus reads who is registered, how many connections there are and how many bytes went through."""
    with urlopen(f"http://{relayed_larger.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for name, role in (("feature-b", "party"), ("coordinator", "coordinator")):
        assert f'treetap_relay_registered{{peer="{name}",role="{role}"}} 1.0' in text
    carried = re.search(r'treetap_relay_carried_bytes{peer="feature-b",role="party"} (\S+)', text)
    assert carried is not None
    assert float(carried[1]) > 10_000
    assert 'treetap_relay_turned_away{reason="unknown name"}' in text


def test_a_relay_that_is_killed_and_comes_back(relayed_larger: RelayedFederation) -> None:
    """While it is away the job is interrupted with an error that names it; resumed, it is the oracle's model."""
    federation, direct = relayed_larger.federation, relayed_larger.direct_operator
    direct.submit(jobs_pb2.SubmitRequest(job="killed", spec=spec(MANY)))
    until(lambda: has_stored(federation, "label-holder", "killed"), "a tree")
    relayed_larger.kill()
    status = direct.watch("killed", lambda _: None)
    assert status.state == "interrupted"
    assert relayed_larger.address in status.error
    assert "connection refused" in status.error
    relayed_larger.start()
    relayed_larger.await_registered(4)
    federation.operator.resume("killed")
    status = ended(federation, "killed")
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_model(states(federation, LARGER), LARGER.oracle(MANY), "killed")


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedFederation]:
    """Three parties, of which the first serves models; connections outlast the relay's short deadlines."""
    folder = tmp_path_factory.mktemp("protocols")
    parties = settings(folder, {"train": HERE, "spread": SPREAD})
    parties = {
        name: {**own, "policy": {"keys": {"min_key_bits": 1024}, **policies(DIVIDED)[name]}}
        for name, own in parties.items()
    }
    parties[PARTIES[0]] |= {"serve": {"clients": ["app"], "listen": "127.0.0.1:0"}}
    with RelayedFederation(folder, parties, limits={"hello_s": HELLO_S, "metrics": "127.0.0.1:0"}) as running:
        issue(folder / "certs", "app", Role.CLIENT, days=2)
        running.await_registered(4)
        yield running


def _trained(relayed: RelayedFederation, job: str, wanted: setup_pb2.JobSpec) -> None:
    operator = relayed.federation.operator
    status = operator.watch(operator.submit(jobs_pb2.SubmitRequest(job=job, spec=wanted)), lambda _: None)
    assert (status.state, status.error) == ("finished", "")


def test_pivodl(relayed: RelayedFederation) -> None:
    """Whose parties all call each other: the oracle's model."""
    _trained(relayed, "pivodl", DIVIDED)
    assert_oracles_model(states(relayed.federation, SPREAD), oracle(SPREAD, SMALL), "pivodl")


def test_a_served_model(relayed: RelayedFederation) -> None:
    """A client asks the label holder directly, which asks the others through the relay."""
    _trained(relayed, "served", spec(BOOSTED))
    write_operator_file(relayed.federation)
    command = ("serve", "served", "--table", "train-new", "--json", "--detach")
    done = treetap(*command, folder=relayed.folder)
    assert done.status == 0, done
    told, certs = json.loads(done.out), relayed.folder / "certs"
    files = [(certs / name).read_bytes() for name in ("ca.crt", "app.key", "app.crt")]
    named = (("grpc.ssl_target_name_override", dns_of(PARTIES[0])),)
    ids = HERE.tables[PARTIES[0]][1]["predict"].column("id").to_pylist()[:2]
    with grpc.secure_channel(told["grpc"], grpc.ssl_channel_credentials(*files), named) as channel:
        stub = serving_pb2_grpc.ServingStub(channel)
        answer = stub.Predict(serving_pb2.PredictRecords(ids=ids), timeout=20)
    assert [row.id for row in answer.predictions] == ids
    assert treetap("cancel", told["job"], folder=relayed.folder).status == 0


def test_no_connection_was_cut(relayed: RelayedFederation) -> None:
    """A job's connections outlast the deadlines of their beginning: of those that were joined none was turned away."""
    log = Path(relayed.log).read_text()
    assert "is turned away: no hello" not in log
