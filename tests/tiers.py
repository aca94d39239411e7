"""Two tiers of tests: `make test` carries out the first, `make test-all` both.

A test is of the second tier if it needs a library that `make test` does not install, is one more instance of a rule
that a faster test covers, or takes a second: it has the marker `second_tier`, or its file has. Tests of minutes,
`campaign`, are in neither. With `second_tier(but=3)` or `campaign(but=3)` the first three instances of its parameters
are without the marker. A sweep, a test of more than `MOST` instances of the second tier, has that many there, evenly
spaced, and all others in `campaign`. Where no path is named, the first tier is the default; of a named path the tests
of both, and all instances, are carried out. The run ends with how many further tests there are.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests import heavy_libraries

ROOT = Path(__file__).parents[1]
#: Tier → markers of the tests and files that it leaves out, and the command that carries them out.
LEFT_OUT = {"first": ({"second_tier", "campaign"}, "make test-all"), "all": ({"campaign"}, "make campaign")}
#: Instances of a test in the second tier.
MOST = 1
_MARKS = re.compile(r"^pytestmark = (\[$.*?^\]|.*?$)", re.M | re.S)
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.M)
#: Distribution → the name by which it is imported, where that is another one.
IMPORTED = {
    "scikit-learn": "sklearn",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "xgboost-cpu": "xgboost",
    "pytest-xdist": "xdist",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tier`."""
    said = "first: tests that need few libraries and little time; all: also their further instances"
    parser.addoption("--tier", choices=("first", "all"), help=f"{said} (default: first, or all of the paths named)")
    said = f"short: instances of a sweep beyond {MOST} are of campaign; whole: none"
    parser.addoption("--sweeps", choices=("short", "whole"), help=f"{said} (default: short, or whole of paths named)")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier, hide the libraries of the second from the first, and register what counts the further tests."""
    option, named = config.option, config.args_source is pytest.Config.ArgsSource.ARGS
    option.sweeps = option.sweeps or ("whole" if named else "short")  # workers of pytest-xdist are told
    if option.tier is None:
        option.tier = "first" if config.args_source is pytest.Config.ArgsSource.TESTPATHS else "all"
    if option.tier == "first":
        heavy_libraries.hide()
    config.pluginmanager.register(Tier(config), "tier")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take a marker with `but` off the first instances, and shorten sweeps, so that `-m` leaves each to its tier."""
    instances, sweeps = Counter[str](), defaultdict[str, list[pytest.Item]](list)
    for item in items:
        function = item.nodeid.partition("[")[0]
        spared = [mark for mark in item.own_markers if instances[function] < mark.kwargs.get("but", 0)]
        item.own_markers[:] = [mark for mark in item.own_markers if mark not in spared]
        instances[function] += 1
        if item.get_closest_marker("second_tier") and not item.get_closest_marker("campaign"):
            sweeps[function].append(item)
    if config.option.sweeps == "short":
        for sweep in sweeps.values():
            for place, item in enumerate(sweep):
                if place * MOST // len(sweep) == (place - 1) * MOST // len(sweep) and len(sweep) > MOST:
                    item.add_marker(pytest.mark.campaign)


def left_out(path: Path, tier: str) -> list[str]:
    """The tests, by name, of a file that a tier leaves out as a whole; the file is read and not imported."""
    text, (markers, _) = path.read_text(encoding="utf-8"), LEFT_OUT[tier]
    if not any(f"mark.{each}" in mark for mark in _MARKS.findall(text) for each in markers):
        return []
    return _TEST.findall(text)


def missing(extra: str) -> dict[str, str]:
    """Distributions of an extra of pyproject.toml that are not installed, by the name under which they are imported."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return {
        IMPORTED.get(name, name.replace("-", "_")): name
        for name in sorted(set(_distributions(extras, extra)))
        if not _installed(name)
    }


def _distributions(extras: dict[str, list[str]], extra: str) -> Iterator[str]:
    for requirement in extras[extra]:
        name, inner = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement).groups()  # type: ignore[union-attr]
        if name == "treetap":
            for each in inner.split(","):
                yield from _distributions(extras, each)
        else:
            yield name


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


class Tier:
    """The tests and libraries that one run does without, which it says at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.tier = config.option.tier
        self.first = self.tier == "first"
        self.markers, self.command = LEFT_OUT[self.tier]
        if config.option.markexpr:  # chooses by itself
            self.markers = set()
        self.extra = "test" if self.first else "dev"
        self.missing = missing(self.extra)
        self._further = 0
        self._of_workers: list[int] = []
        # A library that is missing where all are wanted, as in `.ci/run`, fails the tests that need it.
        self._lenient = not os.environ.get("TREETAP_ALL_SOURCES")

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out whole files, without importing them."""
        if not self.markers or not re.fullmatch(r"test_\w+\.py", collection_path.name):
            return None
        names = left_out(collection_path, self.tier)
        self._further += len(names)
        return bool(names) or None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests of other files."""
        kept, further = [], []
        for item in items:
            (further if any(map(item.get_closest_marker, self.markers)) else kept).append(item)
        if further:
            self._further += len(further)
            config.hook.pytest_deselected(items=further)
            items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Judge a file that could not be imported."""
        report = yield
        self._judge(report, report.call.excinfo if report.call else None, collector.nodeid)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge a test that could not import something."""
        report = yield
        self._judge(report, call.excinfo, item.nodeid)
        return report

    def _judge(
        self,
        report: pytest.TestReport | pytest.CollectReport,
        raised: pytest.ExceptionInfo[BaseException] | None,
        name: str,
    ) -> None:
        """Fail what asked for a hidden library, by name; leave out what lacks one of the tier's own."""
        asked = set(heavy_libraries.asked)
        heavy_libraries.asked.clear()
        if raised is None:
            return
        said = str(raised.value)
        absent = _not_found(raised.value)
        if said_by_command := re.search(r"\bneeds? (\w+): (?:\S*pip )?install", said):
            absent = absent or said_by_command[1]
        hidden = sorted(asked | heavy_libraries.HEAVY & set(re.findall(r"\w+", said)))
        if self.first and (absent in heavy_libraries.HEAVY or (report.skipped and hidden)):
            of = absent or ", ".join(hidden)
            report.outcome = "failed"
            fault = f"{name} needs {of}, which is not of the first tier: pytest.mark.second_tier"
            report.longrepr = f"{fault}\n{said[:500]}"
        elif absent in self.missing and self._lenient:
            report.outcome = "skipped"
            reason = f"needs {self.missing[absent]}: pip install -e '.[{self.extra}]'"
            report.longrepr = (str(name), 0, f"Skipped: {reason}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker of pytest-xdist hands its count to the process that controls it."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["further"] = self._further

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """All workers have counted the same tests."""
        self._of_workers.append(getattr(node, "workeroutput", {}).get("further", 0))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out: libraries that are missing, and further tests."""
        if self.missing:
            names = ", ".join(self.missing.values())
            terminalreporter.write_line(f"missing of the extra {self.extra}: {names}; tests that need it did not run")
        if further := max([self._further, *self._of_workers]):
            passed = len(terminalreporter.stats.get("passed", []))
            terminalreporter.write_line(f"{passed:,} passed; at least {further:,} further tests: {self.command}")


def _not_found(error: BaseException | None) -> str | None:
    """The library whose absence is behind an error."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.partition(".")[0]
        error = error.__cause__ or error.__context__
    return None
