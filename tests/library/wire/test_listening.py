"""Listening at a name: every address that it has, at one port."""

from __future__ import annotations

import errno
import logging
import socket
import time
from contextlib import ExitStack
from typing import Any
from urllib.request import urlopen

import pytest

from tests.names import stands_for
from treetap.errors import BadInput
from treetap.metrics import ProcessMetrics
from treetap.wire import listening
from treetap.wire.listening import TRIES, bound
from treetap.wire.rpc import listening_fault

FIRST, SECOND = "127.0.0.1", "127.0.0.2"
#: No host has it (RFC 5737).
NOWHERE = "198.51.100.7"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose name has two addresses."""
    stands_for(monkeypatch, "localhost", FIRST, SECOND)


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def _has_v6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _reached(port: int, *hosts: str) -> None:
    for host in hosts:
        socket.create_connection((host, port), timeout=5).close()


@pytest.mark.usefixtures("two")
def test_every_address_has_the_same_port() -> None:
    """A free port is taken at both, and a connection to either is accepted."""
    with ExitStack() as stack:
        made = [stack.enter_context(each) for each in bound("localhost", 0, 4)]
        assert [each.getsockname()[0] for each in made] == [FIRST, SECOND]
        (port,) = {each.getsockname()[1] for each in made}
        _reached(port, FIRST, SECOND)


@pytest.mark.skipif(not _has_v6(), reason="this host has no IPv6")
@pytest.mark.parametrize("addresses", [(FIRST, "::1"), ("::1", FIRST), ("0.0.0.0", "::")])
def test_both_families_at_one_port(addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 and IPv6 in either order, and everywhere: one does not take the port from the other."""
    stands_for(monkeypatch, "localhost", *addresses)
    with ExitStack() as stack:
        made = [stack.enter_context(each) for each in bound("localhost", 0, 4)]
        assert [each.family for each in made] == [
            socket.AF_INET6 if ":" in each else socket.AF_INET for each in addresses
        ]
        _reached(made[0].getsockname()[1], FIRST, "::1")


def test_an_address_that_comes_twice_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `localhost` does where it stands on two lines of /etc/hosts."""
    stands_for(monkeypatch, "localhost", FIRST, FIRST)
    (only,) = bound("localhost", 0)
    only.close()


@pytest.mark.usefixtures("two")
def test_a_port_that_is_taken_at_one_address() -> None:
    """The error names the address, and the others are free again; doctor and gRPC say the same before they begin."""
    with socket.create_server((SECOND, 0)) as taken:
        port = taken.getsockname()[1]
        expected = f"Address already in use at {SECOND}, port {port}"
        with pytest.raises(OSError, match=expected) as failure:
            bound("localhost", port, 4)
        assert failure.value.errno == errno.EADDRINUSE
        assert _is_free(FIRST, port)
        assert listening_fault(f"localhost:{port}") == expected
        assert listening_fault(f"{SECOND}:{port}") == "Address already in use"
    assert listening_fault(f"localhost:{port}") is None


def _first_finds(monkeypatch: pytest.MonkeyPatch, port: int, times: int) -> list[Any]:
    """Free ports at the first address are `port` that many times; returns a list of those times."""
    bind, found = listening._socket, []

    def biased(family: Any, place: Any, *args: Any, **named: Any) -> socket.socket:
        if place[1] == 0 and len(found) < times:
            found.append(place)
            place = (place[0], port)
        return bind(family, place, *args, **named)

    monkeypatch.setattr(listening, "_socket", biased)
    return found


@pytest.mark.usefixtures("two")
def test_a_free_port_that_is_taken_at_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is tried, and the one at the first address is left."""
    with socket.create_server((SECOND, 0)) as taken, ExitStack() as stack:
        port = taken.getsockname()[1]
        found = _first_finds(monkeypatch, port, 2)
        made = [stack.enter_context(each) for each in bound("localhost", 0, 4)]
        assert len(found) == 2
        (other,) = {each.getsockname()[1] for each in made}
        assert other != port
        assert _is_free(FIRST, port)


@pytest.mark.usefixtures("two")
def test_the_search_for_a_free_port_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the error of the last try."""
    with socket.create_server((SECOND, 0)) as taken:
        found = _first_finds(monkeypatch, taken.getsockname()[1], 1000)
        with pytest.raises(OSError, match=f"Address already in use at {SECOND}"):
            bound("localhost", 0, 4)
    assert len(found) == TRIES


def test_an_address_that_the_host_does_not_have(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left out with a warning beside one that the host has; alone it is an error."""
    stands_for(monkeypatch, "localhost", NOWHERE, FIRST)
    with caplog.at_level(logging.WARNING):
        (made,) = bound("localhost", 0)
    assert made.getsockname()[0] == FIRST
    made.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"not listening at one address of a name: Cannot assign requested address at {NOWHERE}, port 0"
    ]
    with pytest.raises(OSError, match=r"^\[Errno 99\] Cannot assign requested address$"):
        bound(NOWHERE, 0)


@pytest.mark.usefixtures("two")
def test_metrics_at_every_address() -> None:
    """Prometheus finds them whichever address of the host's name it takes."""
    metrics = ProcessMetrics("party", "bank")
    where = metrics.serve("localhost:0")
    assert where is not None
    port = int(where.removeprefix("localhost:"))
    for host in (FIRST, SECOND):
        with urlopen(f"http://{host}:{port}/metrics", timeout=5) as answer:
            assert 'name="bank"' in answer.read().decode()
    with pytest.raises(
        BadInput, match=f"^metrics = 'localhost:{port}': cannot listen there: Address already in use at "
    ):
        ProcessMetrics("party", "shop").serve(f"localhost:{port}")


@pytest.mark.parametrize(("silent", "until"), [(2, 9.0), (100, 1.0)])
def test_a_name_server_that_is_not_there_yet_is_asked_again(
    silent: int, until: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some seconds; a name that does not exist is an error at once."""
    clock, asked, resolve = [0.0], list[str](), socket.getaddrinfo

    def resolving(host: str, *given: Any, **more: Any) -> Any:
        asked.append(host)
        if len(asked) <= silent:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve("127.0.0.1", *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(listening, "RESOLVING_S", until)
    if silent > 2:
        with pytest.raises(socket.gaierror, match="Temporary"):
            bound("a.name", 0)
        assert len(asked) == pytest.approx(until / 0.2, abs=2)
    else:
        for made in bound("a.name", 0):
            made.close()
        assert len(asked) == 3
