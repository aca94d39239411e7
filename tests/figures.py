"""Measured figures and numbered leaks that the pages hold, so that none is lost when a page is cut or moved.

    python -m tests.figures            print what is lost; status 1 if anything is
    python -m tests.figures --record   add the statements of today's pages to `tests/fixtures/figures.txt`

A *statement* is a sentence, or a row of a table, that has figures: numbers with a decimal point, a thousands separator,
a percent sign or a unit. Its figures are numbers alone, in the order of their appearance; code does not count. It is
kept where one section of any page, decision or report below `benchmarks/` has all of them. A line is taken out of
`figures.txt` by hand, for a figure that was measured anew or was never measured.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
INVENTORY = ROOT / "tests" / "fixtures" / "figures.txt"
#: Pages whose statements are recorded, and those where a statement may be found.
RECORDED = ("README.md", "docs/*.md")
KEPT = ("README.md", "docs/**/*.md", "benchmarks/**/*.md")
#: Pages that describe leaks by number.
LEAKY = ("threats", "protocol-pivodl", "protocol-splitnn")
#: Rendered from code, or of keys and their ranges.
NOT_RECORDED = ("configuration", "exclusions", "register", "release", "glossary")
CODE = re.compile(r"^```.*?^```$|^ {4,}```.*?^ {4,}```$|`[^`\n]+`|\]\([^)]*\)|<!--.*?-->|https?:\S+", re.M | re.S)
GENERATED = re.compile(r"<!-- (\w[\w-]*): begin -->.*?<!-- \1: end -->", re.S)
UNIT = r"(?:%|×|ms|µs|s|min|h|hours|minutes|seconds|KB|KiB|MB|MiB|GB|GiB|bits|bytes|times|points|AUC|cells|nats)"
FIGURE = re.compile(
    rf"(?<![\w.,/§-])(?:(?P<plain>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d*\.\d+)|(?P<with_unit>\d+)(?=\s?{UNIT}(?!\w)))"
)
WHOLE = re.compile(r"\d[\d,]*\.?\d*|\.\d+")
NAMES = re.compile(r"\b(?:TLS|Python|Debian|RFC|SP|arXiv|section|Section|glibc|Algorithm|ISO|version|SEAL)\s[\d.]+")
LEAK = re.compile(r"^(?:\| )?(\d+)(?: \||\.) \*\*", re.M)
SENTENCE = re.compile(r"(?<=[.:;])\s+(?=[A-Z*\[(])|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s")


def _figures(text: str) -> tuple[str, ...]:
    """The figures of a text; `.50`, `0.5` and `0.50` are told apart from each other only by their value."""
    return tuple(_value(it[0]) for it in FIGURE.finditer(NAMES.sub("", text)))


def _value(number: str) -> str:
    return f"{float(number.replace(',', '')):.12g}"


def statements(page: str) -> list[tuple[str, ...]]:
    """The figures of each statement of a page."""
    text = CODE.sub(lambda it: "]" if it[0].startswith("]") else "", GENERATED.sub("", page))
    rows = [line for line in text.splitlines() if line.lstrip().startswith("|")]
    rest = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("|"))
    held = [*map(_cells, rows), *map(_figures, SENTENCE.split(rest))]
    return [each for each in held if each]


def _cells(row: str) -> tuple[str, ...]:
    """The figures of a row, of which a cell that has nothing but a number is one too."""
    held: list[str] = []
    for cell in row.split("|"):
        whole = WHOLE.fullmatch(cell.strip(" *"))
        held += [_value(whole[0])] if whole else _figures(cell)
    return tuple(held)


@cache
def _sections() -> tuple[frozenset[str], ...]:
    """The numbers of each section of the pages where a statement may be found."""
    texts = [path.read_text(encoding="utf-8") for pattern in KEPT for path in ROOT.glob(pattern)]
    parts = [part for text in texts for part in re.split(r"^#+ ", text, flags=re.M)]
    number = re.compile(r"(?<![\w])(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+)")
    return tuple(frozenset(map(_value, number.findall(part))) for part in parts)


def inventory() -> list[tuple[str, tuple[str, ...]]]:
    """The page of each recorded statement, and its figures."""
    lines = INVENTORY.read_text(encoding="utf-8").splitlines() if INVENTORY.exists() else []
    return [(page, tuple(held.split())) for page, _, held in (line.partition(": ") for line in lines)]


def lost() -> list[str]:
    """The recorded statements that no section has any more."""
    sections = _sections()
    return [
        f"{page}: {' '.join(held)}"
        for page, held in inventory()
        if not any(set(held) <= section for section in sections)
    ]


def leaks() -> dict[int, list[str]]:
    """The pages on which each numbered leak is described: a row of a table with a bold name."""
    held: dict[int, list[str]] = {}
    for path in [ROOT / "docs" / f"{name}.md" for name in LEAKY]:
        for number in LEAK.findall(path.read_text(encoding="utf-8")):
            held.setdefault(int(number), []).append(path.name)
    return held


def main() -> int:
    """Print what is lost, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="add the statements of today's pages")
    if parser.parse_args().record:
        known = dict.fromkeys(f"{page}: {' '.join(held)}" for page, held in inventory())
        for path in sorted(path for pattern in RECORDED for path in ROOT.glob(pattern)):
            if path.stem not in NOT_RECORDED:
                page = path.read_text(encoding="utf-8")
                known |= dict.fromkeys(f"{path.name}: {' '.join(held)}" for held in statements(page))
        INVENTORY.write_text("\n".join(sorted(known)) + "\n", encoding="utf-8")
    gone = lost()
    print("\n".join(gone))
    print(
        f"{len(inventory())} statements with figures, {len(gone)} lost; {len(leaks())} numbered leaks", file=sys.stderr
    )
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
