"""Identity of a server's callers: name and role in the caller's certificate, checked on every call.

The check uses the files as they are at the call: a caller whose certificate is revoked, or whose authority is trusted
no longer, is refused on open connections too.

Without certificates (`insecure`) the name is the one that the caller states, and there is no role to compare.

Errors of treetap become gRPC status codes and back here alone. A version's services are named by its package
(treetap.wire.v2.Control). To a call of a service that a server does not have, gRPC by itself answers UNIMPLEMENTED and
no more: a server answers with the reason of its refusal instead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from urllib.parse import quote

import grpc
import grpc.aio

from treetap import errors, logs, version
from treetap.errors import Refused, one_line, visible
from treetap.names import NAME
from treetap.wire.ports import ORGANISATION, Identity, Role
from treetap.wire.tls import NAME_KEY, CredentialSource, Insecure, Transport

Context = grpc.aio.ServicerContext[object, object]
#: Who makes this task's call: `treetap.wire.admission` has set it, of a service that is for one role.
CALLER: ContextVar[str] = ContextVar("treetap_caller")
#: Metadata key under which a gateway names the client for whom it calls.
BEHALF_KEY = "treetap-on-behalf-of"


class Callers:
    """Recognises the callers of one server.

    Args:
        own: what this process is called in messages.
        transport: its own credentials.
        outward: takes out of an error's message what no caller shall hear.
        gateway: the name of the one gateway that may call for clients, which is trusted for their names.
        operators: the names of those whom a coordinator obeys.
    """

    def __init__(
        self,
        own: str,
        transport: Transport,
        outward: Callable[[str], str] = str,
        gateway: str | None = None,
        operators: Collection[str] = (),
    ) -> None:
        self.own, self.outward, self._gateway, self._operators = own, outward, gateway, operators
        self.credentials = None if isinstance(transport, Insecure) else CredentialSource(transport)  #: None: plain text

    def named(self, context: Context, *roles: Role) -> str:
        """The caller's name, whatever its messages contain.

        Args:
            context: the call.
            roles: those that may call; any where none is given.

        Raises:
            Refused: no certificate, one that does not name one process, or another role; or another operator.
            Incompatible: the caller speaks another version of the protocol.
        """
        caller = None if self.credentials is None else self.identity(_certificate(context), *roles)
        name = self.certified(context) if caller is None else caller.name
        version.check(_told(context, version.PROTOCOL_KEY), name, self.own)
        if caller is not None:
            self._of_role(caller, *roles)
        if Role.OPERATOR in roles and name not in self._operators:
            raise Refused(f"{name} is not an operator of this coordinator (operators = …)")
        return name

    def certified(self, context: Context, *roles: Role) -> str:
        """The same of a caller who need not speak our protocol: a client of a served model, a health check."""
        if self.credentials is None:
            if not (told := _told(context, NAME_KEY)):
                raise Refused(f"the caller shows no certificate, and no name in metadata {NAME_KEY}")
            logs.note(peer=told)
            ORGANISATION.set(told)  # as `Insecure.organisation` is
            return told
        return self.shown(_certificate(context), *roles)

    def client(self, context: Context) -> str:
        """The client that asks: the caller by its certificate, or whom this server's gateway names.

        Raises:
            Refused: neither a client nor this server's gateway; a gateway that names no client, or a client that does.
        """
        if self.credentials is None:
            caller = self.certified(context)
            through = caller == self._gateway
        else:
            shown = self.identity(_certificate(context), Role.CLIENT)
            caller, through = shown.name, shown.role is Role.GATEWAY
            if not through:
                self._of_role(shown, Role.CLIENT)
        told = [value for key, value in context.invocation_metadata() or () if key == BEHALF_KEY]
        if not through:
            if told:
                raise Refused(f"{caller} names another client in metadata {BEHALF_KEY}, which only a gateway may")
            return caller
        if caller != self._gateway:
            raise Refused(f"{caller} is not the gateway of {self.own} ([serve] gateway = …)")
        client = str(told[0]) if len(told) == 1 else ""
        if not NAME.match(client):
            raise Refused(f"{caller} does not name one client in metadata {BEHALF_KEY}")
        logs.note(peer=client)
        return client

    def anybody(self, context: Context) -> tuple[str, Role | None]:
        """Name and role of any holder of a certificate with a role; without certificates of anybody, "-" for no name.

        Raises:
            Refused: a certificate that names no process, or one that is revoked.
        """
        if self.credentials is not None:
            caller = self.identity(_certificate(context))
            return caller.name, caller.role
        return _told(context, NAME_KEY) or "-", None

    def shown(self, certificate: bytes | None, *roles: Role) -> str:
        """The same of the certificate (PEM or DER) of a connection."""
        return self._of_role(self.identity(certificate, *roles), *roles)

    def _of_role(self, caller: Identity, *roles: Role) -> str:
        if roles and caller.role not in roles:
            wanted = " or ".join(role.one for role in roles)
            shown = f"{caller.name} is not {wanted} by its certificate, but {caller.role.one}"
            raise Refused(f"{shown}: {self.own} refuses it")
        return caller.name

    def identity(self, certificate: bytes | None, *roles: Role) -> Identity:
        """Whose certificate it is, whatever the role; `roles` are for the remedy."""
        if self.credentials is None or not certificate:
            raise Refused("the caller shows no certificate")
        caller = self.credentials.now().caller(certificate, roles[0] if roles else None)
        logs.note(peer=caller.name)
        ORGANISATION.set(caller.organisation)
        return caller


def _told(context: Context, key: str) -> str | None:
    """The text that the caller states in its metadata, if there is one."""
    told = dict(context.invocation_metadata() or ()).get(key)
    return told if isinstance(told, str) else None


def _certificate(context: Context) -> bytes:
    """The certificate of a call's connection."""
    shown = list(context.auth_context().get("x509_pem_cert", []))
    if len(shown) != 1:
        raise Refused("the caller shows no certificate")
    return shown[0]


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


@asynccontextmanager
async def answering(context: grpc.aio.ServicerContext[object, object], callers: Callers) -> AsyncIterator[None]:
    """Wrap a call's admission and its answer: an error ends it with the status that fits, and its class is sent along.

    An error that treetap did not foresee is logged here and reported to the caller as a defect, without its text, which
    might hold data. The log has a message as it is, the caller as `callers` lets it out.
    """
    try:
        yield
        return
    except grpc.aio.AbortError:  # its handler has ended it by a status of its own
        raise
    except errors.TreetapError as fault:
        log.warning("refused: %s: %s", type(fault).__name__, fault)
        told = fault
    except Exception as defect:
        log.error("a defect", exc_info=defect)
        told = errors.Defect(f"{callers.own} met a defect ({type(defect).__name__}): its log has the details")
    metadata = ((ERROR_KEY, type(told).__name__),)
    details = details_of(callers.outward(str(told)[: 4 * LONGEST_DETAILS]))  # no search through megabytes
    await context.abort(code_of(told), details, trailing_metadata=metadata)


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
            theirs = _told(context, version.PROTOCOL_KEY) or method[1]
            raise version.incompatible(theirs, self._callers.certified(context), self._callers.own)

        return grpc.unary_unary_rpc_method_handler(refuse)


def refuse_other_versions(server: grpc.aio.Server, callers: Callers) -> None:
    """Let a server refuse callers of other versions by name."""
    server.add_generic_rpc_handlers((_Refusal(callers),))
