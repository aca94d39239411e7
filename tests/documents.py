"""Carries out the blocks of a page as its reader would: in order, in one folder, in one shell.

A block of `sh` runs in a shell that stops at the first failure and goes on with the next block: a process in the
background serves later blocks. A block of any other language whose first line names a file in a comment (`# exp.toml`)
is written there, or is added to the file where that line ends with `, added`; a block of `python` without it is
executed. A block of `text` is what the block before it printed: each of its lines must be there, in its order, and `…`
stands for anything. A comment `<!-- not carried out: WHY -->` above a block leaves it out.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?P<left_out><!-- not carried out: [^>]+ -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
FILE = re.compile(r"# (?P<path>[\w./-]+\.\w+)(?P<added>, added)?\b")
#: Printed between the outputs of two blocks.
MARK = "---- end of block ----"


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


def carry_out(page: Path, folder: Path, environment: Mapping[str, str], limit_s: float) -> list[str]:
    """Carry out a page in a folder. Gives what is wrong, each with the page's line: nothing where all is as it says."""
    every = blocks(page)
    script = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for block in every:
        script += [*_steps(block), f"echo; echo '{MARK}'"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )
    said = done.stdout.split(MARK)
    if done.returncode:
        block = every[min(len(said), len(every)) - 1]
        return [f"{page.name}, line {block.line}: ended with status {done.returncode}:\n{said[-1]}"]
    faults, printed = [], ""
    for block, output in zip(every, said, strict=False):
        if block.language != "text":
            printed = output
        elif (missing := _missing(block.text, printed)) is not None:
            faults.append(f"{page.name}, line {block.line}: not printed: {missing!r}; but:\n{printed}")
    return faults


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
