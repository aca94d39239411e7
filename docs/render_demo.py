"""Runs the demo and keeps what it prints as a picture: docs/demo.svg. Usage: python docs/render_demo.py"""

from __future__ import annotations

import re
from pathlib import Path

from treetap import terminal
from treetap.commands import demo
from treetap.terminal import PlainConsole


def main() -> None:
    """Run the demo on a recording console."""
    terminal.out = PlainConsole(record=True, width=100)
    demo.run(as_json=False, workdir=None, key_bits=2048, audit_report=None)
    picture = terminal.out.export_svg(title="make demo")
    picture = re.sub(r"<!--.*?-->\s*", "", picture, flags=re.DOTALL)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # fonts of the reader's machine will do
    Path(__file__).with_name("demo.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
