"""Renders the tables of docs/exclusions.md from `treetap.protocols.exclusions`, by which every process checks jobs.

python docs/render_exclusions.py            write the tables
python docs/render_exclusions.py --check    exit with status 1 if the page is stale
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from rendering import with_table

from treetap.protocols.exclusions import OTHERS, PREDICTIONS, TRAININGS, Exclusion, Feature


def main() -> int:
    """Write the page, or compare it; returns the exit status."""
    parser = argparse.ArgumentParser(description="Render the tables of what does not go together.")
    parser.add_argument("--docs", type=Path, default=Path(__file__).resolve().parent, help="the folder of the page")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with status 1 if the page is stale")
    options = parser.parse_args()
    page = options.docs / "exclusions.md"
    old = page.read_text(encoding="utf-8")
    new = with_table(with_table(old, "trainings", rendered(TRAININGS)), "predictions", rendered(PREDICTIONS))
    if options.check and new != old:
        print(f"{page} is stale: run make exclusions", file=sys.stderr)
        return 1
    if new != old:
        page.write_text(new, encoding="utf-8")
    return 0


def rendered(rows: Iterable[Exclusion]) -> str:
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


if __name__ == "__main__":
    sys.exit(main())
