"""Builds docs/ and the README as a site: `python -m tools.renderers.site [--out FOLDER]`, or `make site`.

The pages are copied to FOLDER/pages, the README as their first, and Zensical builds them into FOLDER/site. What GitHub
reads and Python's Markdown does not is rewritten in the copies: lists without a blank line above them, and lists that
are indented by less than four spaces. A term of docs/glossary.md has its meaning where a page first uses it.

Links to files of the repository outside of docs/ lead to it: to TREETAP_REPOSITORY, or to the remote `origin`, at the
commit that is checked out. Where neither is known the files are copied to FOLDER/pages/files, and links lead there.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

from tools.renderers.rendering import DOCS, ROOT

CONFIG = ROOT / "mkdocs.yml"
OUT = ROOT / "build"
#: Files of docs/ that the site has: pages, pictures, and samples with what they link to.
SHOWN = (".md", ".svg", ".png", ".html", ".csv")
#: What the first page says below its first paragraph.
SAMPLES = "[A sample report](docs/samples/report.html) · [its audit](docs/samples/seed-0/audit.html)"
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"(?P<before>\]\(|\b(?:src|srcset|href)=\")(?P<target>[^)\s\"]+)")
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|#|//")
ITEM = re.compile(r"^(?P<indent> *)(?P<mark>[-*+]|\d+\.)(?P<space> +)(?=\S)")
CODE = re.compile(r"(`[^`]*`|\[[^\]]*\]\([^)]*\)|<[^>]+>|\*\*[^*]+\*\*)")
#: A paragraph of the glossary: a term and its meaning.
TERM = re.compile(r"^\*\*(?P<term>[^*]+)\*\*: (?P<meaning>.+?)(?=\n\n|\Z)", re.M | re.S)
#: Longest meaning of a term that is shown; a term of one word is plain English too, and would be marked everywhere.
LONGEST = 300


class Repository:
    """The place of the repository's files for a reader of the site: an address, or beside the pages."""

    def __init__(self, pages: Path) -> None:
        self._pages, self._copied = pages, set[Path]()
        self.address = os.environ.get("TREETAP_REPOSITORY", "").rstrip("/") or _origin()
        self._commit = _git("rev-parse", "HEAD") or "main"

    def link(self, path: Path, page: Path) -> str:
        """The target of a link from a page of the site to a file or folder of the repository."""
        inside = path.relative_to(ROOT).as_posix()
        if self.address:
            return f"{self.address}/{'tree' if path.is_dir() else 'blob'}/{self._commit}/{inside}"
        return os.path.relpath(self._copy(path), page.parent) + "/" * path.is_dir()

    def says(self) -> str:
        """The targets of links out of docs/."""
        if self.address:
            return f"links to files of the repository lead to {self.address} at {self._commit[:10]}"
        return f"no repository is known (TREETAP_REPOSITORY, git remote origin): {len(self._copied)} files are copied"

    def _copy(self, path: Path) -> Path:
        """The copy of a file, as text where a browser would not show it, or of a folder: a page that lists it."""
        copy = self._pages / "files" / path.relative_to(ROOT)
        if path.is_dir():
            listed = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
            rows = [f'<li><a href="{self._copy(each).name}">{html.escape(each.name)}</a></li>' for each in listed]
            copy.mkdir(parents=True, exist_ok=True)
            title = html.escape(path.relative_to(ROOT).as_posix())
            head = f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
            text = f"{head}<ul>{''.join(rows)}</ul>\n"
            (copy / "index.html").write_text(text, encoding="utf-8")
            return copy
        if path.suffix not in (".svg", ".png", ".html"):
            copy = copy.with_name(f"{copy.name}.txt")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path not in self._copied:
            shutil.copyfile(path, copy)
            self._copied.add(path)
        return copy


def _git(*words: str) -> str:
    """The answer of git about the clone; empty without one, or where it is not installed."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _origin() -> str:
    """The https address of the remote `origin`; empty without one."""
    remote = _git("remote", "get-url", "origin")
    if found := re.fullmatch(r"(?:ssh://)?git@([^:/]+)[:/](.+?)(?:\.git)?/?", remote):
        return f"https://{found[1]}/{found[2]}"
    return re.sub(r"(?:\.git)?/?$", "", remote) if remote.startswith("https://") else ""


def sources(docs: Path) -> Iterator[tuple[Path, Path]]:
    """Every file of the site's pages: where it is, and its path there."""
    yield ROOT / "README.md", Path("index.md")
    for path in sorted(docs.rglob("*")):
        if path.is_file() and path.suffix in SHOWN:
            yield path, path.relative_to(docs)


def copied(docs: Path, pages: Path) -> Repository:
    """Copy the pages, rewritten; says where links to the repository lead."""
    shutil.rmtree(pages, ignore_errors=True)
    repository, terms = Repository(pages), glossary(docs)
    for source, inside in sources(docs):
        target = pages / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copyfile(source, target)
            continue
        text = source.read_text(encoding="utf-8")
        if source.parent == ROOT:
            title, first, others = text.split("\n\n", 2)
            text = "\n\n".join([title, first, SAMPLES, others])
        text = rewritten(text, _links(source, target, docs, repository))
        known = {} if inside.name in ("glossary.md", "register.md") or inside.parts[0] == "reference" else terms
        target.write_text(explained(text, known), encoding="utf-8")
    shutil.copyfile(Path(__file__).with_suffix(".css"), pages / "site.css")
    return repository


def _links(source: Path, target: Path, docs: Path, repository: Repository) -> Callable[[str], str]:
    """The rule by which a page's links are rewritten."""
    pages = target.parents[len(target.relative_to(repository._pages).parts) - 1]  # noqa: SLF001 - of this module

    def new(link: str) -> str:
        path, hash_, anchor = link.partition("#")
        if OUTSIDE.match(link):
            return link
        # a page is linked to as it lies in the repository, wherever the pages are that are built
        own = source.parent if source.is_relative_to(ROOT) else DOCS / source.relative_to(docs).parent
        there = Path(os.path.normpath(own / unquote(path)))
        if there == ROOT / "README.md" or there == DOCS:
            inside = pages / "index.md"
        elif there.is_relative_to(DOCS) and there.suffix in SHOWN:
            inside = pages / there.relative_to(DOCS)
        elif there.exists() and there.is_relative_to(ROOT):
            return repository.link(there, target) + (f"{hash_}{anchor}" if repository.address else "")
        else:
            return link
        return f"{os.path.relpath(inside, target.parent)}{hash_}{anchor}"

    return new


def rewritten(text: str, link: Callable[[str], str]) -> str:
    """A page for Python's Markdown: items indented by four, lists apart from text above them, and other links."""
    lines: list[str] = []
    items: list[int] = []  # columns where the texts of the open items begin
    fenced, shift = "", 0
    for line in text.splitlines():
        if fenced:
            lines.append(" " * shift + line[_lead(line, items) :] if line.strip() else line)
            fenced = "" if line.strip() == fenced else fenced
            continue
        if not line.strip():
            lines.append("")
            continue
        indent = len(line) - len(line.lstrip())
        item, above = ITEM.match(line), lines[-1] if lines else ""
        if item and not items and above.strip() and item["mark"][0] in "023456789":
            item = None  # a number at the beginning of a line of a paragraph
        ends = item or not above.strip() or FENCE.match(line) or (indent == 0 and _ends(line))
        while items and indent < items[-1] and ends:
            items.pop()
        shift = 4 * len(items)
        if item and (items or indent < 4):
            if not items and above.strip() and not ITEM.match(above) and not above.startswith(" "):
                lines.append("")
            items.append(indent + len(item["mark"]) + len(item["space"]))
            lines.append(" " * shift + LINK.sub(lambda it: it["before"] + link(it["target"]), line.lstrip()))
            continue
        if found := FENCE.match(line):
            fenced = found[1]
        body = line[min(indent, items[-1]) :] if items else line
        lines.append(" " * shift + (body if fenced else LINK.sub(lambda it: it["before"] + link(it["target"]), body)))
    return "\n".join(lines) + "\n"


def _lead(line: str, items: list[int]) -> int:
    """Blanks that a line of a block in an item has for the item's sake."""
    return min(len(line) - len(line.lstrip()), items[-1] if items else 0)


def _ends(line: str) -> bool:
    """True for a line that ends a list without a blank line above it."""
    return line.startswith(("#", "|", "<!--"))


def glossary(docs: Path) -> dict[str, str]:
    """Term → its meaning, of docs/glossary.md, without marks."""
    page = docs / "glossary.md"
    if not page.exists():
        return {}
    text = page.read_text(encoding="utf-8")
    found = {it["term"]: " ".join(it["meaning"].split()) for it in TERM.finditer(text)}
    bare = {
        term: re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", meaning)
        for term, meaning in found.items()
        if " " in term or not term.islower()
    }
    return {term: meaning for term, meaning in bare.items() if len(meaning) <= LONGEST}


def explained(text: str, terms: dict[str, str]) -> str:
    """A page with the meaning of each term at its first use in a paragraph or an item, shown where a pointer rests."""
    if not terms:
        return text
    forms = {form: term for term in terms for form in (term, f"{term}s")}
    forms |= {f"{term[:-1]}ies": term for term in terms if term.endswith("y")}
    left = dict(terms)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))})(?![\w-])")

    def mark(it: re.Match[str]) -> str:
        meaning = left.pop(forms[it[0]], None)
        return it[0] if meaning is None else f'<abbr title="{html.escape(meaning)}">{it[0]}</abbr>'

    lines, fenced = [], False
    for line in text.splitlines():
        fenced ^= bool(FENCE.match(line))
        if not fenced and line.strip() and not re.match(r"\s*(?:[#|<]|!\[)| {4}", line):
            parts = CODE.split(line)
            line = "".join(part if k % 2 else pattern.sub(mark, part) for k, part in enumerate(parts))  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines) + "\n"


def configuration(repository: Repository) -> str:
    """mkdocs.yml as it lies in the folder that has the pages and gets the site."""
    text = CONFIG.read_text(encoding="utf-8")
    text = text.replace("docs_dir: build/", "docs_dir: ").replace("site_dir: build/", "site_dir: ")
    text = text.replace("paths: [.]", f"paths: [{ROOT}]")
    return text + (f"repo_url: {repository.address}\n" if repository.address else "")


def main() -> int:
    """Copy and build; returns the exit status of the build."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.renderers.site", description="Build the documentation as a site."
    )
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for pages/ and site/")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    given = parser.parse_args()
    program = shutil.which("zensical", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        print("zensical is not installed: make .venv/.docs", file=sys.stderr)
        return 2
    out = given.out.absolute()
    repository = copied(given.docs.absolute(), out / "pages")
    shutil.rmtree(out / "site", ignore_errors=True)
    (out / "mkdocs.yml").write_text(configuration(repository), encoding="utf-8")
    done = subprocess.run([program, "build", "--strict", "--config-file", str(out / "mkdocs.yml")], check=False)  # noqa: S603
    print(f"{out / 'site' / 'index.html'}; {repository.says()}", file=sys.stderr)
    print(f"Search needs HTTP: python3 -m http.server --directory {given.out / 'site'} 8000", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
