"""Needs of a protocol beside every installation, which may be absent: libraries of treetap's extras, compiled kernels.

Libraries are looked for and not loaded, so that no process has one without a job that uses it.
"""

from __future__ import annotations

from importlib.util import find_spec

from treetap.errors import BadInput
from treetap.native import library as native
from treetap.protocols.registry import PREDICTION, PredictionProtocol, TrainingProtocol, prediction
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


def kernels_protocols() -> list[str]:
    """The protocols that need compiled kernels."""
    return [name for name in PREDICTION if prediction(name).needs.kernels]
