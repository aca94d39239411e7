"""Identity in a certificate: one process in one role."""

from __future__ import annotations

from cryptography import x509

from treetap.names import NAME
from treetap.wire.certificates import common_names, dns_names
from treetap.wire.roles import DOMAIN, Identity, Role, reserved


class NoIdentity(Exception):
    """A certificate that does not name one process in one role; the message is the reason and the remedy."""


def identity(certificate: x509.Certificate, needed: Role | None = None) -> Identity:
    """The process that a certificate names. `needed`: the role that a remedy names, None where any will do.

    Raises:
        NoIdentity: no common name or several, no role or several, or another name below `DOMAIN`.
    """
    names = common_names(certificate)
    if len(names) != 1 or not NAME.match(names[0]):
        shown = ", ".join(repr(name[:64]) for name in names[:4]) or "none"
        raise NoIdentity(f"the certificate must have one common name, that of the process, and has {shown}")
    (name,) = names
    renewal = (
        f"renew it: treetap certs issue {name} --role {needed or 'ROLE'} --ca FOLDER, or on separate hosts "
        "treetap certs request and sign"
    )
    # Names of hosts may stand beside it; below `DOMAIN` exactly one name, of one role.
    below = [host.lower() for host in dns_names(certificate) if reserved(host)]
    if not below:
        raise NoIdentity(f"the certificate of {name!r} has no role, as those of earlier releases; {renewal}")
    for role in Role:
        if below == [(known := Identity(name, role)).dns]:
            return known
    shown = ", ".join(repr(host[:80]) for host in below[:4])
    raise NoIdentity(
        f"the certificate of {name!r} has other names below {DOMAIN} than one of its own: {shown}; {renewal}"
    )
