"""Libraries that tests of the second tier alone import: `make test` does not install them, and hides them if they are.

So the first tier is the same whatever is installed beside it.
"""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

#: Names by which they are imported: of the extra `dev` and not of `test` (see pyproject.toml).
HEAVY = frozenset(
    (
        *("grafana_foundation_sdk",),
        *("alembic", "boto3", "botocore", "docker", "importlinter", "ipykernel", "kubernetes_validate", "llvmlite"),
        *("matplotlib", "mlflow", "moto", "mypy", "nbclient", "nbformat", "numba", "ray", "schemathesis"),
        *("opentelemetry", "shap", "sqlalchemy", "tenseal", "torch", "xlrd"),
    )
)
#: Set where they are hidden, for the fork server, which inherits it.
VARIABLE = "TREETAP_TESTS_HIDE"
#: Those that this process has looked for since they were hidden.
asked: set[str] = set()
_find = PathFinder.find_spec


def hide() -> None:
    """Have this process, and the fork server that it starts, find none of them."""
    os.environ[VARIABLE] = "1"
    PathFinder.find_spec = _found  # type: ignore[method-assign]


def hide_as_asked() -> None:
    """Hide them where the process that started this one has."""
    if VARIABLE in os.environ:
        hide()


def _found(fullname: str, *about: Any, **more: Any) -> ModuleSpec | None:
    if (name := fullname.partition(".")[0]) in HEAVY:
        asked.add(name)
        return None
    return _find(fullname, *about, **more)
