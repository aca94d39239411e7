"""Runs the demo and keeps its two rows as a picture: docs/demo.svg.

Usage: python -m tools.renderers.demo [--check [FILE …]]; with --check nothing is written, and the exit status is 1 if a
picture has other text than the demo prints. Numbers, and what depends on the machine, may differ.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from contextlib import chdir
from pathlib import Path

from tools.renderers.rendering import DOCS, ROOT, texts
from treetap import terminal
from treetap.lab import demo
from treetap.lab.experiment.side_by_side import TITLE
from treetap.terminal import PlainConsole

PICTURE = DOCS / "demo.svg"
#: Parts of the text that differ from run to run or from machine to machine.
_VARYING = {
    r"\b(?:nothing found|little|notable|severe)\b": "…",
    r": no more than chance|\*|†": "",
}


def main() -> int:
    """Run the demo on a recording console, and keep or compare; returns the exit status."""
    parser = argparse.ArgumentParser(description="Keep what the demo prints as a picture.")
    parser.add_argument("--check", nargs="*", type=Path, metavar="FILE", help="compare, write nothing")
    given = parser.parse_args()
    terminal.out = PlainConsole(record=True, width=80)
    with chdir(ROOT):  # from which its paths are short
        demo.run(key_bits=2048 if given.check is None else 1024)
    lines = [line.rstrip() for line in terminal.out.export_text().splitlines()]
    first, last = (next(k for k, line in enumerate(lines) if line.startswith(it)) for it in (TITLE, '"private" costs'))
    rows = PlainConsole(record=True, width=80, file=io.StringIO())
    rows.print(*filter(None, lines[first : last + 1]), sep="\n")
    picture = rows.export_svg(title="make demo")
    picture = re.sub(r"<!--.*?-->\s*", "", picture, flags=re.DOTALL)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # fonts of the reader's machine will do
    if given.check is None:
        PICTURE.write_text(picture, encoding="utf-8")
        return 0
    faults = [fault for file in given.check or [PICTURE] if (fault := difference(file, printed(picture)))]
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


def difference(file: Path, now: list[str]) -> str | None:
    """The word of a picture where the demo prints another one; None where they are the same."""
    kept = printed(file.read_text(encoding="utf-8"))
    if now == kept:
        return None
    place = next(
        (k for k, (one, other) in enumerate(zip(now, kept, strict=False)) if one != other), min(map(len, (now, kept)))
    )
    words = [" ".join(some[max(0, place - 8) : place + 8]) for some in (kept, now)]
    return f"{file} is stale: run python -m tools.renderers.demo\nit has: … {words[0]} …\nprinted: … {words[1]} …"


def printed(picture: str) -> list[str]:
    """The words of a picture of a terminal, without boxes and bars, with what may differ masked."""
    text = re.sub(r"[\u2500-\u259f]+", " ", " ".join(texts(picture)))
    text = " ".join(text.split())
    for pattern, mask in _VARYING.items():
        text = re.sub(pattern, mask, text)
    return text.split()


if __name__ == "__main__":
    sys.exit(main())
