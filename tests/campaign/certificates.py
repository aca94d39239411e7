"""Every kind of certificate against every method of every server, and every kind of server against its callers.

Each defect is tried in each role, so that its holder would be the rightful caller, or server, without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.certificates import namesake
from treetap.commands.certs.authority import create_authority, open_authority
from treetap.ops.certs.requests import revoke
from treetap.wire.certificates import key_pem
from treetap.wire.ports import DOMAIN, Identity, Role
from treetap.wire.tls import TlsFiles

#: Who bears the certificate of a role.
NAMES = {
    Role.PARTY: "feature-c",
    Role.COORDINATOR: "coordinator",
    Role.OPERATOR: "operator",
    Role.CLIENT: "app",
    Role.APPROVER: "ann",
    Role.RELAY: "relay",
    Role.GATEWAY: "gateway",
}


@dataclass(frozen=True)
class Kind:
    """A certificate: what is wrong with it, or nothing, and who answers it at which point.

    `at`: tls, the handshake fails; name, no service answers it; empty, its role decides.
    """

    defect: str
    role: Role | None
    files: TlsFiles | None = field(compare=False)
    at: str = ""

    def __str__(self) -> str:
        return f"{self.defect or 'in order'}, {self.role or 'nobody'}"


@dataclass(frozen=True)
class Defect:
    """Recipe for a certificate of the right name in a role, with one defect."""

    at: str
    signer: str = "authority"
    names: Callable[[Identity], list[str]] = lambda own: [own.name]
    dns: Callable[[Identity], list[str]] = lambda own: [own.dns]
    days: tuple[int, int] = (-1, 30)
    revoked: bool = False


def _another(own: Identity) -> str:
    return next(role for role in Role if role is not own.role)


#: What can be wrong with a certificate. Where TLS itself finds it, no service is asked.
DEFECTS: dict[str, Defect] = {
    "no role": Defect("name", dns=lambda own: [own.name]),
    "no alternative name": Defect("name", dns=lambda own: []),
    "two common names": Defect("name", names=lambda own: [own.name, "feature-b"]),
    "no common name": Defect("name", names=lambda own: []),
    "two roles": Defect("name", dns=lambda own: [own.dns, f"{own.name}.{_another(own)}.{DOMAIN}"]),
    "another's DNS name": Defect("name", dns=lambda own: [Identity("feature-d", own.role).dns]),
    "unknown role": Defect("name", dns=lambda own: [f"{own.name}.king.{DOMAIN}"]),
    "a wildcard": Defect("name", dns=lambda own: [own.dns, f"*.{own.role}.{DOMAIN}"]),
    "revoked": Defect("name", revoked=True),
    "expired": Defect("tls", days=(-60, -30)),
    "not yet valid": Defect("tls", days=(10, 30)),
    "another authority": Defect("tls", signer="other"),
    "self-signed": Defect("tls", signer="self"),
}


class Certificates:
    """An authority with a list of revoked certificates, another one, and a certificate of every kind."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self.authority = folder / "authority"
        create_authority(self.authority)
        create_authority(folder / "other")
        revoke(self.authority)

    def rightful(self, name: str, role: Role) -> TlsFiles:
        """The files of a process as they should be."""
        files = namesake(self._place(), name, role, self.authority)
        return TlsFiles(self.authority / "ca.crt", files.certificate, files.key, self.authority / "crl.pem")

    def defective(self, own: Identity, defect: str) -> Kind:
        """A certificate for a process with a defect."""
        how, place = DEFECTS[defect], self._place()
        place.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in how.names(own)])
        if how.signer == "self":
            issuer, signer = subject, key
        else:
            signed_by = self.authority if how.signer == "authority" else self._folder / "other"
            authority, signer = open_authority(signed_by, "test")  # type: ignore[assignment]
            issuer = authority.subject
        first, last = (datetime.now(UTC) + timedelta(days=days) for days in how.days)
        serial = x509.random_serial_number()
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, first, last)
        if hosts := [x509.DNSName(name) for name in how.dns(own)]:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        made = builder.sign(signer, hashes.SHA256())
        files = TlsFiles(self.authority / "ca.crt", place / "own.crt", place / "own.key", self.authority / "crl.pem")
        files.certificate.write_bytes(made.public_bytes(Encoding.PEM))
        files.key.write_bytes(key_pem(key))
        if how.revoked:
            revoke(self.authority, [str(files.certificate)])
        return Kind(defect, own.role, files, how.at)

    def kinds(self, names: dict[Role, str]) -> Iterator[Kind]:
        """A certificate of every kind for the processes of these names."""
        for role, name in names.items():
            yield Kind("", role, self.rightful(name, role))
            yield from (self.defective(Identity(name, role), defect) for defect in DEFECTS)

    def _place(self) -> Path:
        self._made += 1
        return self._folder / f"{self._made:03d}"
