"""Boards and alerts name metrics and labels that there are, and leave out none without a reason."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache

import pytest

from renderers.rendering import ROOT
from renderers.watch import Panel, source
from treetap.metrics import ProcessMetrics

#: What follows a histogram's name, and labels that Prometheus and its functions add.
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
ADDED = {"instance", "job", "le"}
NAME = re.compile(r"\b(?:treetap|process)_\w+")
#: Kind of a metric, and the method that makes one → ends of the names of its series.
ENDS = {"counter": ("_total",), "gauge": ("",), "histogram": OF_HISTOGRAMS}
#: Types that Grafana brings along.
CORE = {"row", "timeseries", "stat", "bargauge"}


@cache
def labels_of() -> dict[str, set[str]]:
    """Every metric that the sources make, and those of any process, by the name of a series of it, with its labels."""
    measured: dict[str, set[str]] = {}
    for folder in ("treetap", "party", "coordinator", "ops"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if '"treetap_' in text:
                measured |= _made(ast.parse(text))
    of_process = ProcessMetrics("party", "bank").registry.collect()
    families = [one for one in of_process if one.name.startswith("process_")]
    return measured | {f"{one.name}{ENDS[one.type][0]}": set() for one in families}


def _made(module: ast.Module) -> dict[str, set[str]]:
    """The metrics that a module makes."""
    made: dict[str, set[str]] = {}
    texts: dict[str, set[str]] = {}  # names of tuples of labels
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Tuple):
            texts[node.targets[0].id] = {one.value for one in node.value.elts if isinstance(one, ast.Constant)}
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ENDS):
            continue
        name, _, *labels = *node.args, None
        assert isinstance(name, ast.Constant)
        known = {one.value for one in labels if isinstance(one, ast.Constant)}
        starred = (one.value.id for one in labels if isinstance(one, ast.Starred) and isinstance(one.value, ast.Name))
        base = name.value.removesuffix("_total")
        made |= {f"{base}{end}": known.union(*(texts[one] for one in starred)) for end in ENDS[node.func.attr]}
    return made


def _expressions() -> Iterator[tuple[str, str, str]]:
    """Title, legend or summary, and PromQL of every panel and alert."""
    for _, panel in source().panels():
        yield from ((panel.title, legend, expr) for legend, expr in panel.queries.items())
    yield from ((alert.name, alert.summary, alert.condition()) for alert in source().alerts)


def test_metrics_and_labels_exist() -> None:
    """Those of matchers, of `by`, of legends and of summaries."""
    for title, said, expr in _expressions():
        names = NAME.findall(expr) or ["up"]
        assert {*names} - {"up"} <= labels_of().keys(), title
        known = ADDED.union(*(labels_of().get(name, set()) for name in names))
        matched = re.findall(r"(\w+)(?:=~|!=|=)\"", expr)
        grouped = re.findall(r"\w+", " ".join(re.findall(r"(?:by|on) \(([^)]*)\)", expr)))
        shown = re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", said)
        assert {*matched, *grouped, *shown} <= known, title


def test_every_metric_is_shown_or_left_out_with_a_reason() -> None:
    """One that is left out is on no board and in no alert."""
    named = {name for _, _, expr in _expressions() for name in NAME.findall(expr)}
    bare = {name.removesuffix(end) for name in named for end in OF_HISTOGRAMS if name.endswith(end)}
    families = {name.removesuffix("_bucket") for name in labels_of() if not name.endswith(OF_HISTOGRAMS[1:])}
    assert families - named - bare == source().left_out.keys()
    assert all(source().left_out.values())


@pytest.mark.parametrize("name", source().boards)
def test_a_board_is_whole(name: str) -> None:
    """Its panels are Grafana's own, numbered, above no other, and ask the source that is chosen; it says what it is."""
    board = json.loads((ROOT / "examples" / "watch" / "boards" / f"{name}.json").read_text(encoding="utf-8"))
    assert board["uid"] == f"treetap-{name}"
    assert "No Grafana has shown this board" in board["description"]
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "instance"]
    panels = board["panels"]
    assert {one["type"] for one in panels} <= CORE
    assert len({one["id"] for one in panels}) == len(panels)
    assert len({(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels}) == len(panels)
    shown = [one for one in panels if one["type"] != "row"]
    assert {one["datasource"]["uid"] for one in shown} == {"${datasource}"}
    assert all("$instance" in target["expr"] for one in shown for target in one["targets"])
    assert [one["title"] for one in shown] == [panel.title for board, panel in source().panels() if board == name]


def test_a_key_that_is_none_is_refused() -> None:
    """A panel of the file is read strictly."""
    with pytest.raises(ValueError, match="query"):
        Panel.model_validate({"title": "x", "unit": "s", "queries": {}, "why": "x", "do": "x", "query": "up"})
