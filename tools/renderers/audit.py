"""Keeps the upper part of an audit report as a picture: docs/audit.png.

Usage: python -m tools.renderers.audit AUDIT.json, with what `treetap audit --json` printed. Needs Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.renderers.rendering import DOCS
from treetap.attacks.report.page import html

#: The picture's pixels: the first screen, for two feature parties and a label holder.
WIDTH, HEIGHT = 1200, 720
SECONDS = 60


def main() -> int:
    """Render the report and take its picture; returns the exit status."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if len(sys.argv) != 2 or program is None:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "audit.html"
        page.write_text(html(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), encoding="utf-8")
        options = [
            *("--headless=new", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile"),
            *(f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={DOCS / 'audit.png'}"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        subprocess.run([program, *options, page.as_uri()], check=True, timeout=SECONDS, stderr=subprocess.DEVNULL)  # noqa: S603
    return 0


if __name__ == "__main__":
    sys.exit(main())
