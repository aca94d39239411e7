"""Admission of callers to a gRPC server: each has a share of its calls and of its memory.

gRPC by itself reads and decodes a message before a handler sees its sender, and holds all that come at once. Here a
call's message is read when its caller is known by its certificate and has room in its share. The handlers of all
services are wrapped: on the wire it is the same whether a handler is given its one message or reads it itself. Its
errors are answered here, too.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from treetap.errors import Malformed, Overloaded
from treetap.wire.callers import CALLER, Callers, answering
from treetap.wire.ports import Role

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
MOST_BYTES = {
    "treetap.wire.v2.Control": 1024 * 1024,
    "treetap.wire.v2.Jobs": 1024 * 1024,
    "treetap.wire.v2.Approvals": 128 * 1024,
    "treetap.wire.v2.Overview": 1024,
}
#: Service → the role that may call it, a client also through a gateway; of any other, such as the health service, every
#: role.
ROLES = {
    "treetap.wire.v2.Control": Role.COORDINATOR,
    "treetap.wire.v2.Exchange": Role.PARTY,
    "treetap.wire.v2.Jobs": Role.OPERATOR,
    "treetap.wire.v2.Serving": Role.CLIENT,
    "treetap.wire.v2.Approvals": Role.APPROVER,
    "treetap.wire.v2.Overview": Role.APPROVER,
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
        self._waiting = 0

    async def take(self, wanted: int) -> None:
        """Have room for that many bytes, as soon as there is; a message that is alone has room whatever its size."""
        if self._waiting or not self._fits(wanted):
            self._waiting += 1
            try:
                async with self._freed:
                    await self._freed.wait_for(lambda: self._fits(wanted))
                    self._decoded += wanted
            finally:
                self._waiting -= 1
        else:
            self._decoded += wanted

    async def give_back(self, wanted: int) -> None:
        """Leave the room to those that wait for some."""
        self._decoded -= wanted
        if self._waiting:
            async with self._freed:
                self._freed.notify_all()

    def _fits(self, wanted: int) -> bool:
        return self._decoded == 0 or self._decoded + wanted <= MOST_DECODED


class Admission(grpc.aio.ServerInterceptor):
    """Admits the calls of all services of one server; whether a service is for the caller, its handler decides.

    What is not for the caller's role is refused before its message is read.
    """

    def __init__(self, callers: Callers, most_calls: int = MOST_CALLS) -> None:
        self.callers, self._most_calls = callers, most_calls
        self._shares: dict[_Bearer, _Share] = {}
        self._calls = 0
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}  # method → gRPC's handler and ours

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler  # None: gRPC answers that there is no such method
        path = handler_call_details.method
        known, wrapped = self._wrapped.get(path, (None, None))
        if known is not handler:
            method = _Method(path, handler.request_deserializer or bytes)
            wrapped = self._wrap(method, handler)
            if method.role is not None:  # of a service that there is: other paths are the caller's to invent
                self._wrapped[path] = handler, wrapped
        return wrapped

    def _wrap(self, method: _Method, handler: Handler) -> Handler:
        if handler.unary_unary is not None:
            answer = self._awaited(method, handler.unary_unary)
            return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)
        made = self._stream if inspect.isasyncgenfunction(handler.unary_stream) else self._awaited
        answer = made(method, handler.unary_stream)
        return grpc.stream_stream_rpc_method_handler(answer, None, handler.response_serializer)

    def _awaited(self, method: _Method, handler: Handler) -> Any:
        """A handler that returns its answer, or writes its answers to the context as gRPC's health service does."""

        async def answer(_messages: object, context: Context) -> Any:
            async with answering(context, self.callers), _Admitted(self, context, method) as message:
                return await handler(message.pop(), context)

        return answer

    def _stream(self, method: _Method, handler: Handler) -> Any:
        async def answer(_messages: object, context: Context) -> AsyncIterator[Any]:
            async with (
                answering(context, self.callers),
                _Admitted(self, context, method) as message,
                aclosing(handler(message.pop(), context)) as answers,
            ):
                async for part in answers:
                    yield part

        return answer

    async def read(self, context: Context, method: _Method, admitted: _Admitted) -> Any:
        """The message of a call, decoded; what it uses of the caller's share is noted in `admitted`.

        Raises:
            Refused, Incompatible: the caller is not one for this service.
            Overloaded: its share has no room for the call, or had none for the message in time.
            Malformed: the message cannot be decoded, is longer than any of its service, or there is none.
        """
        share = admitted.share = self._call(admitted, self._bearer(context, method.role))
        try:
            async with asyncio.timeout(ARRIVAL_S):
                async with share.reads:
                    raw = await context.read()
                    if not isinstance(raw, bytes):
                        raise Malformed("a call without a message")
                    if len(raw) > method.most_bytes:
                        most = method.most_bytes
                        raise Malformed(f"a message of {len(raw)} bytes; those of {method.name} have {most} at most")
                    await share.take(GROWTH * len(raw))
                    admitted.bytes = GROWTH * len(raw)
        except TimeoutError:
            raise Overloaded(f"the message of a call did not come and find room within {ARRIVAL_S:g} s") from None
        try:
            return method.decode(raw)
        except DecodeError:
            raise Malformed(f"a message that {method.name} cannot decode") from None

    async def release(self, admitted: _Admitted) -> None:
        """Take back what a call used of its caller's share."""
        if (share := admitted.share) is None:
            return
        if admitted.bytes is not None:
            await share.give_back(admitted.bytes)
        share.calls -= 1
        self._calls -= 1
        if not share.calls:
            self._shares.pop(admitted.bearer, None)

    def _bearer(self, context: Context, role: Role | None) -> _Bearer:
        """Whose share a call uses; the service that it is for hears the name as `CALLER`."""
        if role is None:
            return self.callers.anybody(context)
        # a client need not speak our protocol, and may come through a gateway
        name = self.callers.client(context) if role is Role.CLIENT else self.callers.named(context, role)
        CALLER.set(name)
        return name, role

    def _call(self, admitted: _Admitted, bearer: _Bearer) -> _Share:
        """The share of a call's bearer, with the call counted."""
        share = self._shares.setdefault(bearer, _Share())
        most = max(1, self._most_calls // 2)
        if share.calls >= most or self._calls >= self._most_calls:
            under_way = f"{bearer[0]} has {share.calls} calls under way here, of at most {most}"
            raise Overloaded(f"{under_way}; repeat this one later")
        share.calls += 1
        self._calls += 1
        admitted.bearer = bearer
        return share


class _Admitted:
    """Holds the caller's share while a call lasts; entered, a list with its message, for the handler alone to keep.

    An error ends with what functions have held cleared: messages, which else live as long as its traceback.

    Attributes:
        bearer, share: whose share the call uses, from when it is counted.
        bytes: of the share's memory, from when there is room.
    """

    def __init__(self, admission: Admission, context: Context, method: _Method) -> None:
        self._admission, self._context, self._method = admission, context, method
        self.bearer: _Bearer = ("", None)
        self.share: _Share | None = None
        self.bytes: int | None = None

    async def __aenter__(self) -> list[Any]:
        try:
            return [await self._admission.read(self._context, self._method, self)]
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._admission.release(self)
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
