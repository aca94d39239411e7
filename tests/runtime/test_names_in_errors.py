"""Names and paths in errors.

- Errors name the party where they happened, once, however short its name is.
- Errors that leave a party name none of its folders; its own log has them.
"""

from __future__ import annotations

import asyncio
import errno
import http.client
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import role_of
from tests.replay import HERE, PARAMS
from tests.simulator import Federation, Message
from tests.worlds import spec
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import DataError, Interrupted, Silent, TreetapError, Unreachable
from treetap.models.store import read_job
from treetap.party.config import PartyConfig
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.steps import disk_faults
from treetap.party.server.services import register
from treetap.party.serving.registry import OwnPaths, ServedModels
from treetap.party.setup.steps import bin_features
from treetap.process.config import TlsConfig
from treetap.protocols.prediction import predict_request
from treetap.tables.reading import read_ids
from treetap.trees.binning import BinnedTable
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.ports import Address
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, exchange_pb2

#: Names whose letters stand in almost every message; the label holder's first.
SHORT = ("e", "a", "no")
TABLES = dict(zip(SHORT, HERE.tables.values(), strict=True))
JOB = spec(PARAMS, obfuscation="standard", aggregator=SHORT[0], feature_parties=SHORT[1:])
PARTY = "feature-b"


@pytest.mark.parametrize("party", SHORT)
def test_an_error_gets_its_party_once(party: str) -> None:
    """Whatever stands in its message: what says where it happened is an attribute, which further callers see."""
    for error in (Silent("waited 5 s for no one, e or a, in vain"), DataError(f"/state/{party}/x.csv: has no rows")):
        placed = error.at(party)
        assert (type(placed), str(placed)) == (type(error), f"{party}: {error}")
        assert placed.at(party) is placed
    said = Interrupted(f"{party} cannot reach b", party=party)
    assert said.at(party) is said


async def test_an_opening_that_fails_says_where(tmp_path: Path) -> None:
    """Each party in turn lacks its model: the operator learns which one."""

    federation = Federation(tmp_path, TABLES)
    assert (await federation.train(JOB)).state == "finished"
    for party in SHORT:
        models = federation.state(party) / "models"
        away = models.rename(models.with_name("elsewhere"))
        failed = await federation.predict(predict_request(model="job"))
        assert (failed.state, failed.bad_input) == ("failed", True)
        assert failed.error == f"{party}: there is no model 'job' in {models}; bring a back-up of it back"
        away.rename(models)


async def test_a_step_that_is_interrupted_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, whose message names no party; then a peer out of reach, whose message begins with one."""

    async def full(context: StepContext, *about: Any, **more: Any) -> BinnedTable:
        if context.party == "a":
            raise OSError(errno.ENOSPC, "No space left on device", "trees.jsonl")
        return await bin_features(context, *about, **more)

    monkeypatch.setattr("treetap.party.growth.feature_party_job.bin_features", full)

    def cut(message: Message) -> None:
        if (message.sender, message.to) == ("a", "e"):
            raise Unreachable("the line is cut")

    federation = Federation(tmp_path, TABLES)
    status = await federation.train(JOB)
    assert (status.state, status.error) == (
        "interrupted",
        "a: bin of round 0, stage 0: No space left on device: trees.jsonl; then: treetap resume job",
    )
    federation.hook = cut
    status = await federation.train(JOB, "other")
    assert (status.state, status.error) == (
        "interrupted",
        "a cannot reach e; details are in the log of a; then: treetap resume other",
    )


def _config(folder: Path) -> PartyConfig:
    """A party whose files lie in folders of different names."""
    certs = folder / "certs of all"
    create_authority(certs)
    for name in (PARTY, "peer", "coordinator", "gateway"):
        issue(certs, name, role_of(name), days=2)
    tls = TlsConfig(ca=certs / "ca.crt", certificate=certs / f"{PARTY}.crt", key=certs / f"{PARTY}.key")
    tables = {"table": {"path": folder / "tables" / "ours.parquet", "id": "id", "columns": ["x"]}}
    places = {"state": folder / "st'ate", "data": folder / "tables" / "more", "tables": tables}
    serve = {"clients": ["app"], "listen": "127.0.0.1:0", "gateway": "gateway"}
    return PartyConfig.model_validate({"name": PARTY, "tls": tls, "serve": serve, **places})


class _Failing:
    """Fails as a party does whose files are lost, one after the other."""

    def __init__(self, faults: list[TreetapError]) -> None:
        self._faults = iter(faults)

    async def step(self, _caller: str, _request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        yield control_pb2.StepEvent()
        raise next(self._faults)

    async def deliver(self, _caller: str, *_message: object) -> exchange_pb2.Receipt:
        raise next(self._faults)


def _faults(config: PartyConfig) -> dict[str, TreetapError]:
    """The text that leaves the process for each error."""
    table, state, data, tls = config.tables["table"].path, config.state, config.data, config.tls
    assert data is not None
    assert tls is not None
    found: dict[str, TreetapError] = {}

    def add(fault: TreetapError, told: str) -> None:
        found[told] = fault

    with pytest.raises(DataError) as lost:
        read_ids(data / "ids.txt")
    add(lost.value, "data/ids.txt: cannot be read: No such file or directory")
    with pytest.raises(DataError) as lost:
        read_job(state / "models" / "m")
    add(lost.value, "state/models/m/manifest.json: there is no such file")
    with pytest.raises(Interrupted) as full, disk_faults(PARTY, "store_tree"):
        (state / "jobs" / "j").mkdir()
    add(full.value, f"{PARTY}: store_tree: No such file or directory: state/jobs/j")
    add(Interrupted(f"{state}: no room for messages"), "state: no room for messages")
    add(DataError(f"{table}: has no rows; see {str(table)!r}."), "ours.parquet: has no rows; see 'ours.parquet'.")
    add(DataError(f"there is nothing in {table.parent}"), "there is nothing in its folder")
    add(DataError(f"{tls.key}: others can read it"), f"{PARTY}.key: others can read it")
    return found


@pytest.mark.real_time
async def test_no_path_leaves_over_grpc(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither to the coordinator nor to a peer; what lies below a folder is still named, and the log has all of it."""
    config = _config(tmp_path)
    assert config.tls is not None
    certs, faults = config.tls.ca.parent, _faults(config)

    with caplog.at_level(logging.WARNING):
        callers = Callers(PARTY, config.transport(), OwnPaths(config))
        server, credentials = rpc.server(callers)
        register(server, callers, _Failing([fault for fault in faults.values() for _ in range(2)]))
        to = Address(PARTY, f"127.0.0.1:{rpc.bind(server, credentials, '127.0.0.1:0')}")
        await server.start()
        files = {n: TlsFiles(certs / "ca.crt", certs / f"{n}.crt", certs / f"{n}.key") for n in ("peer", "coordinator")}
        dialers = {name: rpc.GrpcDialer(each) for name, each in files.items()}
        for told, fault in faults.items():
            with pytest.raises(type(fault)) as heard:
                async for _ in dialers["coordinator"].step(to, control_pb2.StepRequest(job="j")):
                    pass
            assert str(heard.value) == told
            with pytest.raises(type(fault)) as heard:
                await dialers["peer"].deliver(to, exchange_pb2.PeerMessage(job="j").SerializeToString())
            assert str(heard.value) == told
            assert str(tmp_path / "st'ate") not in told
        for each in dialers.values():
            await each.close()
        await server.stop(None)
    assert [fault for fault in faults.values() if str(fault) not in caplog.text] == []


def test_what_only_begins_like_a_folder_stays(tmp_path: Path) -> None:
    """Also where a folder is near the root, with a short name."""
    hide = OwnPaths(PartyConfig(name=PARTY, state=Path("/st"), insecure=True))
    for text in ("/st-2/x", "/state/x", "/st.old", "a/st/b", "/", "1/st"):
        assert hide(text) == text
    assert hide("/st/x, /st: '/st'") == "st/x, st: 'st'".replace("st", "state")


def test_no_path_leaves_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are strangers most of all."""
    pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
    from tests.serving.gateways import behind_gateway

    config = _config(tmp_path)
    faults = _faults(config)
    assert config.tls is not None
    certs = config.tls.ca.parent
    own = {**config.tls.model_dump(), "certificate": certs / "gateway.crt", "key": certs / "gateway.key"}
    failing = iter(faults.values())

    def describe(self: ServedModels, client: str, model: str) -> object:
        raise next(failing)

    monkeypatch.setattr(ServedModels, "describe", describe)

    def ask(address: str) -> str:
        connection = http.client.HTTPConnection(address, timeout=5)
        connection.request("GET", "/v1/model", headers={"treetap-name": "app"})
        return connection.getresponse().read().decode()

    async def main() -> list[str]:
        async with behind_gateway(config, tls=own, plain_http=True) as address:
            return [await asyncio.to_thread(ask, address) for _ in faults]

    for told, heard in zip(faults, asyncio.run(main()), strict=True):
        assert told in heard
        assert str(tmp_path) not in heard
