"""Admission of callers to a gRPC server: each has a share of its calls and of its memory.

gRPC by itself reads and decodes a message before a handler sees its sender, and holds all that come at once. Here a
call's message is read when its caller is known by its certificate and has room in its share. The handlers of all
services are wrapped: on the wire it is the same whether a handler is given its one message or reads it itself.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from treetap.errors import Malformed, Overloaded
from treetap.wire.callers import Callers
from treetap.wire.roles import Role
from treetap.wire.status import answering

#: Calls of a server at once; one caller has at most half of them.
MOST_CALLS = 128
#: Messages of one caller that are read, or wait for memory, at once; of others only the first window has come.
MOST_READS = 4
#: Bytes that one caller's decoded messages may take at once; further ones wait.
MOST_DECODED = 64 * 1024 * 1024
#: Times its own size that a message may take when it is decoded. Messages within a message that are empty have 2 bytes
#: each, and are 27 times as large in memory.
GROWTH = 32
#: Seconds in which a message has to come, and to find room beside the caller's others.
ARRIVAL_S = 60.0
Context = grpc.aio.ServicerContext[Any, Any]
Handler = Any  # gRPC's own, or its function
_Bearer = tuple[str, Role | None]  # name and role; plain text has no role where every role may call
#: Service → most bytes of a message to it, where that is less than a server's.
MOST_BYTES = {"treetap.wire.v2.Control": 1024 * 1024, "treetap.wire.v2.Jobs": 1024 * 1024}
#: Service → the role that may call it; of any other, such as the health service, every role.
ROLES = {
    "treetap.wire.v2.Control": Role.COORDINATOR,
    "treetap.wire.v2.Exchange": Role.PARTY,
    "treetap.wire.v2.Jobs": Role.OPERATOR,
    "treetap.wire.v2.Serving": Role.CLIENT,
}


class _Method:
    """A method that is called: its name, who may call it, the longest message to its service, how it is decoded."""

    def __init__(self, path: str, decode: Callable[[bytes], Any]) -> None:
        service, _, self.name = path.strip("/").rpartition("/")
        self.role = ROLES.get(service)
        self.most_bytes, self.decode = MOST_BYTES.get(service, sys.maxsize), decode


class _Share:
    """Calls and memory of a server that one caller uses at this moment."""

    def __init__(self) -> None:
        self.calls = 0
        self.reads = asyncio.Semaphore(MOST_READS)
        self._decoded = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def memory(self, wanted: int) -> AsyncIterator[None]:
        """Have room for that many bytes, as soon as there is; a message that is alone has room whatever its size."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._decoded == 0 or self._decoded + wanted <= MOST_DECODED)
            self._decoded += wanted
        try:
            yield
        finally:
            self._decoded -= wanted
            async with self._freed:
                self._freed.notify_all()


class Admission(grpc.aio.ServerInterceptor):
    """Admits the calls of all services of one server; whether a service is for the caller, its handler decides.

    What is not for the caller's role is refused before its message is read.
    """

    def __init__(self, callers: Callers, most_calls: int = MOST_CALLS) -> None:
        self._callers, self._most_calls = callers, most_calls
        self._shares: dict[_Bearer, _Share] = {}
        self._calls = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """See gRPC: the handler of a call, wrapped."""
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler  # None: gRPC answers that there is no such method
        method = _Method(handler_call_details.method, handler.request_deserializer or bytes)
        if handler.unary_unary is not None:
            answer = self._awaited(method, handler.unary_unary)
            return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)
        made = self._stream if inspect.isasyncgenfunction(handler.unary_stream) else self._awaited
        answer = made(method, handler.unary_stream)
        return grpc.stream_stream_rpc_method_handler(answer, None, handler.response_serializer)

    def _awaited(self, method: _Method, handler: Handler) -> Any:
        """A handler that returns its answer, or writes its answers to the context as gRPC's health service does."""

        async def answer(_messages: object, context: Context) -> Any:
            async with self._admitted(context, method) as message:
                return await handler(message.pop(), context)

        return answer

    def _stream(self, method: _Method, handler: Handler) -> Any:
        async def answer(_messages: object, context: Context) -> AsyncIterator[Any]:
            async with (
                self._admitted(context, method) as message,
                aclosing(handler(message.pop(), context)) as answers,
            ):
                async for each in answers:
                    yield each

        return answer

    @asynccontextmanager
    async def _admitted(self, context: Context, method: _Method) -> AsyncIterator[list[Any]]:
        """Hold the caller's share while a call lasts; yields a list with its message, for the handler alone to keep."""
        async with AsyncExitStack() as held, _forgetting():
            async with answering(context, self._callers):
                message = [await self._admit(held, context, method)]
            yield message

    async def _admit(self, held: AsyncExitStack, context: Context, method: _Method) -> Any:
        """The message of a call, decoded; `held` gives the caller's share back when the call ends.

        Raises:
            Refused, Incompatible: the caller is not one for this service.
            Overloaded: its share has no room for the call, or had none for the message in time.
            Malformed: the message cannot be decoded, is longer than any of its service, or there is none.
        """
        share = held.enter_context(self._call(self._bearer(context, method.role)))
        try:
            async with asyncio.timeout(ARRIVAL_S):
                async with share.reads:
                    raw = await context.read()
                    if not isinstance(raw, bytes):
                        raise Malformed("a call without a message")
                    if len(raw) > method.most_bytes:
                        most = method.most_bytes
                        raise Malformed(f"a message of {len(raw)} bytes; those of {method.name} have {most} at most")
                    await held.enter_async_context(share.memory(GROWTH * len(raw)))
        except TimeoutError:
            raise Overloaded(f"the message of a call did not come and find room within {ARRIVAL_S:g} s") from None
        try:
            return method.decode(raw)
        except DecodeError:
            raise Malformed(f"a message that {method.name} cannot decode") from None

    def _bearer(self, context: Context, role: Role | None) -> _Bearer:
        """Whose share a call uses."""
        if role is None:
            return self._callers.anybody(context)
        if role is Role.CLIENT:  # need not speak our protocol
            return self._callers.certified(context, role), role
        return self._callers.named(context, role), role

    @contextmanager
    def _call(self, bearer: _Bearer) -> Iterator[_Share]:
        share = self._shares.setdefault(bearer, _Share())
        most = max(1, self._most_calls // 2)
        if share.calls >= most or self._calls >= self._most_calls:
            under_way = f"{bearer[0]} has {share.calls} calls under way here, of at most {most}"
            raise Overloaded(f"{under_way}; repeat this one later")
        share.calls += 1
        self._calls += 1
        try:
            yield share
        finally:
            share.calls -= 1
            self._calls -= 1
            if not share.calls:
                self._shares.pop(bearer, None)


@asynccontextmanager
async def _forgetting() -> AsyncIterator[None]:
    """Clear what functions that an error ended have held: messages, which else live as long as its traceback."""
    try:
        yield
    except BaseException as error:
        found: BaseException | None = error
        while found is not None:
            traceback.clear_frames(found.__traceback__)
            found = found.__context__
        raise
