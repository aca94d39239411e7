"""Checks of one process's surroundings: certificates, other servers, its ports, proxy and folder, as findings."""

from __future__ import annotations

import errno
import json
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage
from typing import Literal, NoReturn

from treetap import terminal, version
from treetap.errors import ConfigError, Interrupted, Refused
from treetap.logs import OF_SPANS
from treetap.names import asked_at
from treetap.pages.printing import print_lines, print_words
from treetap.process.config import TelemetryConfig
from treetap.terminal import size
from treetap.version import install
from treetap.wire import certificates as lists
from treetap.wire.certificates import fingerprint, read_certificates
from treetap.wire.ports import Address, Identity
from treetap.wire.probe import Hello, examine, say_hello
from treetap.wire.proxies import ASKED, named, proxy_to
from treetap.wire.rpc import listening_fault
from treetap.wire.tls import Insecure, TlsFiles, Transport

#: Seconds for a server's answer, and then for the diagnosis of a missing one.
HELLO_S, PROBE_S = 2.5, 2.0
#: A certificate that expires within this time gets a warning.
SOON = timedelta(days=30)
#: Seconds that two clocks may differ without a warning, and without a fault.
SKEW_S, MOST_SKEW_S = 30.0, 300.0

Level = Literal["ok", "warning", "fault"]


@dataclass(frozen=True)
class Finding:
    """One line of the report: severity, subject, and the message with the remedy."""

    level: Level
    subject: str
    message: str


#: Subject of a check → the check.
Checks = Mapping[str, Callable[[], list[Finding]]]


def run_all(checks: Checks, limit_s: float) -> list[Finding]:
    """All findings, in the order of the checks, which run at once; one that is not done in time is a finding itself.

    Each has a thread of its own, which is left behind where a name service or a file system hangs.
    """
    done: dict[str, list[Finding]] = {}

    def run(subject: str, check: Callable[[], list[Finding]]) -> None:
        try:
            done[subject] = check()
        except Exception as defect:  # noqa: BLE001 - a failure of one check must not end the others
            done[subject] = [Finding("fault", subject, f"the check itself failed: {type(defect).__name__}: {defect}")]

    threads = {}
    deadline = time.monotonic() + limit_s
    for subject, check in checks.items():
        threads[subject] = threading.Thread(target=run, args=(subject, check), daemon=True)
        threads[subject].start()
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"not done after {limit_s:g} s: too much to read in that time, or a file system or name service hangs"
    return [finding for subject in checks for finding in done.get(subject, [Finding("warning", subject, late)])]


def end(findings: Sequence[Finding], about: Mapping[str, str], *, as_json: bool) -> NoReturn:
    """Print findings, a line each, or as JSON below `about`, and end: with status 2 if one is a fault."""
    faults = sum(finding.level == "fault" for finding in findings)
    if as_json:
        report = {**about, "faults": faults, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(report, indent=1), flush=True)
    else:
        lines = [f"{it.level:<8} {it.subject}: {' '.join(it.message.split())}" for it in findings]
        # a line each where it is no person's terminal
        (print_words if terminal.out.is_terminal else print_lines)(terminal.out, *lines)
    status = 2 if faults else 0
    if any(thread.daemon for thread in threading.enumerate()):  # a check hangs, and libraries would wait for it at exit
        os._exit(status)
    raise SystemExit(status)


def check_certificate(tls: Transport, process: Identity) -> list[Finding]:
    """Check that the files fit each other and the process, their dates, and who can read the key."""
    subject = "certificate"
    if isinstance(tls, Insecure):
        return [Finding("warning", subject, "insecure = true: none; any process on this host can use any name")]
    try:
        tls.inspect(process.name, process.role)
    except ConfigError as fault:
        return [Finding("fault", subject, str(fault))]
    findings = []
    if warning := tls.open_key():
        findings.append(Finding("warning", "key", warning))
    own = read_certificates(tls.certificate)[0]
    authorities = read_certificates(tls.ca)
    if listed := tls.revocations(authorities):
        left = listed.until - datetime.now(UTC)
        number = sum(map(len, listed.serials.values()))
        until = f"{tls.revoked}: {number} revoked, holds until {listed.until:%Y-%m-%d}, {left.days} days"
        late = left < SOON
        remedy = f", which is within {SOON.days} days: {lists.REMEDY}"
        findings.append(Finding("warning" if late else "ok", "revoked", until + (remedy if late else "")))
    again = f"ask for another: treetap certs request {process.name} --role {process.role} --out FOLDER"
    for what, path, certificate, how in [
        (subject, tls.certificate, own, again),
        *(("authority", tls.ca, authority, "make a new authority in time") for authority in authorities),
    ]:
        last = certificate.not_valid_after_utc
        left = last - datetime.now(UTC)
        until = f"{path}: SHA-256 {fingerprint(certificate)}, valid until {last:%Y-%m-%d %H:%M} UTC, {left.days} days"
        if left < SOON:
            findings.append(Finding("warning", what, f"{until}, which is within {SOON.days} days; {how}"))
        else:
            findings.append(Finding("ok", what, until))
    return findings


def check_server(to: Address, tls: Transport) -> list[Finding]:
    """Check that a treetap server of that name answers there, with our version and time."""
    subject = f"{to.name} at {to.location}"
    try:
        heard = say_hello(to, tls, HELLO_S)
    except ConfigError as fault:
        return [Finding("fault", subject, f"our own TLS files cannot be used: {fault}")]
    except Refused as refusal:
        return [Finding("fault", subject, str(refusal))]
    except Interrupted as silent:
        if isinstance(tls, Insecure):
            return [Finding("fault", subject, f"{silent}; is it there, and insecure = true in its file too?")]
        line = examine(to, tls, PROBE_S).line
        return [Finding("fault", subject, line.removeprefix(f"{subject}: "))]
    state = "answers and serves" if heard.serving else "answers, but does not serve: it is stopping or starting"
    findings = [Finding("ok" if heard.serving else "warning", subject, state)]
    return findings + _version_findings(subject, heard) + _clock_findings(subject, heard)


def _version_findings(subject: str, heard: Hello) -> list[Finding]:
    ours, release = str(version.PROTOCOL_VERSION), version.package_version()
    if heard.protocol != ours:
        spoken = "sends no version" if heard.protocol is None else f"speaks version {heard.protocol[:20]!r}"
        remedy = "install the same release of treetap on both"
        return [Finding("fault", subject, f"{spoken} of the protocol, we speak {ours!r}; {remedy}")]
    same = heard.release == release
    more = "" if same else f"; here is {release}, which speaks the same protocol: install one release on both"
    return [Finding("ok" if same else "warning", subject, f"treetap {heard.release}, protocol version {ours}{more}")]


def _clock_findings(subject: str, heard: Hello) -> list[Finding]:
    if heard.skew_s is None:
        return [Finding("warning", subject, "does not report its time, so that clocks cannot be compared")]
    least = max(0.0, abs(heard.skew_s) - heard.within_s)
    level: Level = "fault" if least > MOST_SKEW_S else "warning" if least > SKEW_S else "ok"
    side = "ahead of" if heard.skew_s > 0 else "behind"
    said = f"its clock is {abs(heard.skew_s):.1f} s {side} ours (give or take {heard.within_s:.1f} s)"
    remedy = "" if level == "ok" else "; synchronise both hosts' clocks: certificates are judged by them"
    return [Finding(level, subject, said + remedy)]


def check_listen(process: Identity, listen: str, tls: Transport, field: str = "listen") -> list[Finding]:
    """Check that the port is free, or that this process listens there."""
    subject, name = f"{field} = {listen}", process.name
    if not (fault := listening_fault(listen)):
        where = "a free port will be taken" if listen.endswith(":0") else "free"
        return [Finding("ok", subject, f"{where}; the process does not run here now")]
    if fault != os.strerror(errno.EADDRINUSE):
        return [Finding("fault", subject, f"{fault}; name an address of this host, and a port that this user may take")]
    own = tls if isinstance(tls, Insecure) else replace(tls, proxied=False)  # on this host
    findings = check_server(Address(name, asked_at(listen), process.role), own)
    if findings[0].level == "fault":
        who = f"{fault}, and the process there is not {name}"
        return [Finding("fault", subject, f"{who} ({findings[0].message}); stop it, or choose another port")]
    return [Finding(finding.level, subject, f"{name} runs: it {finding.message}") for finding in findings[:1]] + [
        Finding(finding.level, subject, finding.message) for finding in findings[1:]
    ]


def check_relay(relay: Address, process: Identity, tls: Transport) -> list[Finding]:
    """Check that the relay of a file is there, and that the process, if it runs, is reached through it."""
    subject = f"relay = {relay.location}"
    assert not isinstance(tls, Insecure), "insecure = true excludes a relay"
    seen = examine(relay, tls, PROBE_S, further=False)
    if not seen.trusted:
        return [Finding("fault", subject, seen.line)]
    try:
        say_hello(Address(process.name, relay.location, process.role), tls, HELLO_S)
    except (Interrupted, Refused):
        return [Finding("warning", subject, f"{relay.name} is there; {process.name} is not registered: read its log")]
    return [Finding("ok", subject, f"{process.name} is registered and reached there")]


def check_relays_port(process: Identity, listen: str, tls: TlsFiles) -> list[Finding]:
    """Check that a relay's own port is free, or that it listens there."""
    subject = f"listen = {listen}"
    if not (fault := listening_fault(listen)):
        return [Finding("ok", subject, "free; the relay does not run here now")]
    seen = examine(Address(process.name, asked_at(listen), process.role), tls, PROBE_S, further=False)
    if seen.trusted:
        return [Finding("ok", subject, f"{process.name} runs")]
    return [Finding("fault", subject, f"{fault}, and the process there is not {process.name}; choose another port")]


def check_metrics(name: str, listen: str) -> list[Finding]:
    """Check that the port for metrics is free, or that this process answers there."""
    subject = f"metrics = {listen}"
    if not (fault := listening_fault(listen)):
        return [Finding("ok", subject, "free")]
    host, _, port = asked_at(listen).rpartition(":")
    with suppress(OSError, HTTPException):
        connection = HTTPConnection(host.strip("[]"), int(port), timeout=HELLO_S)
        connection.request("GET", "/metrics")
        if f'name="{name}"' in connection.getresponse().read(1 << 20).decode(errors="replace"):
            return [Finding("ok", subject, f"{name} answers there")]
    return [Finding("fault", subject, f"{fault}, and the process there is not {name}; choose a free port")]


def check_telemetry(name: str, config: TelemetryConfig) -> list[Finding]:
    """Have the collector take a request without spans. One that does not costs spans, and no job."""
    subject = f"telemetry = {config.endpoint}"
    try:
        from treetap.process.spans import Exporter
    except ModuleNotFoundError as missing:
        return [Finding("fault", subject, f"needs {missing.name}: {install('telemetry')}, or leave the table out")]
    try:
        exporter = Exporter(name, config, lambda _: None, HELLO_S)
    except ConfigError as fault:
        return [Finding("fault", subject, str(fault))]
    exporter.export([])
    if exporter.why:
        return [Finding("warning", subject, f"the collector takes no spans: {exporter.why}; jobs go on without")]
    variables = sorted(variable for variable in os.environ if variable.startswith(OF_SPANS))
    said = f"; in effect: {', '.join(variables)}" if variables else ""
    return [Finding("ok", subject, f"the collector takes spans{said}")]


def check_http(process: Identity, listen: str, tls: TlsFiles | None) -> list[Finding]:
    """The same check of a gateway's port; `tls`: None for plain HTTP."""
    subject, name = f"listen = {listen}", process.name
    if find_spec("aiohttp") is None:
        return [Finding("fault", subject, f"a gateway needs aiohttp: {install('serve')}")]
    if not (fault := listening_fault(listen)):
        return [Finding("ok", subject, "free; the process does not run here now")]
    host, _, port = asked_at(listen).rpartition(":")
    with suppress(OSError, HTTPException, ValueError):
        if tls is None:
            connection = HTTPConnection(host.strip("[]"), int(port), timeout=HELLO_S)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which reads no variable of the environment
            context.load_verify_locations(tls.ca)
            context.check_hostname = False  # names are not hosts: compared below
            tls.load_into(context)
            connection = HTTPSConnection(host.strip("[]"), int(port), timeout=HELLO_S, context=context)
        connection.connect()
        shown = connection.sock.getpeercert() if isinstance(connection.sock, ssl.SSLSocket) else None
        own = tls is None or ("DNS", process.dns) in (shown or {}).get("subjectAltName", ())
        connection.request("GET", "/healthz", headers={"Host": listen})  # whatever address that means
        said = json.loads(connection.getresponse().read(1 << 16))
        if own and said["status"] in ("serving", "idle"):
            return [Finding("ok", subject, f"{name} runs: it is {said['status']}")]
    return [Finding("fault", subject, f"{fault}, and the process there is not {name}; choose a free port")]


def check_proxy(transport: Transport) -> list[Finding]:
    """Say whether the environment's proxy is in effect; a fault where the one that a file asks for cannot be used."""
    proxied, variable = not isinstance(transport, Insecure) and transport.proxied, named()
    if not proxied and variable is None:
        return []
    said = f"{variable} is set and ignored: calls go directly; {ASKED} in this file has them go through that proxy"
    if proxied:
        try:
            proxy_to("proxy.invalid:443")
        except ConfigError as fault:
            return [Finding("fault", "proxy", str(fault))]
        said = f"https_proxy is not set, nor another variable that {ASKED} reads: calls go directly"
        if variable is not None:
            said = f"{variable} is in effect, as {ASKED} asks: calls to other hosts go through the proxy that it names"
    return [Finding("ok", "proxy", said)]


def check_state(state: Path) -> list[Finding]:
    """Check that the state folder can be written, or made if it does not exist."""
    subject = f"state = {state}"
    try:
        if state.is_dir():
            with tempfile.TemporaryFile(dir=state) as file:
                file.write(bytes(1 << 20))  # an empty file can be made on a full disk too
            return [Finding("ok", subject, f"can be written; {size(disk_usage(state).free)} are free")]
        if state.exists():
            return [Finding("fault", subject, "is a file; name a folder")]
    except OSError as failure:
        return [Finding("fault", subject, f"cannot be written: {failure.strerror}; give it to this user, or make room")]
    above = next(folder for folder in state.resolve().parents if folder.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return [Finding("ok", subject, "is not there yet; it will be made")]
    return [
        Finding("fault", subject, f"is not there and cannot be made in {above}; make it for this user, or mount it")
    ]
