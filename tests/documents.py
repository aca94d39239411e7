"""Carries out the blocks of a page as its reader would: in order, in one folder, in one shell.

A block of `sh` runs in a shell that stops at the first failure and goes on with the next block: a process in the
background serves later blocks. A block of any other language whose first line names a file in a comment (`# exp.toml`)
is written there, or is added to the file where that line ends with `, added`; a block of `python` without it is
executed. A block of `text` is what the block before it printed: each of its lines must be there, in its order, and `…`
stands for anything. A comment `<!-- not carried out: WHY -->` above a block leaves it out.

    python tests/documents.py PAGE [--folder FOLDER]

carries a page out and prints the seconds of each block; status 1 if something is not as the page says.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?P<left_out><!-- not carried out: [^>]+ -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
FILE = re.compile(r"# (?P<path>[\w./-]+\.\w+)(?P<added>, added)?\b")
#: Languages of a block, which the site shows it by. The last two are of what no command prints.
LANGUAGES = frozenset(
    ["html", "ini", "json", "json5", "proto", "python", "sh", "sql", "text", "toml", "yaml", "bytes", "tree"]
)
FENCE = re.compile(r"^ *(?P<signs>`{3,}|~{3,})(?P<language>[^\n`]*)$", re.M)
#: Printed behind a block's output, with the seconds since the page's beginning.
MARK = "---- end of block after"
END = re.compile(rf"{MARK} ([\d.]+)\n")


@dataclass(frozen=True)
class Block:
    """One block of a page, with the number of the line where its text begins."""

    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are carried out, and what they print."""
    content = page.read_text(encoding="utf-8")
    return [
        Block(content.count("\n", 0, it.start("text")) + 1, it["language"], it["text"])
        for it in BLOCK.finditer(content)
        if not it["left_out"]
    ]


def pages(root: Path) -> list[Path]:
    """README, and all pages and decisions of the documentation."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def is_carried_out(page: Path) -> bool:
    """True for a page that has something to carry out, beside files to write."""
    return any(
        block.language == "sh" or (block.language == "python" and FILE.match(block.text) is None)
        for block in blocks(page)
    )


def unlabelled(page: Path) -> list[str]:
    """The blocks, indented ones too, whose language is none that is known, by line."""
    content, found, closing = page.read_text(encoding="utf-8"), [], ""
    for it in FENCE.finditer(content):
        if closing:
            closing = "" if it["signs"].startswith(closing) and not it["language"].strip() else closing
            continue
        closing = it["signs"]
        if it["language"] not in LANGUAGES:
            line = content.count("\n", 0, it.start("signs")) + 1
            found.append(
                f"{page.name}, line {line}: language {it['language']!r} is none of {', '.join(sorted(LANGUAGES))}"
            )
    return found


def _steps(block: Block) -> list[str]:
    """The shell's lines for a block; none for what is printed."""
    if block.language == "text":
        return []
    if block.language == "sh":
        return [block.text]
    named = FILE.match(block.text)
    if named is None:
        return [f"python - <<'END OF FILE'\n{block.text}END OF FILE"] if block.language == "python" else []
    folder, sign = shlex.quote(str(Path(named["path"]).parent)), ">>" if named["added"] else ">"
    return [f"mkdir -p {folder}\ncat {sign} {shlex.quote(named['path'])} <<'END OF FILE'\n{block.text}END OF FILE"]


@dataclass(frozen=True)
class Outcome:
    """Faults, each with the page's line; none where all is as it says. And the seconds of each block."""

    faults: list[str]
    seconds: list[tuple[Block, float]]


def own_environment() -> dict[str, str]:
    """The environment of this process, in which `python` and `treetap` are those of the Python that runs it."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def carry_out(page: Path, folder: Path, environment: Mapping[str, str], limit_s: float) -> Outcome:
    """Carry out a page in a folder."""
    every = blocks(page)
    script = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for block in every:
        script += [*_steps(block), f'echo; echo "{MARK} $EPOCHREALTIME"']
    done = subprocess.run(
        ["bash", "-c", "\n".join(["LC_ALL=C", f'echo "{MARK} $EPOCHREALTIME"', *script])],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )
    _, began, *rest = END.split(done.stdout)
    outputs, ends = rest[::2], [float(began), *map(float, rest[1::2])]
    seconds = [(block, until - since) for block, since, until in zip(every, ends, ends[1:], strict=False)]
    if done.returncode:
        block = every[min(len(seconds), len(every) - 1)]
        said = f"{page.name}, line {block.line}: ended with status {done.returncode}:\n{outputs[-1]}"
        return Outcome([said], seconds)
    faults, printed = [], ""
    for block, output in zip(every, outputs, strict=False):
        if block.language != "text":
            printed = output
        elif (missing := _missing(block.text, printed)) is not None:
            faults.append(f"{page.name}, line {block.line}: not printed: {missing!r}; but:\n{printed}")
    return Outcome(faults, seconds)


def _missing(shown: str, printed: str) -> str | None:
    """The first line that is not printed, in its order; spaces count as one."""
    left = [" ".join(line.split()) for line in printed.splitlines()]
    for line in shown.splitlines():
        words = " ".join(line.split())
        if words in ("", "…"):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in words.split("…")))
        for at, candidate in enumerate(left):
            if pattern.fullmatch(candidate):
                left = left[at + 1 :]
                break
        else:
            return line
    return None


def main() -> None:
    """Carry out a page and print the seconds of each block."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=1800, help="longest time")
    given = parser.parse_args()
    outcome = carry_out(given.page, given.folder, own_environment(), given.seconds)
    for block, seconds in outcome.seconds:
        if block.language != "text":
            print(f"{seconds:7.1f} s  line {block.line}: {block.text.splitlines()[0]}")
    sys.exit("\n".join(outcome.faults) or 0)


if __name__ == "__main__":
    main()
