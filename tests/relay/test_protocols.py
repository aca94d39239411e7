"""Jobs of each protocol with messages of its own, by processes that call each other at a relay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.certificates import dns_of
from tests.commands.command import treetap
from tests.pivodl.jobs import SMALL, SPREAD
from tests.relay.processes import RelayedFederation
from tests.splitnn.jobs import PARAMS as NETWORK
from tests.system.federations import settings, states
from tests.trainings import oracle, policies
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.commands.certs.authority import issue
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.ports import Role
from treetap.wire.v2 import jobs_pb2, serving_pb2, serving_pb2_grpc, setup_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("relay")]

HERE = world(30, (1, 1, 1), seed=31, fresh=6)
BOOSTED = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
FOREST = ForestParams(n_estimators=2, max_depth=2, max_bin=3)
DIVIDED = spec(SMALL, table="spread")
SPLIT = spec(NETWORK)
#: Seconds for a hello, which each job here outlasts.
HELLO_S = 0.5


def _policy(party: str) -> dict[str, Any]:
    """What the jobs of this module need of a party's policy."""
    emits: dict[str, set[str]] = {}
    lines: dict[str, Any] = {"columns": {"preview": "count", "min_common_records": 1}, "keys": {"min_key_bits": 1024}}
    for job in (DIVIDED, SPLIT):
        own = dict(policies(job)[party])
        for name, receivers in own.pop("emits", {}).items():
            emits.setdefault(name, set()).update(receivers)
        lines |= own
    return lines | {"emits": {name: sorted(receivers) for name, receivers in emits.items()}}


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedFederation]:
    """Three parties, of which the first serves models; connections outlast the relay's short deadlines."""
    folder = tmp_path_factory.mktemp("protocols")
    parties = settings(folder, {"train": HERE, "spread": SPREAD})
    parties = {name: {**own, "policy": _policy(name)} for name, own in parties.items()}
    parties[PARTIES[0]] |= {"serve": {"clients": ["app"], "listen": "127.0.0.1:0"}}
    with RelayedFederation(folder, parties, limits={"hello_s": HELLO_S, "metrics": "127.0.0.1:0"}) as running:
        issue(folder / "certs", "app", Role.CLIENT, days=2)
        running.await_registered(4)
        yield running


def _trained(relayed: RelayedFederation, job: str, wanted: setup_pb2.JobSpec) -> None:
    operator = relayed.federation.operator
    status = operator.watch(operator.submit(jobs_pb2.SubmitRequest(job=job, spec=wanted)), lambda _: None)
    assert (status.state, status.error) == ("finished", "")


def test_a_forest(relayed: RelayedFederation) -> None:
    """The oracle's."""
    _trained(relayed, "forest", spec(FOREST))
    assert_oracles_model(states(relayed.federation, HERE), oracle(HERE, FOREST), "forest")


def test_pivodl(relayed: RelayedFederation) -> None:
    """Whose parties all call each other: the oracle's model."""
    _trained(relayed, "pivodl", DIVIDED)
    assert_oracles_model(states(relayed.federation, SPREAD), oracle(SPREAD, SMALL), "pivodl")


def test_a_split_network(relayed: RelayedFederation) -> None:
    """It trains to its end."""
    pytest.importorskip("torch")
    _trained(relayed, "network", SPLIT)


def test_a_preview(relayed: RelayedFederation) -> None:
    """It counts all records of the world."""
    operator = relayed.federation.operator
    asked = jobs_pb2.AlignRequest(job="preview", answer="count", table="train", parties=PARTIES)
    status = operator.watch(operator.align(asked), lambda _: None)
    assert (status.state, status.error) == ("finished", "")
    assert status.common.records == len(HERE.y)


def test_a_served_model(relayed: RelayedFederation) -> None:
    """A client asks the label holder directly, which asks the others through the relay."""
    _trained(relayed, "served", spec(BOOSTED))
    relayed.federation.write_operator_file()
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
