"""Runs the experiment of examples/loans and keeps its pages: docs/samples/, which the site shows.

Usage: python -m tools.renderers.samples. Half a minute; anew after a change of how pages look, which a test finds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tools.renderers.rendering import DOCS, ROOT
from treetap.lab.experiment.all_runs import HISTORY, PAGE
from treetap.lab.experiment.audited import REPORT

EXPERIMENT = Path("examples/loans/exp.toml")
#: The report, and what it links to.
FILES = (PAGE, HISTORY, f"seed-0/{REPORT}")


def main() -> int:
    """Run, and keep the pages; returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder).resolve() / EXPERIMENT.stem
        command = [sys.executable, "-m", "treetap", "experiment", str(EXPERIMENT), "--workdir", str(run)]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - of this repository
        for name in FILES:
            kept = DOCS / "samples" / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            # as from a folder of the reader's
            kept.write_text((run / name).read_text(encoding="utf-8").replace(str(run), "runs/exp"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
