"""Grafana's boards and Prometheus' alerts in examples/watch, and docs/reference/alerts.md: see watch.yaml beside."""

from __future__ import annotations

import json
import textwrap
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import yaml
from pydantic import Field

from treetap.strict import Strict

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import bargauge, dashboard, stat, timeseries

    Figure: TypeAlias = timeseries.Panel | stat.Panel | bargauge.Panel

SOURCE = Path(__file__).with_suffix(".yaml")
#: Of a board: columns of its grid that a panel takes of 24, and the rows.
SPAN, HEIGHT = 8, 7
#: The job by which examples/watch/prometheus.yml names all processes of treetap.
JOB = "treetap"
UNSEEN = (
    "Rendered from tools/renderers/watch.yaml. No Grafana has shown this board yet: its form is that of Grafana's "
    "Foundation SDK, and promtool has parsed its queries."
)
HEAD = """# Alerts

Every alert of `examples/watch/alerts.yml`, with what it means and what to do. This page is for a reader whom an alert
has woken; [operations.md](../operations.md#boards-and-alerts) says how to set them up. It is generated from
`tools/renderers/watch.yaml`.

*Critical* needs a person now, *warning* today, *info* when convenient. `increase` counts what has come since; a series
that is new counts whole, if its process answered without it before, or has begun since.
"""


class Panel(Strict):
    """A panel of a board. `queries`: legend → PromQL; `colours`: a value → the colour from there on, `base` below."""

    title: str
    kind: Literal["timeseries", "stat", "bargauge"] = Field("timeseries", alias="as")
    unit: str
    queries: dict[str, str]
    base: str = "green"
    colours: dict[float, str] = {}
    why: str
    do: str


class Row(Strict):
    """Panels of a board under one title."""

    title: str
    panels: list[Panel]


class Board(Strict):
    """A board for processes of one kind."""

    title: str
    kind: Literal["party", "coordinator"]
    about: str
    rows: list[Row]


class Alert(Strict):
    """An alert: `expr` is true, or a counter `grows`, for some time.

    `fires` and `quiet`: series → values a minute, with which it fires `at` that time, and does not at `quiet_at`.
    """

    name: str
    expr: str = ""
    grows: str = ""
    within: str = ""
    holds: str = Field("", alias="for")
    severity: Literal["critical", "warning", "info"]
    summary: str
    why: str
    do: str
    at: str
    quiet_at: str = ""
    fires: dict[str, str]
    quiet: dict[str, str]

    def condition(self) -> str:
        """PromQL: true while the alert is pending.

        `increase` alone would not see a series begin. One is new only where the process answered for metrics without
        it before, or has begun since: else whatever was counted would fire after each gap of the scrapes.
        """
        if bool(self.expr) == bool(self.grows) or bool(self.grows) != bool(self.within):
            raise ValueError(f"{SOURCE.name}: {self.name} needs expr, or grows and within")
        if self.expr:
            return self.expr
        counter, within = self.grows, self.within
        new = f"({counter} unless {counter} offset {within}) > 0"
        seen = f"(up offset {within} == 1 or process_start_time_seconds > time() - {_seconds(within)})"
        return f"increase({counter}[{within}]) > 0 or {new} and on (instance) {seen}"


def _seconds(duration: str) -> int:
    """Seconds of a duration such as 15m or 1h."""
    return int(duration[:-1]) * {"m": 60, "h": 3600}[duration[-1]]


class Watch(Strict):
    """The file. `left_out`: metrics on no board and in no alert → the reason."""

    boards: dict[str, Board]
    alerts: list[Alert]
    left_out: dict[str, str]

    def panels(self) -> Iterator[tuple[str, Panel]]:
        """The panels, each with the name of its board."""
        for name, board in self.boards.items():
            for row in board.rows:
                yield from ((name, panel) for panel in row.panels)


@cache
def source() -> Watch:
    """The content of tools/renderers/watch.yaml. Raises pydantic's ValidationError where it has another form."""
    return Watch.model_validate(yaml.safe_load(SOURCE.read_text(encoding="utf-8")))


def rendered(docs: Path) -> dict[Path, str]:
    """The boards, the alerts and the page about them."""
    watch, folder = source(), docs.parent / "examples" / "watch"
    boards = {folder / "boards" / f"{name}.json": json_of(name, board) for name, board in watch.boards.items()}
    return {
        **boards,
        folder / "alerts.yml": rules(watch.alerts),
        docs / "reference" / "alerts.md": page(watch.alerts),
    }


def rules(alerts: list[Alert]) -> str:
    """The alerts as a file of rules of Prometheus."""
    made = [
        {
            "alert": alert.name,
            "expr": alert.condition(),
            **({"for": alert.holds} if alert.holds else {}),
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": f"{alert.why} {alert.do}"},
        }
        for alert in alerts
    ]
    groups = {"groups": [{"name": JOB, "rules": made}]}
    text = yaml.safe_dump(groups, sort_keys=False, width=118, allow_unicode=True)
    return f"# Rendered from tools/renderers/watch.yaml: make reference\n{text}"


def page(alerts: list[Alert]) -> str:
    """docs/reference/alerts.md."""
    lines = [HEAD]
    for alert in alerts:
        said = f"{alert.why} **Do**: {alert.do}"
        after = f", after {alert.holds}" if alert.holds else ""
        lines += [f"## {alert.name}\n", f"{alert.severity.capitalize()}{after}:\n", "```text"]
        lines += [*_wrapped(alert.condition()), "```\n", *_wrapped(said), ""]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def json_of(name: str, board: Board) -> str:
    """A board as Grafana imports it; the SDK's classes know its fields."""
    with warnings.catch_warnings():
        # it prefers the form of Grafana 12, which older ones do not read
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder

        made = _dashboard(name, board).build()
    return json.dumps(made, cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _dashboard(name: str, board: Board) -> dashboard.Dashboard:
    from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
    from grafana_foundation_sdk.builders.dashboard import Row as BoardRow
    from grafana_foundation_sdk.models.common import DataSourceRef
    from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, VariableOption, VariableRefresh

    source = DataSourceRef("prometheus", "${datasource}")
    instances = (
        QueryVariable("instance")
        .label("process")
        .datasource(source)
        .query(f'label_values(treetap_build_info{{kind="{board.kind}"}}, instance)')
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .current(VariableOption(True, "All", "$__all"))
    )
    made = (
        Dashboard(board.title)
        .uid(f"{JOB}-{name}")
        .description(f"{board.about} {UNSEEN}")
        .tags([JOB])
        .readonly()
        .time("now-6h", "now")
        .refresh("1m")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(instances)
    )
    numbers = count(1)
    for row in board.rows:
        made.with_row(BoardRow(row.title).id(next(numbers)))
        for panel in row.panels:
            made.with_panel(_figure(panel).datasource(source).id(next(numbers)))
    return made


def _figure(panel: Panel) -> Figure:
    from grafana_foundation_sdk.builders import bargauge, stat, timeseries
    from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions
    from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
    from grafana_foundation_sdk.builders.prometheus import Dataquery
    from grafana_foundation_sdk.models.common import BigValueTextMode, LegendDisplayMode, VizOrientation
    from grafana_foundation_sdk.models.dashboard import Threshold, ThresholdsMode

    figure: Figure
    if panel.kind == "stat":
        figure = stat.Panel().text_mode(BigValueTextMode.VALUE_AND_NAME)
    elif panel.kind == "bargauge":
        figure = bargauge.Panel().orientation(VizOrientation.HORIZONTAL)
    else:
        legend = VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)
        figure = timeseries.Panel().fill_opacity(10).legend(legend)
    if not isinstance(figure, timeseries.Panel):
        figure.reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
    steps = [Threshold(None, panel.base), *(Threshold(at, colour) for at, colour in sorted(panel.colours.items()))]
    figure.title(panel.title).description(f"{panel.why} {panel.do}").unit(panel.unit).min(0)
    figure.thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)).span(SPAN).height(HEIGHT)
    for number, (series, expr) in enumerate(panel.queries.items()):
        query = Dataquery().ref_id(chr(ord("A") + number)).expr(expr).legend_format(series)
        figure.with_target(query.range() if panel.kind == "timeseries" else query.instant())
    return figure
