"""Identity of a server's callers: name and role in the caller's certificate, checked on every call.

The check uses the files as they are at the call: a caller whose certificate is revoked, or whose authority is trusted
no longer, is refused on open connections too.

Without certificates (`insecure`) the name is the one that the caller states, and there is no role to compare.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from treetap import logs, version
from treetap.errors import Refused
from treetap.names import NAME
from treetap.wire.credentials import CredentialSource
from treetap.wire.roles import Identity, Role
from treetap.wire.tls import NAME_KEY, Insecure, Transport

Context = grpc.aio.ServicerContext[object, object]
#: Metadata key under which a gateway names the client for whom it calls.
BEHALF_KEY = "treetap-on-behalf-of"


class Callers:
    """Recognises the callers of one server.

    Args:
        own: what this process is called in messages.
        transport: its own credentials.
        outward: takes out of an error's message what no caller shall hear.
        gateway: the name of the one gateway that may call for clients, which is trusted for their names.
    """

    def __init__(
        self, own: str, transport: Transport, outward: Callable[[str], str] = str, gateway: str | None = None
    ) -> None:
        self.own, self.outward, self._gateway = own, outward, gateway
        self.credentials = None if isinstance(transport, Insecure) else CredentialSource(transport)  #: None: plain text

    def named(self, context: Context, *roles: Role) -> str:
        """The caller's name, whatever its messages contain.

        Args:
            context: the call.
            roles: those that may call; any where none is given.

        Raises:
            Refused: no certificate, one that does not name one process, or another role.
            Incompatible: the caller speaks another version of the protocol.
        """
        told = dict(context.invocation_metadata() or ()).get(version.PROTOCOL_KEY)
        spoken = told if isinstance(told, str) else None
        if self.credentials is None:
            name = self.certified(context)
            version.check(spoken, name, self.own)
            return name
        caller = self.identity(_certificate(context), *roles)
        version.check(spoken, caller.name, self.own)
        return self._of_role(caller, *roles)

    def certified(self, context: Context, *roles: Role) -> str:
        """The same of a caller who need not speak our protocol: a client of a served model, a health check."""
        if self.credentials is None:
            told = dict(context.invocation_metadata() or ()).get(NAME_KEY)
            if not told or not isinstance(told, str):
                raise Refused(f"the caller shows no certificate, and no name in metadata {NAME_KEY}")
            logs.note(peer=told)
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
        return str(dict(context.invocation_metadata() or ()).get(NAME_KEY, "-")), None

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
        return caller


def _certificate(context: Context) -> bytes:
    """The certificate of a call's connection."""
    shown = list(context.auth_context().get("x509_pem_cert", []))
    if len(shown) != 1:
        raise Refused("the caller shows no certificate")
    return shown[0]
