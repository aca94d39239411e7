"""The reproductions' commands: results that outlive an interruption, tables, refusals."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.commands.command import python
from treetap.errors import BadInput

pytestmark = pytest.mark.second_tier

FOLDER = Path(__file__).parents[2] / "benchmarks" / "reproductions"


@pytest.fixture
def resumable(benchmark: Any) -> Any:
    """The module of the results file, which the commands import from their own folder."""
    return benchmark("resumable")


def test_results_are_found_again(resumable: Any, tmp_path: Path) -> None:
    """What was added is there in the file and in a new reading of it; of two results the last counts."""
    path = tmp_path / "folder" / "results.jsonl"
    results = resumable.Results(path)
    assert results.get({"seed": 1}) is None
    for value in (1, 2):
        results.add({"trial": {"seed": 1, "set": "a"}, "found": value})
    results.add({"trial": {"seed": 2, "set": "a"}, "found": 3})
    for each in (results, resumable.Results(path)):
        assert each.get({"set": "a", "seed": 1})["found"] == 2
        assert each.get({"set": "a", "seed": 2})["found"] == 3
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_line_that_was_cut_off_is_run_again(resumable: Any, kept: int, tmp_path: Path) -> None:
    """A torn last line counts as missing, and the next result takes its place."""
    path = tmp_path / "results.jsonl"
    results = resumable.Results(path)
    results.add({"trial": {"seed": 1}, "found": 1})
    first = path.read_bytes()
    results.add({"trial": {"seed": 2}, "found": 2})
    path.write_bytes(first + path.read_bytes()[len(first) :][:kept])
    again = resumable.Results(path)
    assert again.get({"seed": 1})["found"] == 1
    assert again.get({"seed": 2}) is None
    again.add({"trial": {"seed": 2}, "found": 3})
    assert [json.loads(line)["found"] for line in path.read_text().splitlines()] == [1, 3]


@pytest.mark.parametrize("line", ["no json", "[]", "{}", '{"found": 1}', "null"])
def test_a_foreign_file_is_refused(resumable: Any, line: str, tmp_path: Path) -> None:
    """Another file is neither read as results nor overwritten; the message names file and line."""
    path = tmp_path / "other.jsonl"
    path.write_text('{"trial": {}}\n' + line + "\n")
    with pytest.raises(BadInput, match=r"other\.jsonl: line 2 is no result"):
        resumable.Results(path)


@pytest.mark.campaign
@pytest.mark.long
def test_table_2_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """After one of two seeds only the second is run, and the table holds both, with the paper's figures."""
    path = tmp_path / "results.jsonl"
    words: tuple[str | Path, ...] = ("--sets", "breastcancer", "--over", "centralised", "--results", path, "--json")
    first = python(FOLDER / "id2graph_table2.py", *words, "--models", "forest", "--seeds", "42")
    assert first.status == 0, first.err
    before = path.read_text()
    assert "1 trials, 0 of them" in first.err
    ended = python(FOLDER / "id2graph_table2.py", *words, "--models", "forest", "--seeds", "42", "43")
    assert "2 trials, 1 of them" in ended.err
    assert path.read_text().startswith(before)
    assert len(path.read_text().splitlines()) == 2
    rows: list[dict[str, Any]] = json.loads(ended.out)["rows"]
    assert [(row["set"], row["model"], row["seeds"]) for row in rows] == [("breastcancer", "forest", [42, 43])]
    assert rows[0]["paper"]["id2graph"] == [0.751, 0.106]
    values = [json.loads(line)["attacks"]["id2graph"]["v_measure"] for line in path.read_text().splitlines()]
    assert rows[0]["ours"]["id2graph"] == pytest.approx([statistics.mean(values), statistics.stdev(values)])
    assert min(values) > 0.4
    shown = python(FOLDER / "id2graph_table2.py", *words[:-1], "--show", "--markdown")
    assert shown.out.splitlines()[2].startswith("| Breast cancer | forest | centralised | 2 |")


def test_a_trial_over_sockets_is_the_centralised_one(benchmark: Any) -> None:
    """The attacker knows the same leaves, and every attack has its figures both ways."""
    trials = benchmark("id2graph_trial")
    wire, alone = (
        trials.run(trials.Trial("breastcancer", "boosting", 42, over, depth=2, trees=2))
        for over in ("wire", "centralised")
    )
    assert wire["leaves"] == alone["leaves"]
    assert wire["attacks"].keys() == alone["attacks"].keys() >= {"cl", "uni", "uni+cl"}
    for name, figures in wire["attacks"].items():
        assert figures["v_measure"] == pytest.approx(alone["attacks"][name]["v_measure"]), name


def test_figures_are_drawn_from_results(tmp_path: Path) -> None:
    """A picture for the figure asked for, with a line per attack."""
    given = ("--sets", "breastcancer", "--models", "forest", "--seeds", "42", "--out", tmp_path)
    ended = python(
        FOLDER / "id2graph_figures.py", "--figures", "7", *given, "--results", tmp_path / "r.jsonl", "--json"
    )
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)["7"]
    assert [point[0] for point in found["panels"]["breastcancer"]["forest"]["id2graph-quotient"]] == [1, 3, 5, 10, 20]
    picture = (tmp_path / "figure-7.svg").read_text()
    assert all(f">{name}<" in picture for name in ("CL", "UNI", "UNI+CL", "ID2Graph", "number of trees"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--sets", "fars"), "set TREETAP_DATA to the folder with fars.parquet"),
        (("--seeds", "-1"), "no whole number"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """Exit status 2, no traceback."""
    ended = python(FOLDER / "id2graph_table2.py", *words, "--results", tmp_path / "results.jsonl")
    assert ended.status == 2
    assert says in ended.err
    assert "Traceback" not in ended.err
