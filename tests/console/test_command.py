"""`treetap console` as a process: what its file may say, and a party behind it over sockets."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.certificates import namesake
from tests.commands.command import end, refused, start, treetap
from tests.system.federations import settings, until
from tests.worlds import spec, world
from treetap.commands.certs.authority import create_authority, issue
from treetap.lab.local_federation import LocalFederation
from treetap.ops.console.listening import MOST_FIELD
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Role
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import jobs_pb2

pytest.importorskip("aiohttp", reason="the console needs the extra console")


PARTY, ANN = "feature-b", "ann"
SAID = re.compile(r"(https?://[^/ ]+)/ opens once, within 60 s, with the token ([0-9a-f]{32})\n")


def _file(folder: Path, files: TlsFiles, party: str, pages: str = 'listen = "127.0.0.1:0"') -> Path:
    path = folder / "approver.toml"
    path.write_text(
        f'name = "{ANN}"\nparty = "{party}"\nparty_name = "{PARTY}"\n'
        f'[tls]\nca = "{files.ca}"\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n[console]\n{pages}\n'
    )
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """An approver's certificate and key."""
    folder = tmp_path_factory.mktemp("certificates")
    create_authority(folder)
    return issue(folder, ANN, Role.APPROVER)


@pytest.mark.parametrize(
    ("pages", "says"),
    [
        ('listen = "0.0.0.0:8437"', "listen = '0.0.0.0:8437' is no loopback address: name certificate and key"),
        ('listen = "10.0.0.1:1"\ncertificate = "own.crt"', "certificate and key go together"),
        ('listen = "127.0.0.1"', "an address is host:port"),
        ('hosts = ["http://x/"]', "console.hosts"),
        ("port = 1", "console.port: unknown key"),
        (
            'certificate = "none.crt"\nkey = "none.key"',
            "they are no certificate and its key: ",
        ),
        ('listen = "192.0.2.1:1"\ncertificate = "{certificate}"\nkey = "{key}"', "console.listen = '192.0.2.1:1'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(pages: str, says: str, files: TlsFiles, tmp_path: Path) -> None:
    """Exit status 2 and one line, whichever key it is."""
    named = pages.replace("{certificate}", str(files.certificate)).replace("{key}", str(files.key))
    assert says in refused(treetap("console", "--approver", _file(tmp_path, files, "127.0.0.1:1", named)))


def test_a_certificate_of_another_role_is_refused(files: TlsFiles, tmp_path: Path) -> None:
    """A client's opens no console."""
    client = namesake(tmp_path / "client", ANN, Role.CLIENT, files.ca.parent)
    assert "approver" in refused(treetap("console", "--approver", _file(tmp_path, client, "127.0.0.1:1")))


@contextmanager
def _console(path: Path) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Address and token of a console, and its process."""
    process = start("console", "--approver", path)
    try:
        assert process.stdout is not None
        said = SAID.fullmatch(process.stdout.readline())
        assert said is not None, end(process)
        yield said[1], said[2], process
    finally:
        process.terminate()
        ended = end(process)
        assert ended.status == 0, ended.err
        assert said is None or said[2] not in ended.err  # the log


def _free() -> str:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


class _Browser:
    """A browser over HTTP, which follows redirections."""

    def __init__(self, address: str, **tls: bool) -> None:
        self._address, self._tls = address, tls
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    def has_cookies_of_others(self, size: int) -> None:
        self._session.cookie_jar.update_cookies({"others": "x" * size})

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"{self._address}{path}", **self._tls) as answer:
            return answer.status, await answer.text()

    async def post(self, path: str, fields: dict[str, str]) -> tuple[int, str]:
        own = {"Origin": self._address}
        async with self._session.post(f"{self._address}{path}", data=fields, headers=own, **self._tls) as answer:
            return answer.status, await answer.text()

    async def close(self) -> None:
        await self._session.close()


@pytest.mark.real_time
@pytest.mark.second_tier
@pytest.mark.parametrize("secured", [False, True])
async def test_a_party_that_is_down_gives_a_page(secured: bool, files: TlsFiles, tmp_path: Path) -> None:
    """The process starts without its party, opens for its token, says that the party is away, and ends by SIGTERM.

    Cookies of other services of the host, which a browser sends along, do not matter.
    """
    pages = f'listen = "127.0.0.1:0"\ncertificate = "{files.certificate}"\nkey = "{files.key}"' if secured else ""

    path = _file(tmp_path, files, _free(), pages or 'listen = "127.0.0.1:0"')
    with _console(path) as (address, token, _):
        assert address.startswith("https" if secured else "http")
        browser = _Browser(address, **({"ssl": False} if secured else {}))
        browser.has_cookies_of_others(MOST_FIELD - 200)
        assert "Token" in (await browser.get("/"))[1]
        status, text = await browser.post("/enter", {"token": token})
        assert (status, "The party cannot be reached" in text) == (503, True)
        assert (await browser.post("/enter", {"token": token}))[0] == 403
        await browser.close()


@pytest.mark.second_tier
def test_a_job_is_approved_over_sockets(tmp_path: Path) -> None:
    """From the operator's submission to the model, by pages alone; SIGHUP prints another token."""
    here = world(20, (1, 1, 1))
    parties = settings(tmp_path, {"train": here})
    parties[PARTY].setdefault("policy", {}).update(people={"approval": "manual", "approvers": [ANN]})
    with LocalFederation(tmp_path, parties) as federation:
        own = issue(tmp_path / "people", ANN, Role.APPROVER, ca_folder=federation.folder / "certs")
        job = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2))
        federation.operator.submit(jobs_pb2.SubmitRequest(job="shown", spec=job))
        waits = f"waiting for approval of {PARTY}"
        until(lambda: federation.operator.status("shown")[0].error == waits, "the job waits for people")

        async def approves(address: str, token: str) -> None:
            browser = _Browser(address)
            status, text = await browser.post("/enter", {"token": token})
            assert status == 200
            (path,) = re.findall(r'href="(/[0-9a-f]{64}/jobs/shown/[0-9a-f]{64})"', text)
            own = path.partition("/jobs")[0]
            for action in ("/decision", "/decision/confirmed"):
                text = (await browser.get(path))[1] if action == "/decision" else text
                (form,) = re.findall(rf'action="{own}{action}">(.*?)Approve', text, re.DOTALL)
                fields = dict(re.findall(r'<input [^>]*name="([^"]*)"[^>]*?value="([^"]*)"', form))
                status, text = await browser.post(f"{own}{action}", fields)
                assert status == 200, text
            assert "approved by ann (command)" in text
            assert "countersigned" in text
            for view in ("running", "exchanged", "limits", "ledger", "models", "certificates", "transcripts"):
                status, text = await browser.get(f"/{view}")
                assert status == 200, text
            await browser.close()

        with _console(_file(tmp_path, own, federation.addresses[PARTY])) as (address, token, process):
            asyncio.run(approves(address, token))
            assert federation.operator.watch("shown", lambda _: None).state == "finished"
            process.send_signal(1)
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            assert SAID.fullmatch(lines[1])
