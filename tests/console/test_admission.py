"""Who is answered by a console: tokens, sessions, forms of their own session, hosts and origins, bounded bodies.

`treetap console` as a process: what its file may say, and a party behind it over sockets.
"""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import time
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

from tests.console.asking import HOST, ORIGIN, Browser, Given, a_job, console, entered
from treetap.commands.approvals.client import ConsoleConfig
from treetap.ops.console import listening
from treetap.ops.console import sessions as limits
from treetap.ops.console.listening import hosts_of, secured_by
from treetap.ops.console.pages import VIEWS
from treetap.ops.console.server import MOST_FIELDS, MOST_FORM, Console
from treetap.ops.console.sessions import IDLE_S, MOST, TOKEN_S, Sessions
from treetap.process.config import Secret
from treetap.wire.certificates import key_pem, read_key
from treetap.wire.v2 import approvals_pb2

JOB = f"/jobs/job/{bytes(32).hex()}"
PATHS = ("/", JOB, *(f"/{view}" for view in VIEWS))
POSTS = ("/leave", "/decision", "/decision/confirmed", "/standing", "/standing/confirmed")


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_token_opens_one_session_within_its_time() -> None:
    """Once, for 60 s; no other text opens one, and no page is shown without."""

    clock = Clock()
    made = console(Given([a_job()]), Sessions(clock))
    stranger, token = Browser(made), made.sessions.token()
    assert len(token) == 32
    for path in PATHS:
        turned = await stranger.get(path)
        assert (turned.status, turned.headers["Location"], turned.text) == (303, "/enter", "")
    for wrong in ("", token[:-1], token + "0", token.upper() + "\x00", "é" * 1000):
        said = await stranger.enter(wrong)
        assert (said.status, stranger.own) == (403, "")
        assert "This token opens nothing" in said.words
    assert (await stranger.enter(f" {token}\r\n")).status == 303
    assert (await Browser(made).enter(token)).status == 403
    late = made.sessions.token()
    clock.now = TOKEN_S + 0.1
    assert (await Browser(made).enter(late)).status == 403


async def test_a_session_is_in_the_path_and_nowhere_else() -> None:
    """Browsers send cookies to every port of a host, and a page's address to where its links lead: neither has it."""
    made = console(Given([a_job()], [approvals_pb2.StandingApproval(name="weekly")]))
    ann, other = await entered(made), await entered(made)
    assert len({ann.own, other.own}) == 2
    assert len(ann.own) == 65
    for path in (*PATHS, "/enter", "/style.css"):
        seen = await ann.get(path)
        assert (seen.headers.getall("Set-Cookie", []), seen.headers["Referrer-Policy"]) == ([], "no-referrer")
        assert ann.own not in seen.text
        assert not re.findall(r'(?:href|action)="(?!/|data:|#)', seen.text)
        by_cookie = await Browser(made).get(path, Cookie=f"treetap-telco-ann={ann.own[1:]}")
        assert by_cookie.status == (200 if path in ("/enter", "/style.css") else 303)


async def test_a_session_ends_when_idle_and_by_hand() -> None:
    """After 15 minutes without a request; a page that refreshes itself keeps none. It cannot be used again."""

    clock = Clock()
    made = console(Given([a_job()]), Sessions(clock))
    ann, other = await entered(made), await entered(made)
    for _ in range(3):
        clock.now += IDLE_S
        assert (await ann.get("/")).status == 200
    assert (await other.get("/")).status == 303
    for _ in range(3):
        clock.now += IDLE_S / 3
        assert (await ann.get("/running?every=10")).headers["Refresh"] == "10"
    clock.now += 1
    assert (await ann.get("/running?every=10")).status == 303
    ann = await entered(made)
    left = await ann.post("/leave", (await ann.get("/")).fields("/leave"))
    assert (left.status, left.headers["Location"]) == (303, "/enter")
    assert (await ann.get("/")).status == 303
    told = await ann.post("/decision/confirmed", {"form": "?"})
    assert (told.status, "There is no session" in told.words) == (403, True)


async def test_forms_are_of_their_own_session() -> None:
    """Another session's token of forms, none, and a part of one decide nothing, ever."""

    party = Given([a_job()])
    made = console(party)
    ann, other = await entered(made), await entered(made)
    fields = (await other.get(JOB)).fields("/decision")
    own = (await ann.get(JOB)).fields("/decision")
    assert fields["form"] != own["form"]
    for path in POSTS:
        for form in (fields["form"], "", own["form"][:-1], "é"):
            told = await ann.post(path, {**own, "form": form})
            assert (told.status, "This form is of another session" in told.words) == (403, True)
        bare = {name: value for name, value in own.items() if name != "form"}
        assert (await ann.post(path, bare)).status == 403
    assert (party.decided, party.ended) == ([], [])
    assert (await ann.post("/decision", own)).status == 200


async def test_only_what_a_page_has_asked_about_is_decided() -> None:
    """A form that confirms names the fields that were shown: no page skips the question, or has another answered."""

    party = Given([a_job()], [approvals_pb2.StandingApproval(name=name) for name in ("weekly", "daily")])
    made = console(party)
    ann, other = await entered(made), await entered(made)
    own = (await ann.get(JOB)).fields("/decision")
    asked = (await ann.post("/decision", own)).fields("/decision/confirmed")
    elsewhere = (await other.post("/decision", (await other.get(JOB)).fields("/decision"))).fields(
        "/decision/confirmed"
    )
    ends = (await ann.get("/")).fields("/standing")
    ending = (await ann.post("/standing", {**ends, "name": "weekly"})).fields("/standing/confirmed")
    for path, fields in (
        ("/decision/confirmed", own),
        ("/decision/confirmed", {**asked, "days": "366"}),
        ("/decision/confirmed", {**asked, "decision": "refuse"}),
        ("/decision/confirmed", {**asked, "shown": elsewhere["shown"]}),
        ("/decision/confirmed", {**asked, "shown": "é"}),
        ("/standing/confirmed", {**ending, "name": "daily"}),
        ("/standing/confirmed", {**ends, "name": "weekly"}),
    ):
        told = await ann.post(path, fields)
        assert (told.status, "No page has asked about this" in told.words) == (403, True)
    assert (party.decided, party.ended) == ([], [])
    assert (await ann.post("/decision/confirmed", asked)).status == 303
    assert (await ann.post("/standing/confirmed", ending)).status == 303
    assert ([one.days for one in party.decided], party.ended) == ([30.0], ["weekly"])


async def test_a_page_is_made_although_its_session_ends_meanwhile() -> None:
    """The next one is not."""

    class Leaving(Given):
        async def standing(self, name: str = "") -> list[approvals_pb2.StandingApproval]:
            made.sessions.leave(ann.own[1:])
            return await super().standing(name)

    made = console(Leaving([a_job()], [approvals_pb2.StandingApproval(name="weekly")]))
    ann = await entered(made)
    assert (await ann.get(JOB)).status == 200
    assert "weekly" in (await ann.get("/")).words
    assert (await ann.get(JOB)).status == 303


def test_seconds_go_on_while_a_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux stops CLOCK_MONOTONIC in a suspend: a session would outlast the night."""
    asked: list[int] = []

    def now(clock: int) -> float:
        asked.append(clock)
        return float(len(asked))

    monkeypatch.setattr("time.clock_gettime", now)
    assert Sessions().enter(Sessions().token()) is None
    assert {*asked} <= {getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)}
    assert asked


def test_a_new_certificate_of_the_pages_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For the next connection, once both files fit; until then the one before stays."""
    create_authority(tmp_path / "ca")
    first, second = (issue(tmp_path / name, "pages", Role.PARTY, ca_folder=tmp_path / "ca") for name in "ab")
    config = ConsoleConfig(certificate=first.certificate, key=first.key)
    secured = secured_by(config)
    assert secured is not None
    before = secured()
    assert secured() is before
    second.key.replace(first.key)
    assert secured() is before
    assert "those read before stay in force" in caplog.text
    second.certificate.replace(first.certificate)
    assert secured() is not before


def test_a_passphrase_that_is_away_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files look the same once its place is back: every ten minutes it is tried, and not at each connection."""
    create_authority(tmp_path / "ca")
    files = issue(tmp_path, "pages", Role.PARTY, ca_folder=tmp_path / "ca")
    key, place = read_key(files.key), tmp_path / "word"
    files.key.write_bytes(key_pem(key, b"word"))
    place.write_text("word")
    moments = iter([0.0, 0.0, listening.AGAIN_S - 1, listening.AGAIN_S])
    monkeypatch.setattr(listening, "monotonic", lambda: next(moments))
    secured = secured_by(ConsoleConfig(certificate=files.certificate, key=files.key, passphrase=Secret(file=place)))
    assert secured is not None
    before = secured()
    files.key.write_bytes(key_pem(key, b"word"))  # another salt, and so another content
    place.unlink()
    assert secured() is before
    place.write_text("word")
    assert secured() is before
    assert secured() is not before


async def test_names_that_a_console_answers_to() -> None:
    """Those of the file, addresses of IPv6 among them, and loopback's where it listens there."""
    near = hosts_of(ConsoleConfig(listen="[::1]:8437", hosts=["Telco.example.", "2001:db8::1"]))
    assert near == {"::1", "127.0.0.1", "localhost", "telco.example", "2001:db8::1"}
    far = ConsoleConfig(listen="0.0.0.0:1", certificate=Path("own.crt"), key=Path("own.key"), hosts=["2001:db8::1"])
    assert hosts_of(far) == {"0.0.0.0", "2001:db8::1"}

    made = Console(Given(), "ann", "telco", Sessions(), near, secured=False)
    for host, status in (("[::1]:8437", 303), ("[2001:DB8::1]", 303), (":8437", 421), ("::1", 421)):
        assert (await Browser(made).get("/", Host=host)).status == status


async def test_other_hosts_and_origins_are_refused() -> None:
    """A name that was led here by DNS, a form of another page or of none, a script of another origin."""

    party = Given([a_job()])
    made = console(party)
    ann = await entered(made)
    own = (await ann.get(JOB)).fields("/decision")
    for host in ("evil.example:8437", "evil.example", "127.0.0.1.evil.example", "[::2]:8437", ""):
        for told in (await ann.get("/", Host=host), await ann.post("/decision", own, Host=host)):
            assert (told.status, told.text) == (421, "This host is not served here")
    for origin in (
        "http://evil.example",
        "null",
        f"https://{HOST}",
        "http://127.0.0.1:9999",
        "http://localhost:8437",
    ):
        assert (await ann.post("/decision/confirmed", own, Origin=origin)).status == 403
        assert (await ann.get("/", Origin=origin)).status == 403
    assert (await ann.post("/decision/confirmed", own, Origin="")).status == 403
    for site, status in (("cross-site", 403), ("same-site", 403), ("none", 403), ("same-origin", 200)):
        told = await ann.post("/decision", own, Origin="null", **{"Sec-Fetch-Site": site})
        assert told.status == status
    assert party.decided == []
    assert (await ann.get("/", Host="localhost:9000")).status == 200  # forwarded by ssh


async def test_bodies_are_forms_of_a_bounded_size() -> None:
    """Other types, too many bytes or fields, and bytes that are no text are refused."""

    made = console(Given([a_job()]))
    ann = await entered(made)
    own = (await ann.get(JOB)).fields("/decision")
    for kind in ("multipart/form-data; boundary=x", "application/json", "text/plain"):
        assert (await ann.post("/decision", own, **{"Content-Type": kind})).status == 415
    assert (await ann.post("/decision", {**own, "why": "x" * MOST_FORM})).status == 413
    assert (await ann.post("/decision", {**own, **{str(k): "" for k in range(MOST_FIELDS)}})).status == 400
    assert (await ann._ask("POST", "/decision", b"\xff\xfe", _FORM)).status == 400
    for broken in ({"seen": "x"}, {"seen": "-1"}, {"days": "soon"}, {"decision": "both"}, {"sha256": "zz"}):
        told = await ann.post("/decision", {**own, **broken})
        assert (told.status, "this form is none of the console's" in told.words) == (400, True)
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert (await ann._ask(method, "/", b"", {"Origin": ORIGIN})).status == 405
    assert (await ann.get("/no-such-page")).status == 404


_FORM = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}


async def test_every_answer_has_its_rules_and_no_script() -> None:
    """Pages, their style, redirections and refusals: nothing is run, framed, kept or loaded from elsewhere."""
    made = console(Given([a_job()]))
    ann = await entered(made)
    answers = [await ann.get(path) for path in (*PATHS, "/style.css", "/enter", "/nowhere")]
    answers += [await Browser(made).get("/"), await ann.get("/", Host="evil"), await ann.post("/leave", {})]
    for answer in answers:
        rules = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= {*rules}
        assert "script" not in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert (answer.headers["X-Frame-Options"], answer.headers["Cache-Control"]) == ("DENY", "no-store")
        for word in ("<script", " style=", " onclick=", "http-equiv"):
            assert word not in answer.text


def test_few_sessions_and_tokens_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest makes room; secrets come from the operating system, and none is kept as it is."""
    sessions = Sessions(Clock())
    tokens = [sessions.token() for _ in range(MOST + 1)]
    assert sessions.enter(tokens[0]) is None
    secrets = [secret for token in tokens[1:] if (secret := sessions.enter(token)) is not None]
    assert len({*secrets, *tokens}) == 2 * MOST + 1
    assert (another := sessions.enter(sessions.token())) is not None
    assert sessions.of(secrets[0]) is None
    assert sessions.of(another) is not None
    held = repr(vars(sessions))
    assert not [secret for secret in (*secrets, another) if secret in held]
    assert limits.TOKEN_BYTES * 8 == 128


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
