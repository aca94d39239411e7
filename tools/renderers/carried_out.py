"""The table of docs/measure-epsilon.md: the modules that the plays of each mechanism carry out."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from tools.renderers.rendering import with_tables
from treetap.lab.epsilon.mechanisms import Mechanism


def rendered(docs: Path) -> dict[Path, str]:
    """The page."""
    lines = ["| mechanism | modules |", "|---|---|"]
    for row in get_args(get_args(Mechanism)[0]):
        (name,) = get_args(row.model_fields["mechanism"].annotation)
        lines.append(f"| `{name}` | {', '.join(f'`{module}`' for module in row.carried_out)} |")
    return with_tables({"modules": "\n".join(lines) + "\n"}, docs)
