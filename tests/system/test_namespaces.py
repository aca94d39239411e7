"""A job across network namespaces: every party on an address of its own, as on hosts of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.namespaces import PORT, await_line, ip, made_spaces, space, start, train_and_predict, write_files
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, world
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.second_tier

HERE = world(60, (2, 1, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=8)
#: A host per party, and one more for coordinator and operator.
ADDRESSES = {name: f"10.213.77.{number}" for number, name in enumerate([*PARTIES, "coordinator"], start=1)}


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    """Namespaces joined by a bridge in one more of them; nothing of it is on the machine's own network."""
    with made_spaces("hub", *ADDRESSES):
        hub = space("hub")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(ADDRESSES.items()):
            ip("-n", space(name), "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", hub)
            ip("-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", space(name), "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space(name), "link", "set", "eth0", "up")
        yield


@pytest.mark.long
def test_a_job_across_hosts(hosts: None, tmp_path: Path) -> None:
    """Four hosts that reach each other by their addresses only train and predict the oracle's model."""
    listen = {name: f"{address}:{PORT}" for name, address in ADDRESSES.items()}
    write_files(tmp_path, HERE, listen, listen)
    processes = []
    try:
        for name in ADDRESSES:
            kind = "coordinator" if name == "coordinator" else "party"
            processes.append(start(tmp_path, name, kind, "--config", str(tmp_path / f"{name}.toml")))
            assert await_line(processes[-1])["address"] == listen[name]
        predictions = train_and_predict(tmp_path)
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(20) for process in processes]
    assert codes == [0] * len(processes)
    states = {party: tmp_path / f"{party}-state" for party in PARTIES}
    assert_oracles_model(states, HERE.oracle(PARAMS))
    assert_oracles_scores(predictions, HERE.oracle(PARAMS), HERE.newcomers, len(HERE.y))
