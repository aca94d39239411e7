"""Callers of other versions of the wire: a server answers with the reason of its refusal.

A version's services are named by its package (treetap.wire.v2.Control). To a call of a service that a server does not
have, gRPC by itself answers UNIMPLEMENTED and no more.
"""

from __future__ import annotations

import re

import grpc
import grpc.aio

from treetap import version
from treetap.wire.callers import Callers
from treetap.wire.status import answering

_METHOD = re.compile(r"/treetap\.wire\.v(\d{1,4})\.")
Context = grpc.aio.ServicerContext[object, object]


class _Refusal(grpc.GenericRpcHandler):
    """Answers every call of a service of another version with `Incompatible`."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """See gRPC: None where the call is for others to answer."""
        method = _METHOD.match(call.method)
        if method is None or method[1] == str(version.WIRE_VERSION):
            return None

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
