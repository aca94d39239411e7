"""Who calls a server: name and role, by the caller's certificate, looked at on every call.

Without certificates (`insecure`) the name is the one that the caller tells, and there is no role to compare.
"""

from __future__ import annotations

from functools import lru_cache

import grpc.aio
from cryptography import x509

from treetap import logs, version
from treetap.errors import Refused
from treetap.wire.identity import NoIdentity, identity
from treetap.wire.insecure import NAME_KEY, Insecure, Transport
from treetap.wire.roles import Identity, Role

Context = grpc.aio.ServicerContext[object, object]
#: Certificates whose names are kept, the least recently used go first.
_KEPT = 256


class Callers:
    """Recognises the callers of one server.

    Args:
        own: what this process is called in messages.
        transport: its own credentials.
    """

    def __init__(self, own: str, transport: Transport) -> None:
        self.own = own
        self._insecure = isinstance(transport, Insecure)

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
        version.check(told if isinstance(told, str) else None, self.certified(context), self.own)
        return self.certified(context, *roles)

    def certified(self, context: Context, *roles: Role) -> str:
        """The same of a caller who need not speak our protocol: a client of a served model, a health check."""
        if self._insecure:
            told = dict(context.invocation_metadata() or ()).get(NAME_KEY)
            if not told or not isinstance(told, str):
                raise Refused(f"the caller shows no certificate, and no name in metadata {NAME_KEY}")
            logs.note(peer=told)
            return told
        shown = list(context.auth_context().get("x509_pem_cert", []))
        if len(shown) != 1:
            raise Refused("the caller shows no certificate")
        return self.recognised(_identity(shown[0], roles[0] if roles else None), *roles)

    def anybody(self, context: Context) -> None:
        """Take a call of any holder of a certificate with a role; without certificates of anybody. `Refused` if not."""
        if not self._insecure:
            self.certified(context)

    def shown(self, certificate: bytes | None, *roles: Role) -> str:
        """The same of the certificate (DER) of a connection that is not gRPC's."""
        if not certificate:
            raise Refused("the caller shows no certificate")
        return self.recognised(_identity(certificate, roles[0] if roles else None), *roles)

    def recognised(self, caller: Identity, *roles: Role) -> str:
        """The name of a caller that may call in its role."""
        logs.note(peer=caller.name)
        if roles and caller.role not in roles:
            wanted = " or ".join(role.one for role in roles)
            shown = f"{caller.name} is not {wanted} by its certificate, but {caller.role.one}"
            raise Refused(f"{shown}: {self.own} refuses it")
        return caller.name


@lru_cache(_KEPT)
def _identity(certificate: bytes, needed: Role | None) -> Identity:
    """The process that a certificate (PEM or DER) names; TLS has verified the certificate."""
    try:
        pem = certificate.startswith(b"-----")
        read = x509.load_pem_x509_certificate if pem else x509.load_der_x509_certificate
        return identity(read(certificate), needed)
    except NoIdentity as fault:
        raise Refused(str(fault)) from None
    except ValueError:
        raise Refused("the caller's certificate cannot be read") from None
