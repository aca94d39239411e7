"""treetap beside others: a cell that cannot be measured holds its reason, and the page is what the results give."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.test_growth import ROOT
from tests.commands.command import python
from tools.renderers import peers as page

pytestmark = pytest.mark.second_tier

RENDERED = "import sys; from tools.renderers.peers import main; sys.exit(main())"
SAYS = "import json; print('a line'); print(json.dumps({'cpu_s': 2.0, 'of': {'it': 1}}, indent=1))"


def test_a_command_answers_or_is_left_with_its_reason(benchmark: Any, tmp_path: Path) -> None:
    """JSON is read from the end of the output; a fault ends the other process of a pair, and so does the limit."""
    peers = benchmark("peers")
    assert peers.command([sys.executable, "-c", SAYS], 60) == {"cpu_s": 2.0, "of": {"it": 1}}
    waits = [sys.executable, "-c", f"import time; open({str(tmp_path / 'begun')!r}, 'w'); time.sleep(600)"]
    with pytest.raises(peers.Left, match="no such schema"):
        peers.commands([[sys.executable, "-c", "raise SystemExit('no such schema')"], waits], 60)
    with pytest.raises(peers.Left, match=r"not done after 0\.1 s"):
        peers.commands([waits], 0.1)


def test_systems_without_such_a_training_are_left(benchmark: Any) -> None:
    """By name, before anything is installed or begun."""
    peers = benchmark("peers")
    for system, case in (("SecretFlow, OU", "ten classes"), ("OpenMined", "forest"), ("XGBoost, joined", "1 M ids")):
        run, word = peers.SYSTEMS[system]
        with pytest.raises(peers.Left):
            run(peers.CASES[case], word, 1.0)


def test_the_page_has_the_table_of_its_results(tmp_path: Path) -> None:
    """Ratios are to the lattice; the committed results give the committed table, others do not."""
    trial = {"case": "30,000 × 23", "system": page.OWN}
    results = [{"trial": trial, "cpu_s": 4.0}, {"trial": {**trial, "system": "SecretFlow, OU"}, "left": "not done"}]
    results += [{"trial": {**trial, "system": "XGBoost, joined"}, "cpu_s": 0.1}]
    assert "| 30,000 × 23 | 4.0 (1) | not done | 0.10 (0.025) |" in page.table(results)
    changed = tmp_path / "peers.jsonl"
    changed.write_text("".join(page.RESULTS.read_text().splitlines(keepends=True)[1:]))
    for path, status in ((page.RESULTS, 0), (changed, 1)):
        assert python("-c", RENDERED, "--check", "--results", path, paths=[ROOT]).status == status
