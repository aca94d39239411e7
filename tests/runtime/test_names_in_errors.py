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
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.certificates import role_of
from tests.replay import HERE, PARAMS
from tests.simulator import Federation, Message
from tests.sockets import dialling, listening
from tests.worlds import spec
from treetap.commands.certs.authority import create_authority, issue
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError, DataError, Interrupted, Silent, TreetapError, Unreachable
from treetap.lab.experiment.file_tables import OutputTable
from treetap.models.store import read_job
from treetap.party import config as party_config
from treetap.party.config import PartyConfig
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.steps import disk_faults
from treetap.party.server.services import register
from treetap.party.serving.registry import OwnPaths, ServedModels
from treetap.party.setup.steps import bin_features
from treetap.process.config import TlsConfig
from treetap.protocols.prediction import predict_request
from treetap.strict import faults_of
from treetap.tables.reading import read_ids
from treetap.trees.binning import BinnedTable
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
    add(lost.value, "data/ids.txt: there is no such file")
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
        failing = _Failing([fault for fault in faults.values() for _ in range(2)])
        files = {n: TlsFiles(certs / "ca.crt", certs / f"{n}.crt", certs / f"{n}.key") for n in ("peer", "coordinator")}
        async with (
            listening(callers, partial(register, port=failing)) as address,
            dialling(files["coordinator"]) as coordinator,
            dialling(files["peer"]) as peer,
        ):
            to = Address(PARTY, address)
            for told, fault in faults.items():
                with pytest.raises(type(fault)) as heard:
                    async for _ in coordinator.step(to, control_pb2.StepRequest(job="j")):
                        pass
                assert str(heard.value) == told
                with pytest.raises(type(fault)) as heard:
                    await peer.deliver(to, exchange_pb2.PeerMessage(job="j").SerializeToString())
                assert str(heard.value) == told
                assert str(tmp_path / "st'ate") not in told
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


# ---- Errors of files show what was written, but for what may be a password in an address


SECRET = "HUNTER2"
_TLS = '[tls]\nca = "a"\ncertificate = "b"\nkey = "c"\n'
_USER = f"bob:{SECRET}@host"


@pytest.mark.parametrize(
    "text",
    [
        f'listen = "{_USER}:1"',
        f'metrics = "http://{_USER}:1/x"',
        f'workers = "http://{_USER}"',
        f'engine = "ray://{_USER}:1"',
        f'insecure = "{_USER}"',
        f'tables = "postgres://{_USER}"',
        f'tables_folder_sources = ["https://{_USER}"]',
        f'tables_folder_sources = "https://{_USER}"',
        f'[cluster]\naddress = "ray://{_USER}:1"',
        f'[tables.t]\nid = "i"\npath = "postgresql://{_USER}/records"',
        f'[tables.t]\nid = "i"\npath = ["a.csv", "http://{_USER}/b.csv"]',
        f'[tables.t]\nid = "i"\npath = "s3://KEY:{SECRET}@bucket/a.csv"',
        f'[tables.t]\nid = "i"\ntable = "x"\nuri = "postgresql://{_USER}/records"',
        f'[tables.t]\nid = "i"\npath = "s3://b/k"\nendpoint_override = "http://{_USER}"',
        f'[tables.t]\nid = "i"\npath = "a.csv"\nencode = "{_USER}"',
    ],
)
def test_a_partys_file(text: str, tmp_path: Path) -> None:
    """Wherever the address stands by mistake."""
    above, below = (text, "") if not text.startswith("[") else ("", text)
    content = f'name = "bank"\nstate = "s"\n{above}\n{_TLS}{below}\n'
    (tmp_path / "party.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as failure:
        party_config.read(tmp_path / "party.toml")
    assert SECRET not in str(failure.value)


def test_a_coordinators_file(tmp_path: Path) -> None:
    """An address of a party."""
    content = f'state = "s"\n{_TLS}[parties]\nshop = "{_USER}:1"\n'
    (tmp_path / "coordinator.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"parties\.shop: an address is host:port, without a user") as failure:
        CoordinatorConfig.from_file(tmp_path / "coordinator.toml")
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize("address", ["http://{}:5000", "ftp://{}", "postgresql://{}/db", "{}:5000", "http:/{}:5000"])
def test_an_experiments_tracking_server(address: str) -> None:
    """With a password it is refused, and not shown."""
    with pytest.raises(ValidationError) as failure:
        OutputTable(mlflow=address.format(_USER))
    (fault,) = faults_of(failure.value, OutputTable)
    assert fault.startswith("mlflow: ")
    assert SECRET not in fault
