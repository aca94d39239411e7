"""Admission to a gRPC server: shares of calls and memory, limits on messages, and messages that cannot be decoded."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import certified, dns_of, namesake
from tests.sockets import listening
from treetap import version
from treetap.errors import Malformed, Overloaded, TreetapError, UnknownJob
from treetap.party.server.services import register
from treetap.wire import admission, rpc
from treetap.wire.callers import Callers, error_of
from treetap.wire.frame import filled
from treetap.wire.ports import Address, Role
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import boosting_pb2, control_pb2, exchange_pb2

pytestmark = pytest.mark.real_time

PARTY = "feature-b"
MIB = 1024 * 1024


class _Party:
    """Takes what comes, and answers when it may."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.under_way = self.most = 0
        self.entered = asyncio.Condition()

    async def step(self, _caller: str, _request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        await self._wait()
        yield control_pb2.StepEvent()

    async def deliver(self, _caller: str, *_message: object) -> exchange_pb2.Receipt:
        await self._wait()
        return exchange_pb2.Receipt()

    async def _wait(self) -> None:
        async with self.entered:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.entered.notify_all()
        try:
            await self.open.wait()
        finally:
            self.under_way -= 1
            async with self.entered:
                self.entered.notify_all()

    async def full(self, calls: int) -> None:
        """Wait for that many calls to be under way."""
        async with asyncio.timeout(10), self.entered:
            await self.entered.wait_for(lambda: self.under_way == calls)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    """Of the party, of two that call it, and of a coordinator."""
    return certified(tmp_path_factory.mktemp("certs"), PARTY, "one", "other", "coordinator", days=2)


Calls = Callable[[str], rpc.GrpcDialer]


@asynccontextmanager
async def _serving(
    certificates: dict[str, TlsFiles], most_calls: int = admission.MOST_CALLS
) -> AsyncIterator[tuple[_Party, Address, Calls]]:
    """A party, its address, and dialers by name of the caller."""
    party = _Party()
    dialers: list[rpc.GrpcDialer] = []

    def dialer(name: str) -> rpc.GrpcDialer:
        dialers.append(rpc.GrpcDialer(certificates[name]))
        return dialers[-1]

    register_party = partial(register, port=party)
    async with listening(Callers(PARTY, certificates[PARTY]), register_party, most_calls=most_calls) as address:
        try:
            yield party, Address(PARTY, address), dialer
        finally:
            for each in dialers:
                await each.close()


def _message(size: int) -> bytes:
    body = boosting_pb2.Gradients(ciphertexts=bytes(size))
    return filled(exchange_pb2.PeerMessage(job="j", attempt=1), "gradients", body).SerializeToString()


async def _raw(channel: grpc.aio.Channel, method: str, message: bytes) -> TreetapError:
    """The error of a call with that message."""
    failure = await _failure(channel.unary_unary(method)(message, timeout=10, metadata=version.told()))
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    return error_of(failure, PARTY)


async def _failure(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    return failure.value


async def _refused(call: Awaitable[object]) -> str:
    with pytest.raises(Overloaded) as failure:
        await call
    return str(failure.value)


@pytest.mark.parametrize(
    ("caller", "method"),
    [("one", "treetap.wire.v2.Exchange/Deliver"), ("coordinator", "treetap.wire.v2.Control/Step")],
)
async def test_what_cannot_be_decoded_is_the_callers_fault(
    caller: str, method: str, certificates: dict[str, TlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller hears so, and the log has one line without a traceback."""

    with caplog.at_level(logging.WARNING):
        async with _serving(certificates) as (_, to, dialer):
            error = await _raw(dialer(caller).channels.channel(to), f"/{method}", b"\x0a\xff\xff\xff\xff\x0fno message")
            assert isinstance(error, Malformed)
            assert str(error) == f"a message that {method.rpartition('/')[2]} cannot decode"
    ours = [each for each in caplog.records if each.name.startswith("treetap")]  # gRPC's poller may outlive its loop
    assert [(each.name, each.exc_info) for each in ours] == [("treetap.wire.callers", None)]


async def test_a_message_in_another_role_is_not_read(certificates: dict[str, TlsFiles]) -> None:
    """A step by a party and a message by a coordinator, neither of which ever comes, are refused at once."""

    async with _serving(certificates, most_calls=2) as (party, to, dialer):
        for caller, method in (("one", "Control/Step"), ("coordinator", "Exchange/Deliver")):
            ask = dialer(caller).channels.channel(to).stream_unary(f"/treetap.wire.v2.{method}")
            failure = await _failure(ask(timeout=5, metadata=version.told()))
            assert failure.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "by its certificate" in (failure.details() or "")
        assert party.most == 0


async def test_messages_have_a_longest(certificates: dict[str, TlsFiles]) -> None:
    """A part of a party's has room to spare; a step, and what is longer than any part, is refused."""

    async with _serving(certificates) as (_, to, dialer):
        await dialer("one").deliver(to, _message(3 * MIB // 2))
        step = control_pb2.StepRequest(job="x" * (3 * MIB // 2)).SerializeToString()
        error = await _raw(dialer("coordinator").channels.channel(to), "/treetap.wire.v2.Control/Step", step)
        assert f"a message of {len(step)} bytes; those of Step have {MIB} at most" in str(error)
        ca, certificate, key = certificates["one"].read()
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        named = [("grpc.ssl_target_name_override", dns_of(PARTY))]
        async with grpc.aio.secure_channel(to.location, credentials, options=named) as channel:
            deliver = channel.unary_unary("/treetap.wire.v2.Exchange/Deliver")
            failure = await _failure(deliver(bytes(5 * MIB // 2), timeout=10, metadata=version.told()))
        assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_one_caller_has_half_of_all_calls(certificates: dict[str, TlsFiles]) -> None:
    """Over any number of connections and methods; the other's call is answered meanwhile, and health to both."""

    async with _serving(certificates, most_calls=8) as (party, to, dialer):
        party.open.clear()
        held = [asyncio.ensure_future(dialer("one").deliver(to, _message(1))) for _ in range(4)]
        await party.full(4)
        fault = await _refused(dialer("one").deliver(to, _message(1)))
        assert fault == "one has 4 calls under way here, of at most 4; repeat this one later"
        stub = health_pb2_grpc.HealthStub(dialer("one").channels.channel(to))
        failure = await _failure(stub.Check(health_pb2.HealthCheckRequest(), timeout=10))
        assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stub = health_pb2_grpc.HealthStub(dialer("other").channels.channel(to))
        assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)).status
        party.open.set()
        await dialer("other").deliver(to, _message(1))
        await asyncio.gather(*held)
        await dialer("one").deliver(to, _message(1))


async def test_a_share_is_that_of_a_name_in_a_role(certificates: dict[str, TlsFiles], tmp_path: Path) -> None:
    """A coordinator with the name of a party that has used its share up is not refused for it."""
    other = namesake(tmp_path, "one", Role.COORDINATOR, certificates[PARTY].ca.parent)

    async with _serving(certificates | {"namesake": other}, most_calls=8) as (party, to, dialer):
        party.open.clear()
        held = [asyncio.ensure_future(dialer("one").deliver(to, _message(1))) for _ in range(4)]
        await party.full(4)
        step = asyncio.ensure_future(anext(dialer("namesake").step(to, control_pb2.StepRequest(job="j"))))
        await party.full(5)
        party.open.set()
        await asyncio.gather(*held, step)


def test_a_refused_message_is_forgotten(certificates: dict[str, TlsFiles]) -> None:
    """No traceback keeps it until the garbage collector comes: under a flood that would be too late."""
    came: list[object] = []

    async def main() -> None:
        async with _serving(certificates) as (party, to, dialer):

            async def deliver(_caller: str, *message: object) -> exchange_pb2.Receipt:
                came.extend(message)
                raise UnknownJob("there is no such job")

            party.deliver = deliver  # type: ignore[method-assign]
            with pytest.raises(UnknownJob):
                await dialer("one").deliver(to, _message(1))
            await asyncio.sleep(0.05)
            held = [sys.getrefcount(came.pop()) for _ in range(2)]  # the message, and its bytes
            assert held == [1, 1]  # by the argument

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


async def test_one_callers_messages_wait_for_memory(
    certificates: dict[str, TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many are decoded as have room; the others wait and are answered in the end; another caller does not wait."""
    monkeypatch.setattr(admission, "MOST_DECODED", 3 * admission.GROWTH * 1100)

    async with _serving(certificates) as (party, to, dialer):
        party.open.clear()
        held = [asyncio.ensure_future(dialer("one").deliver(to, _message(1000))) for _ in range(7)]
        await party.full(3)
        other = asyncio.ensure_future(dialer("other").deliver(to, _message(1000)))
        await party.full(4)
        party.open.set()
        await asyncio.gather(*held, other)
        assert party.most == 4


async def test_a_message_that_does_not_come_ends(
    certificates: dict[str, TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is opened and never sends its message holds a part of its caller's share for a bounded time."""
    monkeypatch.setattr(admission, "ARRIVAL_S", 0.2)

    async with _serving(certificates, most_calls=2) as (_, to, dialer):
        call = (
            dialer("one")
            .channels.channel(to)
            .stream_unary("/treetap.wire.v2.Exchange/Deliver")(timeout=10, metadata=version.told())
        )
        assert isinstance(error_of(await _failure(call), PARTY), Overloaded)
        await dialer("one").deliver(to, _message(1))


async def test_a_call_that_is_given_up_leaves_its_share(certificates: dict[str, TlsFiles]) -> None:
    """Steps and messages whose caller goes away in the middle count no more."""

    async with _serving(certificates, most_calls=8) as (party, to, dialer):
        party.open.clear()
        for _ in range(5):
            held = [
                asyncio.ensure_future(dialer("one").deliver(to, _message(1))),
                asyncio.ensure_future(anext(aiter(dialer("coordinator").step(to, control_pb2.StepRequest(job="j"))))),
            ]
            await party.full(2)
            for each in held:
                each.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            await party.full(0)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of libraries that it finds among all objects
async def test_paths_that_callers_invent_are_not_kept(certificates: dict[str, TlsFiles]) -> None:
    """The refusal of another version answers any path; a server remembers those of its own services only."""

    async with _serving(certificates) as (_, to, dialer):
        channel = dialer("one").channels.channel(to)
        for number in range(3):
            call = channel.unary_unary(f"/treetap.wire.v9.Control/Step{number}")
            assert (await _failure(call(b"", timeout=10))).code() is grpc.StatusCode.ABORTED
        servers = [each for each in gc.get_objects() if isinstance(each, admission.Admission)]
        assert servers
        assert not [path for each in servers for path in each._wrapped if "v9" in path]


async def test_health_is_not_watched(certificates: dict[str, TlsFiles]) -> None:
    """A watch would last for ever, by the certificate that its caller had when it began."""
    async with _serving(certificates) as (_, to, dialer):
        stub = health_pb2_grpc.HealthStub(dialer("one").channels.channel(to))
        failure = await _failure(anext(aiter(stub.Watch(health_pb2.HealthCheckRequest(), timeout=10))))
        assert failure.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "use Check" in str(failure.details())
