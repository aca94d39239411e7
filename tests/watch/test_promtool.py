"""promtool reads all queries, rules and the scrape configuration, and each alert fires when it should and not else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from renderers.rendering import ROOT
from renderers.watch import Alert, rules, source
from tests.needs import promtool

pytestmark = pytest.mark.second_tier
WATCH = ROOT / "examples" / "watch"


def _promtool(*words: str, folder: Path) -> None:
    done = subprocess.run([promtool(), *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


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


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """With the rules at a place of this machine."""
    text = (WATCH / "prometheus.yml").read_text(encoding="utf-8")
    assert "/etc/prometheus/alerts.yml" in text
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/alerts.yml", "alerts.yml"))
    shutil.copy(WATCH / "alerts.yml", tmp_path)
    _promtool("check", "config", "prometheus.yml", folder=tmp_path)


def test_each_alert_fires_and_keeps_quiet(tmp_path: Path) -> None:
    """By the series beside it; the labels that its summary names are there."""
    alerts = source().alerts
    (tmp_path / "alerts.yml").write_text(rules(alerts), encoding="utf-8")
    cases = [case for alert in alerts for case in (_case(alert, fires=True), _case(alert, fires=False))]
    _run([*cases, *_gaps(next(alert for alert in alerts if alert.name == "TreetapStepsFail"))], tmp_path)
    with pytest.raises(AssertionError, match="FAILED"):
        _run([{**_case(alerts[0], fires=True), "input_series": []}], tmp_path)


def _gaps(alert: Alert) -> list[dict[str, Any]]:
    """An alert of 15 minutes, 15 minutes after a gap of the scrapes: a counter as before, and a new process's."""
    (counter,) = (name for name in alert.fires if name.startswith("treetap"))
    up, start = 'up{instance="a:1"}', 'process_start_time_seconds{instance="a:1"}'
    unseen = {counter: "1x10 _x15 1x20", up: "1x10 _x15 1x20", start: "0x10 _x15 0x20"}
    restarted = {counter: "_x25 1x20", up: "1x10 0x15 1x20", start: "0x10 _x15 1560x20"}
    late = {"at": "35m", "quiet_at": "35m"}
    return [
        _case(alert.model_copy(update={"quiet": unseen, **late}), fires=False),
        _case(alert.model_copy(update={"fires": restarted, **late}), fires=True),
    ]


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
