"""Who a certificate names: one process in one role."""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

from treetap.names import NAME
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
    below = [host.lower() for host in dns_names(certificate) if reserved(host)]
    if not below:
        raise NoIdentity(f"the certificate of {name!r} has no role, as those of earlier releases; {renewal}")
    for role in Role:
        if below == [(found := Identity(name, role)).dns]:
            return found
    shown = ", ".join(repr(host[:80]) for host in below[:4])
    raise NoIdentity(
        f"the certificate of {name!r} has other names below {DOMAIN} than one of its own: {shown}; {renewal}"
    )


def common_names(certificate: x509.Certificate) -> list[str]:
    """The certificate's common names: one, as treetap issues it."""
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def dns_names(certificate: x509.Certificate) -> list[str]:
    """The DNS names among the certificate's alternative names."""
    return _alternatives(certificate).get_values_for_type(x509.DNSName)


def ip_addresses(certificate: x509.Certificate) -> list[str]:
    """The IP addresses among the certificate's alternative names."""
    return [str(each) for each in _alternatives(certificate).get_values_for_type(x509.IPAddress)]


def _alternatives(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
