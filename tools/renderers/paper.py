"""The tables of docs/paper.md, each with its commands: of the sections of benchmarks/ that its markers name."""

from __future__ import annotations

import re
from pathlib import Path

from tools.renderers.rendering import DOCS, ROOT, with_table

MARKER = re.compile(r"<!-- ((benchmarks/\S+\.md)#(\S+)): begin -->")


def rendered(docs: Path = DOCS) -> dict[Path, str]:
    """The page with the commands and the first table of each section; ValueError where a section has none."""
    page = docs / "paper.md"
    text = page.read_text(encoding="utf-8")
    for name, file, anchor in MARKER.findall(text):
        text = with_table(text, name, section(ROOT / file, anchor))
    return {page: text}


def section(file: Path, anchor: str) -> str:
    """The commands (indented lines) and the first table of a section, by its heading as links name it."""
    parts = re.split(r"^#+ (.+)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        if re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") == anchor:
            commands = re.findall(r"^    (python .+\n)", body, flags=re.MULTILINE)
            table = re.search(r"^(\|.+\n)+", body, flags=re.MULTILINE)
            if commands and table:
                links = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", table[0])
                return f"\n```sh\n{''.join(commands)}```\n\n{links}\n"
    raise ValueError(f"{file} has no section #{anchor} with a command and a table")
