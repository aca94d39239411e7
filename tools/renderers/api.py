"""docs/reference/api.md: the public names of the Python API, whose docstrings the site shows."""

from __future__ import annotations

from pathlib import Path

import treetap

HEAD = """# Python API

Every public name of `treetap`, with its parameters, as its docstring has them. This page is for a reader who writes a
program; [python.md](../python.md) shows one. On the site the docstrings stand here; in the repository they are in the
modules that are named. The API needs `pip install '.[api]'`.

"""
#: Heading → its names: of `treetap` itself, or the full name of a class that one of these returns.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Estimators": ("FederatedClassifier", "FederatedRegressor", "treetap.lab.api.parameters.Parameters"),
    "Federations": ("federation", "connect", "treetap.lab.api.loopback.Loopback", "treetap.lab.api.models.Connection"),
    "Experiments and audits": (
        "experiment",
        "audit",
        "treetap.lab.api.experiments.ExperimentResult",
        "treetap.lab.api.experiments.AuditResult",
    ),
    "Models and clients": (
        "load_model",
        "treetap.lab.api.models.LoadedModel",
        "treetap.lab.api.models.PartyModel",
        "Client",
    ),
}


def rendered(docs: Path) -> dict[Path, str]:
    """The page; ValueError for a public name that it lacks."""
    listed = {name for names in SECTIONS.values() for name in names}
    if lacking := set(treetap.__all__) - listed:
        raise ValueError(f"SECTIONS lacks {', '.join(sorted(lacking))}")
    lines = [HEAD.rstrip(), ""]
    for heading, names in SECTIONS.items():
        lines += [f"## {heading}", ""]
        for name in names:
            lines += [f"::: {name if '.' in name else f'treetap.{name}'}", ""]
    return {docs / "reference" / "api.md": "\n".join(lines).rstrip() + "\n"}
