"""The walks of docs/walks.md do what they say, and take no longer."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents import blocks, carry_out, own_environment

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "walks.md"
#: In the clone's folder beside the examples, which are copied.
CLONE = ("README.md", "attacks", "docs", "party", "tests")
LIMIT_S = 600
#: Words a minute of a reader of English (Brysbaert 2019), and those that a reader of the repository has.
PACE, MINUTES = 238, 10
_, *WALKS = PAGE.read_text(encoding="utf-8").split("\n## ")
FIRST, _, READER = WALKS


def _page(walk: str, folder: Path) -> Path:
    page = folder / "walk.md"
    page.write_text(f"## {walk}", encoding="utf-8")
    return page


def _processor_s() -> float:
    """Of all processes that this one has waited for, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.second_tier
@pytest.mark.long
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.xdist_group("pages")
@pytest.mark.parametrize("walk", WALKS, ids=[walk.partition("\n")[0] for walk in WALKS])
def test_a_walk_does_what_it_says(walk: str, tmp_path: Path) -> None:
    """Its files and commands, what it says that they print, and its seconds of processor time at most."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("runs", "__pycache__"))
    for name in CLONE:
        (folder / name).symlink_to(ROOT / name)
    before = _processor_s()
    outcome = carry_out(_page(walk, tmp_path), folder, own_environment(), LIMIT_S)
    taken, said = _processor_s() - before, re.search(r"; (\d+) s\.\*", walk)
    print(f"{taken:.0f} s of processor time, {sum(seconds for _, seconds in outcome.seconds):.0f} s in all")
    assert outcome.faults == []
    assert said is not None
    assert taken <= int(said[1])


def test_the_first_attempt_has_each_line_that_the_second_adds(tmp_path: Path) -> None:
    """As it prints them, which is carried out above."""
    shown = blocks(_page(FIRST, tmp_path))
    (error, *_), (added,) = (
        [block.text for block in shown if block.language == "text"],
        [block.text for block in shown if ".toml, added" in block.text],
    )
    _, *lines = added.splitlines()
    assert len(lines) >= 4
    assert [line for line in lines if line not in error] == []


def test_ten_minutes_suffice_for_what_is_to_be_read(tmp_path: Path) -> None:
    """Every command shows something, and a reader is through with it in time."""
    shell = "".join(block.text for block in blocks(_page(READER, tmp_path)) if block.language == "sh")
    words = {
        line: len(subprocess.check_output(["bash", "-c", line], cwd=ROOT, text=True).split())
        for line in shell.splitlines()
        if line.startswith(("cat README", "sed "))
    }
    assert len(words) >= 6
    assert min(words.values()) >= 50, words
    assert sum(words.values()) <= MINUTES * PACE, words
