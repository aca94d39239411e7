"""A new defence is its own files and six lines in four files: added to a copy of the sources, it works there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.new_protocol.sources import Line, add_protocol, changes, copy_of_sources

pytestmark = pytest.mark.second_tier

BIN = Path(sys.executable).parent
FILES = Path(__file__).resolve().parent / "files"
#: The lines of its setting, its feature and its rule.
LINES = (
    Line(
        "party/defences/settings.py",
        '    """Labels, trees: the label holder grows the first trees alone."""',
        "    clipped: Annotated[int, Field(ge=1)] | None = None\n"
        '    """Labels, trees: the most that is summed of one."""',
    ),
    Line("treetap/protocols/exclusions.py", "    REDUCED_LEAKAGE = ", '    CLIPPED = "clipped"'),
    Line(
        "treetap/protocols/exclusions.py",
        "TRAININGS: tuple[Exclusion, ...] = (",
        '    Exclusion(F.CLIPPED, F.REGRESSION, "targets have no bound", "leave it out"),',
    ),
    Line(
        "tests/library/test_exclusions.py",
        "    F.REDUCED_LEAKAGE: ",
        '    F.CLIPPED: {"defences": {"clipped": 9}},',
    ),
    Line(
        "party/growth/rule.py",
        '    "treetap.party.growth.column_noise.NoisedParties": ',
        '    "treetap.party.growth.rules.clipped.Clipped": '
        "lambda part: part.labelled and bool(part.config.defences.clipped),",
    ),
)


def test_a_new_defence_works(tmp_path: Path) -> None:
    """It changes what is summed and the manifest; the import rules hold, and no file that is there loses a line."""
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        copy_of_sources(folder)
    add_protocol(after, LINES, FILES)
    found = changes(before, after)
    own = {path.relative_to(FILES).as_posix() for path in FILES.rglob("*.py")}
    assert (found.added, found.removed) == (own, set())
    assert set(found.edited) == {line.file for line in LINES}
    assert [sum(counts) for counts in zip(*found.edited.values(), strict=True)] == [6, 0]
    variables = {**os.environ, "PYTHONPATH": str(after)}
    tests = ("-m", "pytest", "-p", "no:cacheprovider", "tests/clipped", "tests/library/test_exclusions.py")
    imports, lint = (BIN / "lint-imports", "--no-cache"), (BIN / "ruff", "check", "--no-cache", *own)
    for command in (imports, lint, (sys.executable, *tests)):
        ended = subprocess.run(command, cwd=after, env=variables, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
