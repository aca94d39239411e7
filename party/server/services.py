"""The party's gRPC services, for the coordinator, parties, approvers and clients, and the servers for clients.

A service decodes, calls and encodes; admission maps errors. Clients have a server of their own, which runs as long as
the party; those of HTTP ask through a gateway. While no model is served it answers with an error that says so, which
differs from a process that is down.

Slow functions run off the event loop, in threads. A thread that is done waits for further work: a batch of a network
has three such functions, each shorter than the start of a thread. No process can end a thread that waits in the kernel
for a disk or a server that does not answer. Its step ends after `silence_s`, by name; the thread is a daemon, so that
the process leaves at SIGTERM without it.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from treetap.errors import Interrupted
from treetap.party.config import PartyConfig
from treetap.party.serving.registry import ServedModels
from treetap.usage import LOOKS, SilenceWatch
from treetap.wire import rpc
from treetap.wire.callers import CALLER, Callers, refuse_other_versions
from treetap.wire.ports import Role
from treetap.wire.probe import serve_health
from treetap.wire.v2 import (
    approvals_pb2,
    approvals_pb2_grpc,
    control_pb2,
    control_pb2_grpc,
    exchange_pb2,
    serving_pb2,
    serving_pb2_grpc,
)
from treetap.workers.engines import Turns

if TYPE_CHECKING:
    import grpc.aio

    from treetap.party.approvals.desk import Desk
    from treetap.party.approvals.overview import Overview
    from treetap.party.node import PartyNode
    from treetap.wire.v2 import overview_pb2


#: Most bytes of a client's request, and seconds that its connection may stay without one.
MOST_BYTES, IDLE_S = 1024 * 1024, 60.0
#: Calls of clients at once, half of them of one client, where a gateway sends them over one connection.
GATEWAY_CALLS = 1024
Context = grpc.aio.ServicerContext[object, object]


class PartyService(control_pb2_grpc.ControlServicer):
    """The services for the coordinator and for other parties."""

    def __init__(self, callers: Callers, port: PartyNode) -> None:
        self._callers, self._port = callers, port

    async def Step(self, request: control_pb2.StepRequest, context: Context) -> AsyncIterator[control_pb2.StepEvent]:
        async for event in self._port.step(CALLER.get(), request):
            self._callers.named(context, Role.COORDINATOR)  # a step may outlast its caller's certificate
            yield event

    async def deliver(self, request: tuple[exchange_pb2.PeerMessage, bytes], _context: Context) -> exchange_pb2.Receipt:
        """Answer `Deliver`: see exchange.proto."""
        return await self._port.deliver(CALLER.get(), *request)


class ApprovalsService(approvals_pb2_grpc.ApprovalsServicer):
    """The service for the party's approvers. `desk`: what answers, imported when one calls."""

    def __init__(self, desk: Callable[[], Desk]) -> None:
        self._desk = desk

    async def List(self, request: approvals_pb2.AskedJobs, _context: Context) -> AsyncIterator[approvals_pb2.AskedJob]:
        for asked in self._desk().jobs(CALLER.get(), request):
            yield asked

    async def Decide(self, request: approvals_pb2.DecideRequest, _context: Context) -> approvals_pb2.AskedJob:
        return self._desk().decide(CALLER.get(), request)

    async def Stand(self, request: approvals_pb2.StandRequest, _context: Context) -> approvals_pb2.StandingApproval:
        return self._desk().stand(CALLER.get(), request)

    async def ListStanding(
        self, request: approvals_pb2.AskedJobs, _context: Context
    ) -> AsyncIterator[approvals_pb2.StandingApproval]:
        for standing in self._desk().standing(CALLER.get(), request):
            yield standing

    async def Revoke(self, request: approvals_pb2.RevokeRequest, _context: Context) -> approvals_pb2.StandingApproval:
        return self._desk().revoke(CALLER.get(), request)


class ServingService(serving_pb2_grpc.ServingServicer):
    """The label holder's service for clients."""

    def __init__(self, served_models: ServedModels) -> None:
        self._served_models = served_models

    async def Predict(self, request: serving_pb2.PredictRecords, context: Context) -> serving_pb2.PredictedRecords:
        """Predict within the shorter of the call's deadline and the party's."""
        return await self._served_models.predict(CALLER.get(), request, context.time_remaining())

    async def Describe(self, request: serving_pb2.DescribeModel, _context: Context) -> serving_pb2.ModelDescription:
        return self._served_models.describe(CALLER.get(), request.model)


def register(server: grpc.aio.Server, callers: Callers, port: PartyNode) -> None:
    """Add the services of a party to a server."""
    service = PartyService(callers, port)
    control_pb2_grpc.add_ControlServicer_to_server(service, server)
    rpc.serve_exchange(server, service.deliver)
    refuse_other_versions(server, callers)


def register_for_approvers(server: grpc.aio.Server, desk: Callable[[], Desk], overview: Callable[[], Overview]) -> None:
    """Add the services for approvers of a party to a server."""
    approvals_pb2_grpc.add_ApprovalsServicer_to_server(ApprovalsService(desk), server)

    async def show(request: overview_pb2.AskedView, _context: Context) -> overview_pb2.View:
        return await overview().show(CALLER.get(), request)

    rpc.serve_overview(server, show)


def register_for_clients(server: grpc.aio.Server, callers: Callers, served_models: ServedModels) -> None:
    """Add the service for clients of a party to a server."""
    serving_pb2_grpc.add_ServingServicer_to_server(ServingService(served_models), server)
    refuse_other_versions(server, callers)


class ScoringServer:
    """The server for clients listens from `open` on; without `[serve]` there is none."""

    def __init__(self) -> None:
        self._server: grpc.aio.Server | None = None

    async def open(self, config: PartyConfig, served_models: ServedModels) -> None:
        """Listen, and enter the address in the registry of served models. Raises `BadInput` if that fails."""
        served = config.serve
        if served is None:
            return
        callers = Callers(config.name, config.transport(), served_models.own_paths, served.gateway)
        most_calls = served.queue if served.gateway is None else max(served.queue, GATEWAY_CALLS)
        self._server, credentials = rpc.server(callers, MOST_BYTES, most_calls, IDLE_S)
        register_for_clients(self._server, callers, served_models)
        serve_health(self._server, lambda: served_models.ready)
        address = rpc.bind(self._server, credentials, served.listen, "serve.listen")
        await self._server.start()
        served_models.address = address

    async def close(self, grace_s: float) -> None:
        """Stop; calls under way may take `grace_s` seconds to end."""
        if self._server is not None:
            await self._server.stop(grace_s)


T = TypeVar("T")


#: Most threads that wait for work.
MOST_IDLE = 4


class _Thread:
    """A thread that does one function of `work` after another, none of which raises, and ends with None."""

    def __init__(self) -> None:
        self._clock = 0
        self.work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="offload", daemon=True).start()

    def _run(self) -> None:
        if clock_of := getattr(time, "pthread_getcpuclockid", None):
            self._clock = clock_of(threading.get_ident())
        while (work := self.work.get()) is not None:
            work()
            del work  # and with it the data that it holds

    def run_ns(self) -> int:
        """Nanoseconds that it has run on a processor; 0 before it begins, after its end, and always on macOS."""
        with suppress(OSError):
            return time.clock_gettime_ns(self._clock) if self._clock else 0
        return 0


class Threads:
    """`Offload` to threads; `silence_s`: seconds without running after which a thread counts as stuck."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s, self._turns = silence_s, Turns()
        self._idle: list[_Thread] = []

    async def __call__(self, work: Callable[[], T], *, whole: bool = False, us: float = math.inf) -> T:
        """The result of `work()`. `whole`, `us`: see `Offload`.

        Raises:
            Interrupted: the thread waits for the file system, and it has not run for `silence_s`.
            Exception: whatever `work` raises.
        """
        if self._turns.take(us):
            return work()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        thread = self._idle.pop() if self._idle else _Thread()
        context = copy_context()

        def run() -> None:
            settle: Callable[[], None]
            try:
                settle = partial(outcome.set_result, context.run(work))
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                settle = partial(outcome.set_exception, error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._ended, thread, outcome, settle)

        thread.work.put(run)
        watch = SilenceWatch(thread.run_ns, loop.time)
        cancelled: asyncio.CancelledError | None = None
        while not outcome.done():
            try:
                await asyncio.wait({outcome}, timeout=self._silence_s / LOOKS)
            except asyncio.CancelledError as caught:
                if not whole:
                    outcome.cancel()  # nor does an error of the work have a caller then
                    raise
                cancelled = caught
            if not outcome.done() and watch.silent_s() >= self._silence_s:
                outcome.cancel()
                raise Interrupted(
                    f"a file operation has not ended for {self._silence_s:g} s: is the disk, or the server that holds "
                    "the files, there? restart this party when it is"
                )
        if cancelled is not None:
            outcome.exception()  # its caller is gone
            raise cancelled
        return outcome.result()

    def _ended(self, thread: _Thread, outcome: asyncio.Future[T], settle: Callable[[], None]) -> None:
        """In the loop, after a thread has done its function: keep it for further work or end it; settle the outcome."""
        if len(self._idle) < MOST_IDLE:
            self._idle.append(thread)
        else:
            thread.work.put(None)
        if not outcome.done():  # its caller may be gone
            settle()
