"""The command that measures stored figures anew: what the pages name is in its table, and it goes on where it was."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("columns", "leaks", "audits", "experiments", "pivodl-columns")
COMMAND = re.compile(r"(?:python )?(benchmarks/\S+?\.py|treetap [a-z][\w-]*)([^`\n#]*)(?=`|#|$)", re.MULTILINE)
#: Commands of the pages without a row: why.
NO_ROW = {
    "benchmarks/credit.py --obfuscation short-exponent --min-cell-records 0 5": "seconds and bytes: no attack",
    "benchmarks/columns_from_sums.py --trees 20 100": "rows have more trees, and more tables",
    "treetap demo --details": "how a verdict is printed; rows have its figures",
    "treetap audit": "names the command; rows call it, and the benchmarks its attacks",
    "treetap experiment": "rows have the experiments' files",
}


@pytest.fixture
def stored(benchmark: Any) -> Any:
    """Its module."""
    return benchmark("stored_figures")


def test_what_the_pages_name_has_a_row(stored: Any) -> None:
    """A row's command begins with that of the page, in which … stands for anything; each reason is of a page."""
    rows = [command.removeprefix("python ") for row in stored.ROWS for command in row.commands]
    texts = [(ROOT / f"benchmarks/measured/{page}.md").read_text(encoding="utf-8") for page in PAGES]
    named = {" ".join("".join(it).split()) for text in texts for it in COMMAND.findall(text)}
    patterns = {name: re.compile(".*".join(map(re.escape, name.split("…")))) for name in named - NO_ROW.keys()}
    assert [name for name, pattern in patterns.items() if not any(map(pattern.match, rows))] == []
    assert NO_ROW.keys() <= named
    assert all((ROOT / page).exists() for row in stored.ROWS for page in row.pages.split())


def test_an_interrupted_run_goes_on(
    stored: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What has ended well stays as it is; a failure is shown; a table that is missing is said; other sources begin."""
    command = 'python -c \'open("made", "x")\' && python -c \'import os; os.stat("again")\''
    rows = [stored.Row("a", command, "README.md", 1), stored.Row("b", "python -c ''", "README.md", 1, "no_such_table")]
    monkeypatch.setattr(stored, "ROWS", rows)
    monkeypatch.setattr(stored, "sources", lambda _: "first")
    monkeypatch.setattr(sys, "argv", ["stored_figures.py", "--workdir", str(tmp_path)])
    assert stored.main() == 1
    assert re.search("again(.|\n)*TREETAP_DATA lacks no_such_table", capsys.readouterr().err)
    (tmp_path / "a" / "first" / "again").touch()
    assert stored.main() == 1
    assert [len(stored.finished(row, tmp_path)) for row in rows] == [2, 0]
    monkeypatch.setattr(stored, "sources", lambda _: "second")
    assert stored.main() == 1
    assert stored.finished(rows[0], tmp_path)[0]["seconds"] > 0
    assert (tmp_path / "a" / "first").exists()  # until the row is finished for the new sources
