"""Metrics over HTTP: who may ask, for how long, how many at once, and what the answer tells of the server."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from treetap import metrics
from treetap.commands.certs.authority import create_authority, issue
from treetap.metrics import ProcessMetrics
from treetap.ops.certs.requests import revoke
from treetap.wire.ports import Role
from treetap.wire.tls import Insecure


def _served() -> tuple[str, int]:
    address = ProcessMetrics("party", "bank").serve("127.0.0.1:0")
    assert address is not None
    return "127.0.0.1", int(address.removeprefix("127.0.0.1:"))


def _asked(address: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(address, timeout=5) as made:
        made.sendall(request)
        found = b""
        try:
            while more := made.recv(1 << 16):
                found += more
        except ConnectionError:
            pass
    return found


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:9464", 200), ("localhost", 200), ("rebound.example:9464", 421), ("", 421)]
)
def test_metrics_on_loopback_are_asked_for_there(host: str, status: int) -> None:
    """A page that a browser was led from reads none; no answer names the library."""
    address = _served()
    found = _asked(address, f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = found.partition(b"\r\n\r\n")
    assert int(head.split(b" ")[1]) == status
    assert (b"treetap_build_info" in body) == (status == 200)
    assert b"server:" not in head.lower()
    assert b"server:" not in _asked(address, b"\x16\x03\x01 no HTTP\r\n\r\n").lower()


def _close(**days: float) -> object:
    return pytest.approx(days, abs=0.1, nan_ok=True)


def test_ends_of_certificates_are_read_at_each_scrape(tmp_path: Path) -> None:
    """The own one, the authority that ends first, the list; a file that cannot be read is NaN, plain text has none."""
    create_authority(tmp_path)
    create_authority(tmp_path / "second", days=99)
    (tmp_path / "both.crt").write_bytes(b"".join((tmp_path / at).read_bytes() for at in ("ca.crt", "second/ca.crt")))
    made = issue(tmp_path, "bank", Role.PARTY, days=9)
    files = replace(made, ca=tmp_path / "both.crt", revoked=tmp_path / "both.pem")
    asked, plain = ProcessMetrics("party", "bank"), ProcessMetrics("party", "bank")
    asked.certificates(files)
    plain.certificates(Insecure("bank"))
    name = "treetap_certificate_end_timestamp_seconds"

    def days() -> dict[str, float]:
        return {labels["what"]: (value - time.time()) / 86400 for _, labels, value in asked.samples(name)}

    assert days() == _close(own=9, authority=99, revoked=nan)
    lists = revoke(tmp_path, days=5)[0], revoke(tmp_path / "second", days=6)[0]
    (tmp_path / "both.pem").write_bytes(b"".join(path.read_bytes() for path in lists))
    files.certificate.unlink()
    assert days() == _close(own=nan, authority=99, revoked=5)
    assert not list(plain.samples(name))


def test_silent_connections_do_not_keep_collectors_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many may say nothing, for a bounded time; one more is closed at once."""
    monkeypatch.setattr(metrics, "MOST_REQUESTS", 2)
    monkeypatch.setattr(metrics, "SLOWEST_S", 0.3)
    address = _served()
    silent = [socket.create_connection(address, timeout=5) for _ in range(3)]
    assert silent[2].recv(1) == b""
    assert silent[0].recv(1) == silent[1].recv(1) == b""
    ended, found = time.monotonic(), b""
    while not found:  # a connection ends before its thread gives its place back
        assert time.monotonic() - ended < 5
        found = _asked(address, b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in found
    for each in silent:
        each.close()


@pytest.mark.second_tier
@pytest.mark.parametrize("begun", [b"GET /", b"GET /metrics HTTP/1.0\r\nX: "], ids=["first line", "header"])
def test_a_trickling_connection_has_one_deadline(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep the place of a collector, which comes in when the time is over."""
    monkeypatch.setattr(metrics, "MOST_REQUESTS", 1)
    monkeypatch.setattr(metrics, "SLOWEST_S", 0.3)
    address = _served()
    with socket.create_connection(address, timeout=0.02) as made:
        made.sendall(begun)
        began, ended = time.monotonic(), False
        while not ended and time.monotonic() - began < 5:
            try:
                made.sendall(b"a")
                ended = made.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
    assert ended
    found = b""
    while b"200 OK" not in found and time.monotonic() - began < 10:  # its thread may still be about to end
        found = _asked(address, b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in found


@pytest.mark.parametrize(("length", "answered"), [(8000, True), (9000, False)])
def test_a_long_first_line_is_not_read(length: int, answered: bool) -> None:
    """The limit is 8 KiB; beyond it the connection ends without an answer."""
    address = _served()
    found = _asked(address, b"GET /" + b"a" * length + b" HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (found != b"") is answered
