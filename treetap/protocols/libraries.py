"""Needs of a protocol beside every installation, which may be absent: libraries of treetap's extras, compiled kernels.

Libraries are looked for and not loaded, so that no process has one without a job that uses it.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from treetap.errors import BadInput
from treetap.native import library as native
from treetap.protocols.registry import PREDICTION, TRAINING, PredictionProtocol, TrainingProtocol, prediction, training
from treetap.version import install

Described = TrainingProtocol | PredictionProtocol


def missing_library(name: str, protocol: Described, *, at_party: bool = False) -> str:
    """Name what the protocol of that name lacks here, and how to install it; empty if nothing is missing.

    `at_party`: the text goes to others, whom the folders of this host do not concern.
    """
    if protocol.needs.kernels:
        try:
            native.compiled()
        except native.Unavailable as error:
            return f"protocol {name} needs native kernels, but {error}: {native.REMEDY}"
    if not protocol.needs.library or find_spec(protocol.needs.library) is not None:
        return ""
    extra = protocol.needs.extra
    remedy = f"install treetap's extra {extra!r} there" if at_party else install(extra)
    return f"protocol {name} needs {protocol.needs.library}: {remedy}"


def require_library(name: str, protocol: Described, *, at_party: bool = False) -> None:
    """Raise `BadInput` with the remedy, if the protocol's library or kernels are not installed here."""
    if missing := missing_library(name, protocol, at_party=at_party):
        raise BadInput(missing)


def libraries() -> list[tuple[str, str, list[str]]]:
    """Each library that some protocol needs, the extra of treetap that installs it, and the protocols that need it."""
    described: list[tuple[str, Described]] = [(name, training(name)) for name in TRAINING]
    described += [(name, prediction(name)) for name in PREDICTION]
    extras = {protocol.needs.library: protocol.needs.extra for _, protocol in described if protocol.needs.library}
    return [
        # a training and a prediction may have one name
        (library, extra, list(dict.fromkeys(name for name, needing in described if needing.needs.library == library)))
        for library, extra in extras.items()
    ]


def kernels_protocols() -> list[str]:
    """The protocols that need compiled kernels."""
    return [name for name in PREDICTION if prediction(name).needs.kernels]


def installed_version(library: str) -> str:
    """The release of a library; empty where it is not installed."""
    try:
        return "" if find_spec(library) is None else metadata.version(library)
    except metadata.PackageNotFoundError:
        return "of an unknown release"
