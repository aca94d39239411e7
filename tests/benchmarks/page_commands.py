"""Commands and pages of the reproductions as a person starts them, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tests.commands import command
from tests.commands.command import Outcome

REPRODUCTIONS = Path(__file__).parents[2] / "benchmarks" / "reproductions"


def python(folder: Path, code: str, *words: str | Path, tables: bool = False) -> Outcome:
    """Run code, or a file where it is empty, with the modules of a reproduction; `tables`: with TREETAP_DATA."""
    return command.python(*(["-c", code] if code else []), *words, paths=(folder, REPRODUCTIONS), tables=tables)


def page_is_of_its_results(folder: Path, module: str, changed: Path, old: str, new: str) -> None:
    """Assert that a page filled again from its results stays as it is, and changes with `new` in the place of `old`.

    `module`: the one with `PAGE`. `changed`: where the other results are written.
    """
    changed.write_text((folder / "results.jsonl").read_text().replace(old, new))
    code = f"""
import sys
from pathlib import Path
from {module} import PAGE
from resumable import Results
page = Path(sys.argv[1]).read_text()
print(*(PAGE.with_tables(page, Results(Path(each))) == page for each in sys.argv[2:]))
"""
    done = python(folder, code, folder / "README.md", folder / "results.jsonl", changed)
    assert (done.status, done.out.split()) == (0, ["True", "False"]), done.err
