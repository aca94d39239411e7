"""The page of the reproduction of the ID2Graph paper's defences: tables are what results give, verdicts are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.page_commands import REPRODUCTIONS, python

pytestmark = pytest.mark.second_tier

DEFENCES = REPRODUCTIONS / "id2graph_defences"


def test_the_page_has_the_tables_of_its_results(tmp_path: Path) -> None:
    """Filled again from the results the page stays as it is, and changes where a result is another one."""
    results = (DEFENCES / "results.jsonl").read_text()
    changed = tmp_path / "changed.jsonl"
    changed.write_text(results.replace('"auc": 0.', '"auc": 0.9'))
    code = """
import sys
from pathlib import Path
from defences_page import with_tables
from resumable import Results
page = Path(sys.argv[1]).read_text()
print(*(with_tables(page, Results(Path(each))) == page for each in sys.argv[2:]))
"""
    done = python(DEFENCES, code, DEFENCES / "README.md", DEFENCES / "results.jsonl", changed)
    assert (done.status, done.out.split()) == (0, ["True", "False"]), done.err


def test_verdicts_of_planted_points() -> None:
    """Dominance needs both measures and allows ties; a repair must be better at every ε up to 1, and only there."""
    code = """
from claims import better_at_small, dominated
from frontiers import Figure, Frontier, Point

def point(defence, value, auc, v):
    return Point(defence, value, None, Figure(auc, None), Figure(0, None), {"id2graph": Figure(v, None)})

mutual = [point("id_lmid", 1, 0.8, 0.3), point("id_lmid", 2, 0.9, 0.5)]
noisy = [point("label_dp", 0.5, 0.8, 0.3), point("label_dp", 1, 0.85, 0.4), point("label_dp", 2, 0.9, 0.6)]
print(dominated(mutual, noisy, "id2graph"), dominated(noisy, mutual, "id2graph"))
for grafted in ((0.81, 0.86, 0.7), (0.81, 0.85, 0.95)):
    repaired = [point("grafting", each.value, auc, 0) for each, auc in zip(noisy, grafted)]
    print(better_at_small(Frontier("", "", True, (1,), (*noisy, *repaired), {}), "grafting", "label_dp"))
"""
    done = python(DEFENCES, code)
    assert done.out.split() == ["2", "1", "True", "False"], done.err
