"""The tables of docs/exclusions.md from `treetap.protocols.exclusions`, by which every process checks jobs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tools.renderers.rendering import with_tables
from treetap.protocols.exclusions import OTHERS, PREDICTIONS, TRAININGS, Exclusion, Feature


def rendered(docs: Path) -> dict[Path, str]:
    """The page."""
    return with_tables({"trainings": table(TRAININGS), "predictions": table(PREDICTIONS)}, docs)


def table(rows: Iterable[Exclusion]) -> str:
    """The rows in Markdown, one for all features that do not go with the same for the same reason."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        alike.setdefault((_other(row.other), row.reason, row.remedy), []).append(_code(row.feature))
    lines = ["| a job with | cannot have, or be | because | instead |", "|---|---|---|---|"]
    lines += [
        f"| {', '.join(names)} | {other} | {reason} | {remedy} |" for (other, reason, remedy), names in alike.items()
    ]
    return "\n".join(lines) + "\n"


def _other(other: Feature | str) -> str:
    if isinstance(other, Feature):
        return _code(other)
    return OTHERS if other == OTHERS else f"protocol `{other}`"


def _code(feature: Feature) -> str:
    """A feature as a person writes it, or in words."""
    return str(feature) if feature.startswith(("a ", "an ")) else f"`{feature}`"
