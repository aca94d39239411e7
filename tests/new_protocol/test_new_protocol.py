"""A new protocol is its own folders and seven lines in four files: added to a copy of the sources, it works there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.new_protocol.sources import LINES, NAME, Line, add_protocol, assert_cheap, changes, copy_of_sources

pytestmark = pytest.mark.second_tier

BIN = Path(sys.executable).parent
#: A line of the frame, to which no protocol adds any.
FRAME = 'import "treetap/wire/v2/reveals.proto";'
GENERATED = "treetap/wire/v2"


def _run(folder: Path, *command: str) -> str:
    """Run a program that imports the modules of a copy; returns its output. It must succeed."""
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    variables = {**os.environ, "PATH": path, "PYTHONPATH": str(folder)}
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_new_protocol_works(tmp_path: Path) -> None:
    """It trains, is killed and resumed, predicts, and is read from a transcript; the import rules hold unedited."""
    pytest.importorskip("grpc_tools", reason="generating code needs grpcio-tools (the dev extra)")
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        copy_of_sources(folder)
    add_protocol(after)
    found = changes(before, after)
    assert_cheap(found)
    # Generate the code of the messages, as the Makefile does.
    protos = sorted(path.relative_to(after).as_posix() for path in after.glob(f"protos/{GENERATED}/*.proto"))
    flags = [f"--{flag}=." for flag in ("python_out", "mypy_out", "grpc_python_out", "mypy_grpc_out")]
    _run(after, sys.executable, "-m", "grpc_tools.protoc", "-Iprotos", *flags, *protos)
    for path in after.glob(f"{GENERATED}/*_pb2_grpc.py"):
        if "Stub" not in path.read_text(encoding="utf-8"):
            path.unlink()
            path.with_suffix(".pyi").unlink()
    generated = {f"{GENERATED}/protocols_pb2.py", f"{GENERATED}/protocols_pb2.pyi"}
    assert set(changes(before, after).edited) == {line.file for line in LINES} | generated
    assert "0 broken" in _run(after, str(BIN / "lint-imports"), "--no-cache")
    own = sorted(name for name in found.added if name.endswith(".py"))
    _run(after, str(BIN / "ruff"), "check", "--no-cache", *own)
    _run(after, str(BIN / "ruff"), "format", "--no-cache", "--check", *own)
    tests = [f"tests/{NAME}", "tests/runtime/test_emissions.py", "tests/runtime/test_orders.py"]
    ran = _run(after, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", NAME, *tests)
    assert "7 passed" in ran, ran


def _eighth_line(folder: Path) -> None:
    add_protocol(folder, [*LINES, Line(LINES[0].file, LINES[0].text, "// One more.")])


def _fifth_file(folder: Path) -> None:
    add_protocol(folder, [*LINES[1:], Line("protos/treetap/wire/v2/control.proto", FRAME, LINES[0].text)])


def _line_removed(folder: Path) -> None:
    add_protocol(folder)
    path = folder / LINES[-1].file
    path.write_text(path.read_text(encoding="utf-8").replace('    "boosting": "treetap.coordinator.boosting",\n', ""))


def _file_of_another(folder: Path) -> None:
    add_protocol(folder)
    (folder / "treetap" / "protocols" / "helpers.py").write_text("")


def _file_removed(folder: Path) -> None:
    add_protocol(folder)
    (folder / "treetap" / "protocols" / "forest.py").unlink()


@pytest.mark.parametrize(
    ("add", "fault"),
    [
        (_eighth_line, "8 lines added and 0 removed"),
        (_fifth_file, "5 files edited"),
        (_line_removed, "7 lines added and 1 removed"),
        (_file_of_another, r"files of no protocol: \{'treetap/protocols/helpers.py'\}"),
        (_file_removed, r"files that were removed: \{'treetap/protocols/forest.py'\}"),
    ],
)
def test_one_change_more_is_noticed(add: Callable[[Path], None], fault: str, tmp_path: Path) -> None:
    """An eighth line and a fifth file fail the count, and so do a removed line or file, and one not the protocol's."""
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        copy_of_sources(folder)
    add(after)
    with pytest.raises(AssertionError, match=fault):
        assert_cheap(changes(before, after))


def test_a_line_without_its_place_is_refused(tmp_path: Path) -> None:
    """A line goes after one that is there once, or into no file at all."""
    copy_of_sources(tmp_path)
    with pytest.raises(ValueError, match=r"registry.py: 0 lines begin with 'nothing', not one"):
        add_protocol(tmp_path, [Line("treetap/protocols/registry.py", "nothing", "")])
