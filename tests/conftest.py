"""What every run shares: workers that do not hinder each other, little waiting for disks, seconds by folder."""

from __future__ import annotations

import asyncio
import compileall
import contextlib
import gc
import importlib
import inspect
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import forks
from treetap import logs
from treetap.process import fork_server, forking

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

    from tests.ray_cluster import RayCluster
    from tests.replay import Conducted

pytest_plugins = ["tests.tiers"]
#: Free bytes that the memory file system must have before temporary folders are put there.
ROOM = 2 * 2**30
MEMORY = Path("/dev/shm")
#: What tests import beside each other.
PACKAGES = ("treetap", "party", "coordinator", "attacks", "lab", "ops")

# Processes that tests start inherit these. Tables of tests are small: threads of numpy, scikit-learn and xgboost only
# wait for each other. Without stored bytecode each of several hundred processes would compile all sources again.
os.environ.setdefault("OMP_NUM_THREADS", "1")
logs.quiet_grpc()
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Every step of a party is flushed to disk before it is acknowledged, which in memory takes no time.
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# An example's time is that of a busy machine, and no property.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")


class SecondsByFolder:
    """Sums of the seconds that setting up, calling and tearing down the tests of each folder took."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test; pytest-xdist hands the workers' reports to the controlling process."""
        folder = PurePosixPath(report.nodeid.partition("::")[0]).parent
        self._seconds[folder.name] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print one line, the slowest folder first; with several workers the sum is more than the run's own time."""
        found = self._seconds.most_common()
        if found:
            each = ", ".join(f"{folder} {seconds:.0f}" for folder, seconds in found)
            terminalreporter.write_line(f"seconds by folder: {each}; in all {self._seconds.total():.0f}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the sums with this run, and let processes that tests start hear an interrupt.

    This process computes with the native kernels where the machine has them, as parties do by default.

    Raises:
        UsageError: pytest-xdist would spread a group, whose tests build on each other, over its workers.
    """
    gc.disable()
    config.pluginmanager.register(SecondsByFolder(), "seconds-by-folder")
    from treetap.native import arithmetic

    arithmetic.use(arithmetic.choose("auto").name)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of a shell's `&`: commands that are to be interrupted
        signal.signal(signal.SIGINT, signal.default_int_handler)  # would inherit it
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as of nohup: what is started hears a hang-up, this run not
        signal.signal(signal.SIGHUP, lambda *_: None)
    if config.getoption("dist", "no") == "loadgroup" and not hasattr(pytest.Item, "_nodeid"):
        raise pytest.UsageError(
            f"--dist loadgroup has no effect with pytest {pytest.__version__}, which has no Node._nodeid to mark; "
            "install what the extra dev asks for: pip install -e '.[demo,dev]'"
        )


def pytest_configure_node(node: WorkerController) -> None:
    """Name the fork server to a worker of pytest-xdist; it is started for the first."""
    gc.enable()  # this process collects no tests
    node.workerinput["forks"] = forks.start_server()


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: some wait for processes, and beyond that they hinder each other and containers.

    Every worker imports all test files.
    """
    return len(os.sched_getaffinity(0)) + 1


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile a share of all sources and import a share of the test files first, each worker another one.

    Every worker imports all of them. Without stored bytecode, all would compile each of them at the same time.
    """
    from tests import tiers  # pytest has read it as a plugin

    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    number, root = int(worker["workerid"].removeprefix("gw")), Path(__file__).parents[1]
    share = slice(number, None, worker["workercount"])
    for path in sorted(path for folder in PACKAGES for path in (root / folder).rglob("*.py"))[share]:
        compileall.compile_file(path, quiet=2)
    tests = sorted(path for path in (root / "tests").rglob("test_*.py") if "files" not in path.parts)
    for path in tests[share]:
        if tiers.left_out(path, config.option.tier):
            continue
        # What is wrong with a file is said when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Carry out a test that is a coroutine, under virtual time unless its file has the marker `real_time`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from tests.virtual_time import run

    clock = run if pyfuncitem.get_closest_marker("real_time") is None else asyncio.run
    clock(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the long tests first."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and tests, which stay to the end; none was looked for until now."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _forks(request: pytest.FixtureRequest) -> None:
    """Fork processes from one that has imported what all need, for the whole run."""
    worker = getattr(request.config, "workerinput", None)
    forks.use_server(forks.start_server() if worker is None else worker["forks"])


@pytest.fixture(scope="module")
def own_server(_forks: None) -> Iterator[None]:
    """Fork processes from a server of this process, as a person's command does: for tests of how they begin and end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forking, "above", None)
        yield
        fork_server.FORKS.close()


@pytest.fixture(autouse=True, scope="module")
def _small_tables() -> Iterator[None]:
    """Let this process build small tables of powers."""
    from tests.prepared import SMALL_WINDOWS
    from treetap.additive.residues import fixed_base

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_base, "WINDOWS", SMALL_WINDOWS)
        yield


@pytest.fixture(autouse=True, scope="session")
def _short_proofs() -> Iterator[None]:
    """Let this process prove the form of keys in few rounds; processes that it starts do so in those of production."""
    from tests.prepared import FEW_ROUNDS
    from treetap.protocols import key_options

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_options, "PROOF_ROUNDS", FEW_ROUNDS)
        yield


@pytest.fixture
def interruptible() -> Iterator[None]:
    """For a test that interrupts this process: no collection of garbage begins by itself.

    Hypothesis times collections by a callback. A KeyboardInterrupt that is raised in there is printed and lost.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def same_arithmetic_after() -> Iterator[None]:
    """Leave this process with the backend of arithmetic that it had."""
    from treetap.native import arithmetic

    before = arithmetic.in_use()
    yield
    arithmetic.use(before)


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Conducted, Conducted]:
    """The steps that a coordinator asks for in a training and in a prediction."""
    from tests.replay import conducted  # where it is wanted: other tests begin sooner

    return conducted(tmp_path_factory.mktemp("conducted") / "federation")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A cluster of two nodes of one processor each, for tests in pytest-xdist's group "ray", which do not harm it."""
    from tests.ray_cluster import RayCluster

    with RayCluster(nodes=2) as cluster:
        yield cluster
