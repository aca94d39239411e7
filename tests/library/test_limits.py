"""Limits that a process sets for itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


def _run(*lines: str) -> subprocess.CompletedProcess[str]:
    """Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=30, check=True
    )


@pytest.mark.parametrize(("hard", "warned"), [(8192, False), (1024, True)])
def test_as_many_descriptors_as_there_may_be(hard: int, warned: bool) -> None:
    """The soft limit becomes the hard one; of a low one the log tells what to raise."""
    found = _run(
        "import resource",
        "from treetap.process.limits import raise_descriptors",
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))",
        "raise_descriptors()",
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])",
    )
    assert int(found.stdout) == hard
    assert ("may open 1024 files and connections: raise its hard limit to 8192" in found.stderr) == warned


def test_no_process_leaves_its_memory_behind() -> None:
    """Neither a command nor a worker can be dumped, into a file or to a program."""
    found = _run(
        "import asyncio, ctypes, resource",
        "from treetap.commands.cli import options",
        "from treetap.workers import ProcessEngine",
        "from tests.library.test_limits import dumpable",
        "async def main():",
        "    engine = ProcessEngine(1, 20.0)",
        "    engine.start()",
        "    print(await engine.call(0, dumpable))",
        "    await engine.close()",
        "if __name__ == '__main__':",
        "    asyncio.run(main())",
        "    options()",
        "    print(dumpable({}))",
    )
    assert found.stdout.splitlines() == ["(0, 0)"] * 2


def dumpable(_state: object) -> tuple[int, int]:
    """The limit of this process's core dumps, and whether the kernel would make one at all."""
    import ctypes
    import resource

    return resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
