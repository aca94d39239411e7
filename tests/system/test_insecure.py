"""`insecure = true`: plain text on loopback, asked for in every file, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.command import treetap
from tests.sockets import dialling
from tests.system.federations import settings
from tests.worlds import spec, world
from treetap.commands.jobs.client import Operator, OperatorConfig
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import BadInput, ConfigError, Refused, TreetapError
from treetap.lab.local_federation import LocalFederation, to_toml
from treetap.party import config as party_config
from treetap.trees.params import BoostingParams
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.ports import Address
from treetap.wire.tls import Insecure, TlsFiles
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("insecure")]

HERE = world(20, (1, 1, 1))
SPEC = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2))
PLAIN = {"tls": None, "insecure": True}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties and a coordinator without certificates."""
    folder = tmp_path_factory.mktemp("insecure")
    parties = {name: {**each, **PLAIN} for name, each in settings(folder, {"train": HERE}).items()}
    parties["label-holder"]["serve"] = {"clients": ["app"], "listen": "127.0.0.1:0", "gateway": "gateway"}
    with LocalFederation(folder, parties, PLAIN) as running:
        yield running


def _status(to: Address, transport: Insecure | TlsFiles) -> None:
    async def main() -> None:
        async with dialling(transport) as dialer, dialer.jobs(to) as stub:
            _ = [page async for page in stub.Status(jobs_pb2.StatusRequest(), timeout=10)]

    asyncio.run(main())


def test_a_job_runs_in_the_clear_and_every_process_says_so(federation: LocalFederation) -> None:
    """The same protocol without certificates; each log warns."""
    operator = Operator(OperatorConfig(coordinator=federation.addresses["coordinator"], insecure=True))
    operator.submit(jobs_pb2.SubmitRequest(job="clear", spec=SPEC))
    assert operator.watch("clear", lambda _: None).state == "finished"
    for name in ("label-holder", "feature-b", "feature-c", "coordinator"):
        assert "insecure = true: no encryption" in (federation.folder / name / "log.txt").read_text()


def test_names_still_decide_who_may_ask(federation: LocalFederation) -> None:
    """Who goes by a name that is no operator's, or by none, is refused."""
    to = Address("coordinator", federation.addresses["coordinator"])
    with pytest.raises(Refused, match="feature-b"):
        _status(to, Insecure("feature-b"))
    with pytest.raises(Refused, match="no certificate"):
        _status(to, Insecure(""))


def test_certificates_do_not_speak_with_plain_text(federation: LocalFederation) -> None:
    """Neither side gives way: a caller with certificates reaches no plain server."""
    certs = federation.folder / "certs"
    tls = TlsFiles(certs / "ca.crt", certs / "operator.crt", certs / "operator.key")
    with pytest.raises(TreetapError, match="answers, but not in TLS"):
        _status(Address("coordinator", federation.addresses["coordinator"]), tls)


def test_doctor_warns(federation: LocalFederation) -> None:
    """A warning, and the other checks go on."""
    done = treetap("doctor", "--config", federation.folder / "coordinator" / "config.toml")
    assert "warning  certificate: insecure = true" in done.out
    assert "answers and serves" in done.out


def test_plain_text_never_leaves_the_host(tmp_path: Path) -> None:
    """An address that is not on loopback is refused in every kind of file, on binding and on calling."""
    base = {"state": "s", "insecure": True}
    files = {
        "party": ({"name": "bank", "listen": "0.0.0.0:7101", **base}, party_config.read),
        "coordinator": ({"parties": {"bank": "bank.example.org:7101"}, **base}, CoordinatorConfig.from_file),
        "operator": ({"coordinator": "10.0.0.7:7100", "insecure": True}, OperatorConfig.from_file),
    }
    for name, (content, read) in files.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(to_toml(content))
        with pytest.raises(ConfigError, match="insecure = true is for loopback only"):
            read(path)

    async def bind() -> None:
        server, credentials = rpc.server(Callers("bank", Insecure("bank")))
        rpc.bind(server, credentials, "0.0.0.0:0")

    with pytest.raises(BadInput, match=r"listen = 0\.0\.0\.0:0: insecure = true is for loopback only"):
        asyncio.run(bind())
    with pytest.raises(BadInput, match=r"bank at 10\.0\.0\.7:7101: insecure = true is for loopback only"):
        _status(Address("bank", "10.0.0.7:7101"), Insecure("operator"))
