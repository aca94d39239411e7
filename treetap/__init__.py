"""Vertical federated trees and split networks over real sockets, with an account of what each party learns.

The names of the Python API, `treetap.lab.api`, are found when they are first asked for: a process that serves a party
imports treetap and nothing of it. `__init__.pyi` has their types.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Name → its module, and the packages that it needs beside those of every installation, of treetap's extra `api`.
_FACE = {
    "Client": ("treetap.lab.api.client", ()),
    "FederatedClassifier": ("treetap.lab.api.estimators", ("sklearn",)),
    "FederatedRegressor": ("treetap.lab.api.estimators", ("sklearn",)),
    "audit": ("treetap.lab.api.experiments", ()),
    "connect": ("treetap.lab.api.models", ()),
    "experiment": ("treetap.lab.api.experiments", ()),
    "federation": ("treetap.lab.api.loopback", ()),
    "load_model": ("treetap.lab.api.models", ()),
}

__all__ = list(_FACE)  # names of the table above


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("treetap.version").package_version()
    if name not in _FACE:
        raise AttributeError(f"module 'treetap' has no attribute {name!r}")
    module, needed = _FACE[name]
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        if package not in needed:
            raise
        from treetap.version import install

        raise ImportError(f"treetap.{name} needs {package}: {install('api')}", name=package) from None


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
