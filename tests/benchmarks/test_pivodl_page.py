"""The page of the PIVODL reproduction: its tables are what the results give, and its fits are right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks" / "reproductions"
PIVODL = FOLDER / "pivodl"


def _python(code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "TREETAP_DATA"}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, (FOLDER.parents[1], PIVODL, FOLDER)))}
    command = [sys.executable, *(["-c", code] if code else []), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_the_page_has_the_tables_of_its_results(tmp_path: Path) -> None:
    """Filled again from the results the page stays as it is, and changes where a result is another one."""
    results = (PIVODL / "results.jsonl").read_text()
    changed = tmp_path / "changed.jsonl"
    changed.write_text(results.replace('"accuracy": 0.', '"accuracy": 0.9'))
    code = """
import sys
from pathlib import Path
from page import with_tables
from resumable import Results
page = Path(sys.argv[1]).read_text()
print(*(with_tables(page, Results(Path(each))) == page for each in sys.argv[2:]))
"""
    done = _python(code, PIVODL / "README.md", PIVODL / "results.jsonl", changed)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "False"]), done.stderr


def test_fits_find_planted_growth() -> None:
    """A line and a power law through points that lie on them."""
    code = """
from points import Point, growth, linear
lines = [Point(x, 2 + 3 * x, 0, 0, 1) for x in (3, 5, 9)]
shifted = [Point(x, 4 * (x - 1) ** 0.5, 0, 0, 1) for x in (3, 5, 9)]
powers = [Point(x, 4 * x**1.5, 0, 0, 1) for x in (3, 5, 9)]
print(*(round(each, 9) for each in linear(lines)), round(growth(powers), 9), round(growth(shifted, 1), 9))
"""
    done = _python(code)
    assert done.stdout.split() == ["2.0", "3.0", "1.0", "1.5", "0.5"], done.stderr


def test_without_the_tables_the_command_says_so(tmp_path: Path) -> None:
    """Exit status 2, and no results."""
    done = _python("", PIVODL / "run.py", "secure", "--json", tmp_path / "results.jsonl", "--out", tmp_path)
    assert done.returncode == 2
    assert "TREETAP_DATA is not set" in done.stderr
    assert not (tmp_path / "results.jsonl").exists()
