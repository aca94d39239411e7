"""Keeps the panels of a frontier as a picture: docs/frontier.svg, or docs/NAME.

Usage: python -m tools.renderers.frontier FRONTIER.json [NAME.svg], of which `treetap frontier` wrote the first.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.renderers.rendering import DOCS
from treetap.lab.experiment.frontier import picture
from treetap.privacy.frontiers import load_frontier


def main() -> int:
    """Draw the picture; returns the exit status."""
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    document = load_frontier(Path(sys.argv[1]))
    (DOCS / (sys.argv[2] if len(sys.argv) == 3 else "frontier.svg")).write_text(picture(document), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
