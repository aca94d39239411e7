"""Errors of treetap to gRPC status codes and back: the only such mapping; refusals of callers of other versions.

A version's services are named by its package (treetap.wire.v2.Control). To a call of a service that a server does not
have, gRPC by itself answers UNIMPLEMENTED and no more: a server answers with the reason of its refusal instead.
"""

from __future__ import annotations

import logging
import re
from types import TracebackType
from urllib.parse import quote

import grpc
import grpc.aio

from treetap import errors, version
from treetap.names import one_line, visible
from treetap.wire.callers import Callers

log = logging.getLogger(__name__)
#: Trailing metadata key that carries the error's class, so that the caller raises the same one.
ERROR_KEY = "treetap-error"
#: Bytes of a message as it travels, percent-encoded: gRPC drops a whole answer whose headers exceed 8 KiB or so.
LONGEST_DETAILS = 6000

_CODES: list[tuple[type[errors.TreetapError], grpc.StatusCode]] = [
    (errors.BadInput, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.OutOfOrder, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.UnknownJob, grpc.StatusCode.NOT_FOUND),
    (errors.Conflict, grpc.StatusCode.ALREADY_EXISTS),
    (errors.Malformed, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.ProtocolError, grpc.StatusCode.DATA_LOSS),
    (errors.Refused, grpc.StatusCode.PERMISSION_DENIED),
    (errors.Pending, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.NotServed, grpc.StatusCode.UNAVAILABLE),
    (errors.Silent, grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.Interrupted, grpc.StatusCode.ABORTED),
    (errors.TreetapError, grpc.StatusCode.INTERNAL),
]
_CLASSES: dict[str, type[errors.TreetapError]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.TreetapError)
}
_METHOD = re.compile(r"/treetap\.wire\.v(\d{1,4})\.")
Context = grpc.aio.ServicerContext[object, object]


def code_of(error: errors.TreetapError) -> grpc.StatusCode:
    """The status code that fits an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def details_of(text: str) -> str:
    """An error's message in one line, shortened if it would not fit the headers in which gRPC carries it."""
    text = one_line(text)
    kept = text[:LONGEST_DETAILS]  # first: a text may be of megabytes, and quoting it takes a second
    while len(quote(kept)) > LONGEST_DETAILS:
        kept = kept[: len(kept) * 3 // 4]
    return kept if kept == text else f"{kept} …"


class answering:
    """Wraps the answer to a call: an error ends it with the status that fits, and its class is sent along.

    An error that treetap did not foresee is logged here and reported to the caller as a defect, without its text, which
    might hold data. The log has a message as it is, the caller as `callers` lets it out.
    """

    def __init__(self, context: grpc.aio.ServicerContext[object, object], callers: Callers) -> None:
        self._context, self._callers = context, callers

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, errors.TreetapError):
            log.warning("refused: %s: %s", type(error).__name__, error)
        elif isinstance(error, Exception):
            log.error("a defect", exc_info=error)
            error = errors.Defect(f"{self._callers.own} met a defect ({type(error).__name__}): its log has the details")
        else:
            return
        metadata = ((ERROR_KEY, type(error).__name__),)
        details = details_of(self._callers.outward(str(error)[: 4 * LONGEST_DETAILS]))  # no search through megabytes
        await self._context.abort(code_of(error), details, trailing_metadata=metadata)


def error_of(failure: grpc.aio.AioRpcError, who: str) -> errors.TreetapError:
    """The error that a failed call stands for; `who` names the process that was called.

    Its text is the other process's: it enters as one line that controls no terminal.
    """
    metadata = dict(failure.trailing_metadata() or ())
    details = visible(failure.details() or "")
    kind = metadata.get(ERROR_KEY)
    if isinstance(kind, str) and kind in _CLASSES:
        return _CLASSES[kind](details or kind)
    if failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return errors.Unreachable(f"{who} does not answer: {details}")
    if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.Silent(f"{who} did not answer in time")
    return errors.ProtocolError(f"{who} failed: {failure.code().name}: {details}")


class _Refusal(grpc.GenericRpcHandler):
    """Answers every call of a service of another version with `Incompatible`."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = _METHOD.match(call.method)
        if method is None or method[1] == str(version.WIRE_VERSION):
            return None  # the call is for others to answer

        async def refuse(_request: bytes, context: Context) -> bytes:
            async with answering(context, self._callers):
                told = dict(context.invocation_metadata() or ()).get(version.PROTOCOL_KEY)
                theirs = told if isinstance(told, str) else method[1]
                raise version.incompatible(theirs, self._callers.certified(context), self._callers.own)
            return b""

        return grpc.unary_unary_rpc_method_handler(refuse)


def refuse_other_versions(server: grpc.aio.Server, callers: Callers) -> None:
    """Let a server refuse callers of other versions by name."""
    server.add_generic_rpc_handlers((_Refusal(callers),))
