"""Boards and alerts name metrics and labels that there are, and leave out none without a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from coordinator.runtime.metrics import CoordinatorMetrics
from party.approvals.watched import Watched
from party.runtime.metrics import PartyMetrics
from renderers.rendering import ROOT
from renderers.watch import Panel, source
from treetap.commands.relay import RelayMetrics
from treetap.wire.tls import TlsFiles

#: What follows a histogram's name, and labels that Prometheus and its functions add.
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
ADDED = {"instance", "job", "le"}
NAME = re.compile(r"\b(?:treetap|process)_\w+")
#: Types that Grafana brings along.
CORE = {"row", "timeseries", "stat", "bargauge"}


@cache
def labels_of() -> dict[str, set[str]]:
    """Every metric of a process, by the name of a series of it, with its labels."""
    party = PartyMetrics("bank")
    party.certificates(TlsFiles(*map(Path, ("ca.crt", "bank.crt", "bank.key"))))
    Watched(party, cast(Any, None), cast(Any, None))
    measured: dict[str, set[str]] = {}
    for registry in (party.registry, CoordinatorMetrics("c").registry, RelayMetrics("r").registry):
        for collector in list(registry._collector_to_names):
            labels = {*getattr(collector, "_labelnames", ())}
            for family in collector.collect():
                ends = {"counter": ("_total",), "histogram": OF_HISTOGRAMS}.get(family.type, ("",))
                measured |= {f"{family.name}{end}": labels for end in ends}
    return measured


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
