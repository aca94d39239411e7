"""The version of the protocol, sent with every call: processes of different versions refuse each other."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from treetap.errors import Incompatible

#: Raised whenever a process of the last version would misread a message or a step of this one. Since version 3 blinded
#: identifiers are points of Curve25519; version 4 has parameters of trees that a process of version 3 would not read;
#: version 5 has the job's digest in every message between parties, and winning candidates from the label holder;
#: version 6 has other parameters of PIVODL. Journals hold messages of this version, and name it.
PROTOCOL_VERSION = 6
#: Version of the messages' form, in the names of services (treetap.wire.v2.Control): versions 2 to 6 of the protocol
#: have the same services.
WIRE_VERSION = 2
#: Metadata key of a call, and of the answer to a health check.
PROTOCOL_KEY = "treetap-protocol"


def told() -> tuple[tuple[str, str], ...]:
    """Metadata that goes with every call."""
    return ((PROTOCOL_KEY, str(PROTOCOL_VERSION)),)


def check(theirs: str | None, caller: str, own: str) -> None:
    """`Incompatible` unless `caller` sent the version that `own` speaks; None: it sent none."""
    if theirs != str(PROTOCOL_VERSION):
        raise incompatible(theirs, caller, own)


def incompatible(theirs: str | None, caller: str, own: str) -> Incompatible:
    """The error for a caller of another version."""
    spoken = "sends no version of the protocol" if theirs is None else f"speaks version {theirs[:20]!r} of the protocol"
    return Incompatible(
        f"{caller} {spoken}, {own} speaks version '{PROTOCOL_VERSION}': install the same release of treetap on both"
    )


@cache  # every answer to a health check contains it
def package_version() -> str:
    """The installed release; "unknown" where the sources run without being installed."""
    try:
        return metadata.version("treetap")
    except metadata.PackageNotFoundError:
        return "unknown"
