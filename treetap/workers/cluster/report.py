"""Software of a node as an actor reports it, and of the party: equal on both, since kernels travel by name."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import treetap
from treetap.version import package_version


def own_report() -> dict[str, Any]:
    """Software and number of this process, in types that every version of treetap reads."""
    return {
        "python": platform.python_version(),
        "treetap": package_version(),
        "sources": _digest(),
        "ray": metadata.version("ray"),
        "pid": os.getpid(),
    }


def fault_of(theirs: dict[str, Any], own: dict[str, Any]) -> str:
    """The difference between a node's software and this party's by which it cannot be used; empty if there is none."""
    node = f"node {theirs['node']} of the cluster"
    if missing := theirs.get("missing"):
        remedy = f"install treetap {own['treetap']} there (with its extra cluster)"
        return f"{node} has no treetap ({missing}): {remedy}"
    if theirs["python"] != own["python"]:
        there, here = theirs["python"], own["python"]
        return f"{node} runs Python {there}, this party Python {here}: start Ray there with Python {here}"
    if theirs["treetap"] != own["treetap"]:
        there, here = theirs["treetap"], own["treetap"]
        return f"{node} has treetap {there}, this party {here}: install treetap {here} there, and start Ray again"
    if theirs["sources"] != own["sources"]:
        there, here = theirs["sources"][:12], own["sources"][:12]
        return (
            f"{node} has other sources of treetap {own['treetap']} than this party (digests {there} and {here}): "
            "install the same build on both, and start Ray again"
        )
    return f"{node}: {theirs['lacks']}" if theirs.get("lacks") else ""


@cache
def _digest() -> str:
    """SHA-256 of the names and contents of treetap's sources: Python, and the C of its kernels."""
    root = Path(treetap.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".c", ".h"):
            content = path.read_bytes()
            total.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()
