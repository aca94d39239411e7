"""The frontiers that advice is from: the one that an audit was given, and the project's own, which are installed."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from treetap.attacks.advice.results import Whose
from treetap.errors import BadInput
from treetap.privacy.frontiers import FrontierDocument, load_frontier
from treetap.removed import removed


def shipped(protocol: str) -> list[FrontierDocument]:
    """The project's frontiers of public tables for a protocol; `python benchmarks/measured_frontiers.py` makes them."""
    folder = resources.files("treetap.attacks.advice") / "frontiers"
    files = sorted((it for it in folder.iterdir() if it.name.endswith(f"-{protocol}.json")), key=lambda it: it.name)
    return [FrontierDocument.model_validate_json(it.read_bytes()) for it in files]


def given(path: Path, protocol: str, data_digest: str | None) -> tuple[Whose, FrontierDocument]:
    """The frontier that an audit was given, and whether it is of the audited table: by the digest of the content.

    Raises:
        BadInput: it cannot be read, its defences were measured with another protocol, a point has a parameter that was
            taken out, or nothing in it says what they take away.
    """
    document = load_frontier(path)
    for name in sorted({name for point in document.points for name in point.settings}):
        if (gone := removed(["Parameters"], name)) is not None:
            raise BadInput(f"{path}: {name} of a point {gone}, and make the frontier anew")
    if document.protocol != protocol:
        raise BadInput(
            f"{path}: was measured with protocol {document.protocol!r}, but the job's is {protocol!r}, where defences "
            "have other effects: run treetap frontier with the job's protocol, or leave the frontier out"
        )
    if document.undefended is None:
        raise BadInput(
            f"{path}: lacks the point without a defence, to which the others compare: make it with none = true"
        )
    return "this table" if data_digest == document.data_digest else "given", document
