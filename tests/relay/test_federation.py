"""Jobs of processes that call each other at one address, a relay's; the relay is killed and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.relay.processes import RelayedFederation
from tests.system.federations import settings, states
from tests.worlds import assert_oracles_model, spec, world
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("relay")]

HERE = world(60, (2, 1, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=8)


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedFederation]:
    """Three parties, a coordinator and an operator at one relay."""
    folder = tmp_path_factory.mktemp("relayed")
    with RelayedFederation(folder, settings(folder, {"train": HERE})) as running:
        running.await_registered(4)
        yield running


def test_a_job_through_a_relay(relayed: RelayedFederation) -> None:
    """The oracle's model, and every process was called at the relay."""
    operator = relayed.federation.operator
    operator.submit(jobs_pb2.SubmitRequest(job="plain", spec=spec(PARAMS)))
    began = time.monotonic()
    ended = operator.watch("plain", lambda _: None)
    print(time.monotonic() - began)
    assert (ended.state, ended.error) == ("finished", "")
    assert_oracles_model(states(relayed.federation, HERE), HERE.oracle(PARAMS), "plain")
    log = relayed.log.read_text()
    for name in ("coordinator 'coordinator'", "party 'label-holder'", "party 'feature-b'", "party 'feature-c'"):
        assert f"{name}: a connection of" in log
