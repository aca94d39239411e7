"""The example `watch`: names of metrics, containers, limits, and alerts that fire.

Boards and alerts name metrics and labels that there are, and leave out none without a reason.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.needs import promtool
from tests.simulator import in_place
from tools.renderers.rendering import ROOT
from tools.renderers.watch import JOB, Alert, Panel, rules, source
from treetap.coordinator.config import CoordinatorConfig
from treetap.metrics import ProcessMetrics
from treetap.party import config as party_config
from treetap.party.approvals.ledger import Approvals
from treetap.party.approvals.watched import PERIOD_S, Watched
from treetap.party.config import PartyConfig
from treetap.party.policy import Policy
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.party.runtime.metrics import PartyMetrics
from treetap.wire.tls import Insecure

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


# ---- The profile `watch` of docker-compose.yml: whose metrics Prometheus reads, and from where it is asked


COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: Mapping[str, Any] = COMPOSE["services"]
WATCHING = {name for name, service in SERVICES.items() if service.get("profiles") == ["watch"]}


def _on(network: str) -> set[str]:
    return {name for name, service in SERVICES.items() if network in service.get("networks", ())}


def _metrics() -> Iterator[tuple[str, str | None]]:
    """Each process of the federation, and where its own file says that it answers for metrics."""
    folder = ROOT / "examples" / "compose"
    yield "coordinator", CoordinatorConfig.from_file(folder / "coordinator" / "coordinator.toml").metrics
    for name in ("label-holder", "feature-b", "feature-c"):
        yield name, party_config.read(folder / name / "party.toml").metrics


def test_prometheus_reads_each_process_on_a_network_of_the_two() -> None:
    """At an alias of that network, which the process's own file names; nothing else is on it, and it leads nowhere."""
    (scraped,) = yaml.safe_load((ROOT / "examples" / "watch" / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for group in scraped["static_configs"] for target in group["targets"]]
    assert scraped["job_name"] == JOB
    assert targets == [metrics for _, metrics in _metrics()]
    for name, metrics in _metrics():
        network = f"watch-{name}"
        assert SERVICES[name]["networks"][network]["aliases"] == [str(metrics).removesuffix(":9464")]
        assert _on(network) == {name, "prometheus"}
        assert COMPOSE["networks"][network] == {"internal": True}


def test_what_watches_has_no_other_way_in() -> None:
    """Ports are of loopback, files are read alone, and Prometheus answers on no network that a party is on."""
    assert {"prometheus", "grafana"} == WATCHING == _on("boards")
    for name in WATCHING:
        service = SERVICES[name]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert all(mount.endswith(":ro") for mount in service["volumes"] if mount.startswith("./"))
        assert service["read_only"]
        assert not {"tls", "state"} & {mount.partition("-")[0] for mount in service["volumes"]}
    assert "--web.listen-address=prometheus.boards:9090" in SERVICES["prometheus"]["command"]
    assert SERVICES["prometheus"]["networks"]["boards"]["aliases"] == ["prometheus.boards"]


@pytest.mark.parametrize("name", sorted(WATCHING))
def test_files_that_are_mounted_are_there(name: str) -> None:
    """Docker makes an empty folder of one that is not."""
    mounts = [mount.split(":")[0] for mount in SERVICES[name]["volumes"] if mount.startswith("./")]
    assert mounts
    assert [mount for mount in mounts if not (ROOT / mount).exists()] == []


# ---- Limits and approvals as metrics: read from the disk, replaced, and said to be unread where a file is damaged


BANK = "bank"


def _policy(**limits: int) -> Policy:
    settings = {
        "people": {"coordinators": ["c"], "label_holders": ["a"]},
        "labels": {"max_leakage": 0.5},
        "partners": {"a": limits},
    }
    return Policy.model_validate(settings)


async def test_limits_are_read_again_and_again(tmp_path: Path) -> None:
    """A changed policy counts at the next reading; after damage the figures stay, and are said to be old."""
    state = tmp_path / "state"
    base = PartyConfig(name=BANK, state=state, insecure=True)
    configs = [base.under(_policy(jobs_per_day=4))]
    metrics, ledger = PartyMetrics(BANK), ledger_of(state)
    ledger.enter(Charge(Kind.TRAINING, Occasion("loans", ("a",), "c", "job", 1)))
    metrics.leakage_bound.labels("a").set(0.25)
    shown = Watched(metrics, lambda: configs[-1], lambda: Approvals(BANK, state / "approvals", Insecure(BANK)))

    def of(name: str) -> dict[tuple[str, ...], float]:
        return {tuple(labels.values()): value for _, labels, value in metrics.samples(name)}

    following = asyncio.ensure_future(shown.follow(in_place))
    await asyncio.sleep(1)
    leakage = ("max_leakage", "labels, by a")
    previews = ("previews_per_day", "a")
    assert of("treetap_limit_spent") == {("jobs_per_day", "a"): 1, leakage: 0.25, previews: 0}
    most = of("treetap_limit_most")
    assert most.items() > {("jobs_per_day", "a"): 4, leakage: 0.5}.items()
    assert (of("treetap_limits_read"), of("treetap_approvals_waiting")) == ({(): 1}, {(): 0})
    configs.append(base.under(_policy(records_per_day=9)))
    await asyncio.sleep(PERIOD_S)
    changed = of("treetap_limit_most")
    assert changed.keys() == {("records_per_day", "a"), leakage, previews}
    with ledger.path.open("r+b") as file:
        file.write(b"?")
    await asyncio.sleep(PERIOD_S)
    assert of("treetap_limits_read") == {(): 0}
    assert of("treetap_limit_most") == changed
    following.cancel()


# ---- promtool reads all queries, rules and the scrape configuration, and each alert fires when it should and not else


WATCH = ROOT / "examples" / "watch"


def _promtool(*words: str, folder: Path) -> None:
    done = subprocess.run([promtool(), *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.second_tier
def test_all_queries_are_promql(tmp_path: Path) -> None:
    """Each as a rule, with what Grafana would put into it."""
    made = [
        {"record": "board:query", "labels": {"panel": panel.title, "legend": legend}, "expr": _filled(expr)}
        for _, panel in source().panels()
        for legend, expr in panel.queries.items()
    ]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "boards", "rules": made}]}))
    _promtool("check", "rules", "queries.yml", folder=tmp_path)


def _filled(expr: str) -> str:
    filled = expr.replace("$__rate_interval", "1m").replace("$__range", "6h").replace("$instance", "a:1")
    assert "$" not in filled
    return filled


@pytest.mark.second_tier
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """With the rules at a place of this machine."""
    text = (WATCH / "prometheus.yml").read_text(encoding="utf-8")
    assert "/etc/prometheus/alerts.yml" in text
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/alerts.yml", "alerts.yml"))
    shutil.copy(WATCH / "alerts.yml", tmp_path)
    _promtool("check", "config", "prometheus.yml", folder=tmp_path)


@pytest.mark.second_tier
def test_each_alert_fires_and_keeps_quiet(tmp_path: Path) -> None:
    """By the series beside it; the labels that its summary names are there."""
    alerts = source().alerts
    (tmp_path / "alerts.yml").write_text(rules(alerts), encoding="utf-8")
    cases = [case for alert in alerts for case in (_case(alert, fires=True), _case(alert, fires=False))]
    # An alert of 15 minutes, 15 minutes after a gap of the scrapes: a counter as before, and a new process's.
    alert = next(alert for alert in alerts if alert.name == "TreetapStepsFail")
    (counter,) = (name for name in alert.fires if name.startswith("treetap"))
    up, start = 'up{instance="a:1"}', 'process_start_time_seconds{instance="a:1"}'
    unseen = {counter: "1x10 _x15 1x20", up: "1x10 _x15 1x20", start: "0x10 _x15 0x20"}
    restarted = {counter: "_x25 1x20", up: "1x10 0x15 1x20", start: "0x10 _x15 1560x20"}
    late = {"at": "35m", "quiet_at": "35m"}
    _run(
        [
            *cases,
            *[
                _case(alert.model_copy(update={"quiet": unseen, **late}), fires=False),
                _case(alert.model_copy(update={"fires": restarted, **late}), fires=True),
            ],
        ],
        tmp_path,
    )
    with pytest.raises(AssertionError, match="FAILED"):
        _run([{**_case(alerts[0], fires=True), "input_series": []}], tmp_path)


def _run(cases: list[dict[str, Any]], folder: Path) -> None:
    (folder / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": cases})
    )
    _promtool("test", "rules", "test.yml", folder=folder)


def _case(alert: Alert, *, fires: bool) -> dict[str, Any]:
    series = alert.fires if fires else alert.quiet
    began = (
        {'process_start_time_seconds{instance="a:1"}': "0x240", 'up{instance="a:1"}': "1x240"} if alert.grows else {}
    )
    there = "".join(f', {label}!=""' for label in re.findall(r"\$labels\.(\w+)", alert.summary))
    firing = f'count(ALERTS{{alertname="{alert.name}", alertstate="firing"{there if fires else ""}}})'
    return {
        "name": f"{alert.name} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in (began | series).items()],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": alert.at if fires else alert.quiet_at or alert.at,
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }
