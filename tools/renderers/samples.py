"""Runs the experiment of examples/loans and keeps its pages: docs/samples/, which the site shows, and docs/audit.png.

Usage: python -m tools.renderers.samples. Half a minute; anew after a change of how pages look, which a test finds. The
picture is the audit's first screen, and needs Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.renderers.rendering import DOCS, ROOT
from treetap.lab.experiment.all_runs import HISTORY, PAGE
from treetap.lab.experiment.audited import REPORT

EXPERIMENT = Path("examples/loans/exp.toml")
#: The report, and what it links to.
FILES = (PAGE, HISTORY, AUDIT := f"seed-0/{REPORT}")
#: The picture's pixels: what was learned in both directions, and what lowers it.
WIDTH, HEIGHT = 1200, 720
SECONDS = 60


def main() -> int:
    """Run, keep the pages, and take the picture; returns the exit status."""
    if (program := shutil.which("chromium") or shutil.which("google-chrome")) is None:
        print("no Chromium, which takes the picture of an audit: apt-get install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder).resolve() / EXPERIMENT.stem
        command = [sys.executable, "-m", "treetap", "experiment", str(EXPERIMENT), "--workdir", str(run)]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - of this repository
        for name in FILES:
            kept = DOCS / "samples" / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            # as from a folder of the reader's
            kept.write_text((run / name).read_text(encoding="utf-8").replace(str(run), "runs/exp"), encoding="utf-8")
        options = [
            *("--headless=new", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile"),
            *(f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={DOCS / 'audit.png'}"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        page = (DOCS / "samples" / AUDIT).as_uri()
        subprocess.run([program, *options, page], check=True, timeout=SECONDS, stderr=subprocess.DEVNULL)  # noqa: S603
    return 0


if __name__ == "__main__":
    sys.exit(main())
