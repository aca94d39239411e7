"""The version of the protocol, which every call has, and of what is installed here, with the way to add an extra."""

from __future__ import annotations

import json
import shutil
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from treetap.errors import Incompatible

#: Raised whenever a process of the last version would misread a message or a step of this one. Since version 3 blinded
#: identifiers are points of Curve25519; version 4 has parameters of trees that a process of version 3 would not read;
#: version 5 has the job's digest in every message between parties, and winning candidates from the label holder;
#: version 6 has other parameters of PIVODL; in version 7 a seed draws other records and columns, which parties compare;
#: version 8 has fewer parameters, messages and steps; version 9 has a bin for each value that many
#: records have; in version 10 the label holder has fewer steps of a tree, and words of zeros come with others; in
#: version 11 left bits of withheld instance spaces come by oblivious transfer.
#: Journals hold messages of this version, and name it.
PROTOCOL_VERSION = 11
#: Version of the messages' form, in the names of services (treetap.wire.v2.Control): versions 2 to 11 of the protocol
#: have the same services.
WIRE_VERSION = 2
#: Metadata key of a call, and of the answer to a health check.
PROTOCOL_KEY = "treetap-protocol"
#: The folder that holds the package: of an editable installation the clone.
_ROOT = Path(__file__).parents[1]
#: What an extra brings unasked.
_BRINGS = {"neural": "on Linux PyTorch brings CUDA, 5 GB; without: docs/deploy.md#pytorch-without-cuda"}


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


def install(extra: str) -> str:
    """The command that adds an extra to this installation, from the clone or the wheel that it was made of.

    `treetap[EXTRA]` alone is never said: treetap is on no package index, so that the name there may be anybody's.
    """
    root, kind = _origin()
    here = f"{_shown(root)}[{extra}]" if root else f"WHEEL[{extra}]"
    where = "" if root else ", where WHEEL is the file that treetap was installed from"
    said = [where.removeprefix(", "), _BRINGS.get(extra, "") if sys.platform == "linux" else ""]
    notes = "; ".join(filter(None, said))
    own = Path(sys.executable).with_name("pip")
    # the pip of this Python, by its name where a shell finds that one
    pip = "pip" if not own.exists() or shutil.which("pip") == str(own) else _shown(own)
    return f"{pip} install {'-e ' if kind == 'editable' else ''}'{here}'" + (f" ({notes})" if notes else "")


def _origin() -> tuple[Path | None, str]:
    """Where this installation came from, by PEP 610, and in what way; None where pip has not recorded it."""
    if (_ROOT / "pyproject.toml").exists():
        return _ROOT, "editable"
    for part in metadata.distributions(name="treetap"):
        if said := part.read_text("direct_url.json"):
            place = urlsplit(json.loads(said)["url"])
            if place.scheme == "file" and (path := Path(unquote(place.path))).exists():
                return path, "copy"
    return None, "copy"


def _shown(path: Path) -> Path:
    """A path from here where it lies below this folder, else the whole."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
