"""A new defence is its own files and six lines in four others, a new attack its own, a row and a line of help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.new_protocol.sources import Line, add_protocol, changes, copy_of_sources

pytestmark = pytest.mark.second_tier

BIN = Path(sys.executable).parent
RULE, ATTACK = (Path(__file__).resolve().parents[1] / name / "files" for name in ("new_rule", "new_attack"))
#: The lines of its setting, its feature and its rule.
OF_RULE = (
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
#: The row of an attack, and its line in the help.
OF_ATTACK = (
    Line(
        "attacks/registry.py",
        '        reads=("discount", "max_entries", *KMEANS[1:]),',
        '    ),\n    _grouping(\n        "earliest",\n        "First tree",\n        "the leaves of the first tree",\n'
        '        _later("treetap.attacks.id2graph.first_tree", "first_tree"),',
    ),
    Line("lab/audit/cli.py", "    own-cuts  ", "    earliest           the leaves of the first tree are the groups"),
)


@pytest.mark.parametrize(
    ("files", "lines", "added", "tests"),
    [
        (RULE, OF_RULE, 6, ("tests/clipped", "tests/library/test_exclusions.py")),
        (ATTACK, OF_ATTACK, 7, ("tests/first_tree", "tests/attacks/test_registry.py")),
    ],
)
def test_a_new_part_works(
    files: Path, lines: tuple[Line, ...], added: int, tests: tuple[str, ...], tmp_path: Path
) -> None:
    """Its own tests and those of the list pass; import rules hold, and no file that is there loses a line."""
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        copy_of_sources(folder)
    add_protocol(after, lines, files)
    found = changes(before, after)
    own = {path.relative_to(files).as_posix() for path in files.rglob("*.py")}
    assert (found.added, found.removed) == (own, set())
    assert set(found.edited) == {line.file for line in lines}
    assert [sum(counts) for counts in zip(*found.edited.values(), strict=True)] == [added, 0]
    variables = {**os.environ, "PYTHONPATH": str(after)}
    imports, lint = (BIN / "lint-imports", "--no-cache"), (BIN / "ruff", "check", "--no-cache", *own)
    for command in (imports, lint, (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests)):
        ended = subprocess.run(command, cwd=after, env=variables, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
