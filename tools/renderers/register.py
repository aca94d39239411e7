"""The tables of docs/register.md: attacks and defences with their papers and figures, beside two other systems.

Rows come from `treetap.attacks.registry` and `tools.renderers.defences`, figures from the pages that have
them, by register.json beside this file: a cell of a table, or words, and the command that measures them. `page` there
says which page is meant where several have them.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.renderers.defences import DEFENCES
from tools.renderers.papers import PUBLISHED, Paper
from tools.renderers.rendering import ROOT, with_tables
from treetap.attacks.registry import ROWS, Attack

CONTENT = Path(__file__).with_name("register.json")
#: Repository and folders of a system whose lists stand beside ours.
_SYSTEMS = {"vflair": "VFLAIR", "secretflow": "SecretFlow"}


def rendered(docs: Path) -> dict[Path, str]:
    """The page. ValueError for a figure that is not where its entry says."""
    return with_tables(tables(json.loads(CONTENT.read_text(encoding="utf-8"))), docs)


def tables(content: Mapping[str, Any]) -> dict[str, str]:
    """The tables of the page, by name. ValueError for a figure that is not where its entry says, or of no row."""
    figures, others = content["figures"], content["others"]
    known = {row.name for row in ROWS} | {row.key for row in DEFENCES}
    for name in [*figures, *(name for other in others for name in other["here"])]:
        if name not in known:
            raise ValueError(f"{name!r} is no attack of the registry and no defence")
    return {
        "attacks": _table(
            ("attack", "published as", "paper", "method", "needs transcripts of", "module", "measured"),
            (
                [
                    *(f"`{row.name}`", *_source(*PUBLISHED.get(row.name, ("", None))), row.line.replace("|", "/")),
                    *(row.needs.value, f"`{_module(row)}`"),
                ]
                for row in ROWS
            ),
            (figure(figures, row.name) for row in ROWS),
        ),
        "defences": _table(
            ("defence", "published as", "paper", "method", "protects", "protocols", "written in", "module", "measured"),
            (
                [
                    *(f"`{row.key}`", *_source(row.published, row.paper), row.line, row.of),
                    *(", ".join(row.had_by), row.where, f"`{row.module}`"),
                ]
                for row in DEFENCES
            ),
            (figure(figures, row.key) for row in DEFENCES),
        ),
        "others": _table(
            ("kind", "method", *_SYSTEMS.values()),
            ([it["kind"], it["method"], *(it[system] or "–" for system in _SYSTEMS)] for it in others),
            (_here(it) for it in others),
            "here",
        ),
        "alone": _alone(others),
        "papers": _papers(),
    }


def figure(figures: Mapping[str, Mapping[str, str]], name: str) -> str:
    """A measured figure with what it is, its command, and a link to its page; a dash without an entry.

    Raises:
        ValueError: the page has no such row, column, words or command.
    """
    if (entry := figures.get(name)) is None:
        return "–"
    held, faults = {}, []
    for page in [ROOT / entry["page"]] if "page" in entry else _pages():
        try:
            held[page] = _value(entry, page.read_text(encoding="utf-8"))
        except ValueError as fault:
            faults.append(f"{page.relative_to(ROOT)} {fault}")
    if len(held) != 1:
        pages = ", ".join(str(page.relative_to(ROOT)) for page in held)
        raise ValueError(f"{name}: " + (f"stands on {pages}: name one as `page`" if held else _nearest(faults)))
    ((page, value),) = held.items()
    link = Path(os.path.relpath(page, ROOT / "docs")).as_posix()
    return f"[{value}]({link}): {entry['what']}; `{entry['command']}`"


def _nearest(faults: list[str]) -> str:
    """Of pages without a figure those that have its command, or else the others."""
    return "; ".join([fault for fault in faults if "has no command" not in fault] or faults[:1])


def _pages() -> list[Path]:
    """The pages where a figure may stand: guides and reports."""
    found = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
    return [path for path in found if path.name != "register.md"]


def _value(entry: Mapping[str, str], text: str) -> str:
    """A figure on a page; ValueError where the page has no such row, column, words or command."""
    if entry["command"] not in text and not _all_words(entry["command"], text):
        raise ValueError(f"has no command {entry['command']!r}")
    if "quote" not in entry:
        return cell(text, entry["row"], entry["column"])
    words = entry["quote"].split()
    if not re.search(r"\s+".join(map(re.escape, words)), text):
        raise ValueError(f"does not say {entry['quote']!r}")
    return " ".join(words)


def _all_words(command: str, text: str) -> bool:
    """True if a line of the page has the program of a command with at least these arguments, in any order."""
    return any(set(command.split()) <= set(line.split()) for line in text.splitlines())


def cell(text: str, row: str, column: str) -> str:
    """The cell of the first row that begins so, under a column's head. ValueError where there is none."""
    lines = text.splitlines()
    at = next((k for k, line in enumerate(lines) if line.startswith(row)), None)
    if at is None:
        raise ValueError(f"has no row {row!r}")
    rule = next((k for k in range(at, 0, -1) if re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", lines[k])), None)
    heads = [] if rule is None else _cells(lines[rule - 1])
    if column not in heads:
        raise ValueError(f"has no column {column!r} above {row!r}")
    return _cells(lines[at])[heads.index(column)]


def _cells(line: str) -> list[str]:
    return [part.strip() for part in line.strip().strip("|").split("|")]


def _module(row: Attack) -> str:
    """The file of an attack's code."""
    name = row.run.__module__.removeprefix("treetap.")  # attacks have their folder at the top
    return name.replace(".", "/") + ".py"


def _source(published: str, paper: Paper | None) -> tuple[str, str]:
    """The published name and the paper in short."""
    if paper is None:
        return "of this project", "–"
    first, *more = paper.authors.split(", ")
    return published, f"{first}{' et al.' if len(more) > 1 else ''.join(f' and {name}' for name in more)} {paper.year}"


def _here(other: Mapping[str, Any]) -> str:
    names = ", ".join(f"`{name}`" for name in other["here"]) or "**missing**"
    return f"{names}{'; ' if 'remark' in other else ''}{other.get('remark', '')}"


def _alone(others: list[dict[str, Any]]) -> str:
    """The attacks and defences that stand in neither of the other lists."""
    shared = {name for other in others for name in other["here"]}
    lines = []
    for kind, names in (("Attacks", [row.name for row in ROWS]), ("Defences", [row.key for row in DEFENCES])):
        words = f"- {kind}: {', '.join(f'`{name}`' for name in names if name not in shared)}."
        lines += textwrap.wrap(words, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _papers() -> str:
    """All papers, by year and authors."""
    named = {paper for _, paper in PUBLISHED.values()} | {row.paper for row in DEFENCES if row.paper is not None}
    papers = sorted(named, key=lambda it: (it.year, it.authors))
    lines: list[str] = []
    for it in papers:
        lines += textwrap.wrap(f"- {it.authors} ({it.year}): {it.title}. {it.where}.", 118, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _table(heads: tuple[str, ...], rows: Any, last: Iterator[str], head: str = "") -> str:
    """Rows in Markdown, each with a further cell."""
    heads = (*heads, head) if head else heads
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join([*row, end])} |" for row, end in zip(rows, last, strict=True)]
    return "\n".join(lines) + "\n"
