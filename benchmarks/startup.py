"""CPU seconds that treetap takes to start: its help, a party until it serves, the demo until its first tree.

    python benchmarks/startup.py [--repeat 5] [--base FOLDER] [--only help party demo] [--json]

User and system time of the process, its workers and all other processes below it, until the event: the end of
`treetap --help`; the line by which a party says that it serves; the line of the coordinator's log by which the last of
the demo's three parties has stored the first tree. Then all of them are killed. Byte code lies on the disk: a first run
that is not counted writes it. The least of the runs is taken.

--base names another checkout, with its native kernels built. Its code runs in turn with this one's, in this Python.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from backends import print_machine
from rich.table import Table

from treetap import terminal
from treetap.commands.certs.authority import create_authority, issue
from treetap.lab.local_federation import to_toml
from treetap.wire.ports import Role

OWN = Path(__file__).resolve().parents[1]
#: Seconds after which a run has failed.
LONGEST_S = 120.0
#: Seconds between two looks at a log.
LOOK_S = 0.005
#: Parties of the demo.
DEMO_PARTIES = 3
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
#: Waits for the event of a run, given its process and its folder.
Event = Callable[["subprocess.Popen[bytes]", Path], None]


def help_ended(process: subprocess.Popen[bytes], _: Path) -> None:
    """Wait until `treetap --help` has ended."""
    assert process.stdout is not None
    said = process.stdout.read()
    assert b"demo" in said, said
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # counted when it is reaped, with the others


def party_serves(process: subprocess.Popen[bytes], _: Path) -> None:
    """Wait until a party has said that it serves."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the party ended before it served"
    assert json.loads(line)["serving"] == "party"


def first_tree(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until all parties of the demo have stored the first tree, by the coordinator's log."""
    log, deadline = folder / "demo" / "federation" / "coordinator" / "log.txt", time.monotonic() + LONGEST_S
    while True:
        with suppress(FileNotFoundError):
            if log.read_bytes().count(b": store_tree at ") >= DEMO_PARTIES:
                return
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        assert ended is None, "the demo ended before its first tree"
        assert time.monotonic() < deadline, f"no tree within {LONGEST_S:g} s"
        time.sleep(LOOK_S)


#: Name of a run → its title, its arguments in a folder, and its event.
RUNS: dict[str, tuple[str, Callable[[Path], list[str]], Event]] = {
    "help": ("treetap --help", lambda _: ["--help"], help_ended),
    "party": (
        "treetap party, until it serves",
        lambda folder: ["party", "--config", str(folder / "party" / "config.toml"), "--until-stdin-closes"],
        party_serves,
    ),
    "demo": (
        "treetap demo, until its first tree",
        lambda folder: ["demo", "--workdir", str(folder / "demo")],
        first_tree,
    ),
}


def configure(folder: Path) -> None:
    """A feature party's configuration, with two workers and a table, and its certificates."""
    certs, own = folder / "certs", folder / "party"
    certs.mkdir()
    own.mkdir()
    create_authority(certs)
    issue(certs, "feature-b", Role.PARTY, hosts=["127.0.0.1"], days=2)
    (own / "table.csv").write_text("id,age\n1,30\n2,40\n", encoding="utf-8")
    (own / "policy.toml").write_text(to_toml({"people": {"label_holders": ["label-holder"]}}), encoding="utf-8")
    tls = {"ca": "ca.crt", "certificate": "feature-b.crt", "key": "feature-b.key"}
    settings: Mapping[str, Any] = {
        "name": "feature-b",
        "listen": "127.0.0.1:0",
        "state": "state",
        "workers": 2,
        "policy": "policy.toml",
        "tls": {key: str(certs / name) for key, name in tls.items()},
        "tables": {"train": {"path": "table.csv", "id": "id", "columns": ["age"]}},
    }
    (own / "config.toml").write_text(to_toml(settings), encoding="utf-8")


def cpu_of(checkout: Path, what: str, errors: IO[bytes]) -> float:
    """User and system seconds of one run of a checkout's code; `errors` gets what it writes to standard error."""
    _, words, event = RUNS[what]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100"}
    with tempfile.TemporaryDirectory(prefix="treetap-startup-") as name:
        folder = Path(name).resolve()
        if what == "party":
            configure(folder)
        before = _children_s()
        process = subprocess.Popen(
            [sys.executable, "-m", "treetap", *words(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=folder,
        )
        try:
            event(process, folder)
        finally:
            end_all()
            process.returncode = -signal.SIGKILL  # reaped with the others
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
    return _children_s() - before


def end_all() -> None:
    """Kill and reap all processes below this one; those whose parent has ended are its own children (Linux)."""
    while below := _below(os.getpid()):
        for number in below:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass


def _below(root: int) -> set[int]:
    """The processes below one, those that have ended and wait for their parent among them."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # after the name, which may hold anything: state, parent
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    below, more = set[int](), {root}
    while more:
        more = {number for number, parent in parents.items() if parent in more} - below
        below |= more
    return below


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(checkouts: Mapping[str, Path], asked: list[str], repeat: int) -> dict[str, dict[str, list[float]]]:
    """Run → checkout → CPU seconds of each repetition, the checkouts in turn."""
    taken: dict[str, dict[str, list[float]]] = {what: {name: [] for name in checkouts} for what in asked}
    for what in asked:
        for number in range(repeat + 1):
            for name, checkout in checkouts.items():
                with tempfile.TemporaryFile() as errors:
                    try:
                        seconds = cpu_of(checkout, what, errors)
                    except AssertionError as failure:
                        errors.seek(0)
                        sys.exit(f"startup: {what} of {checkout}: {failure}\n{errors.read().decode(errors='replace')}")
                if number:  # the first writes byte code
                    taken[what][name].append(seconds)
    return taken


def summary(taken: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Run → the least CPU seconds of each checkout and, where there are two, their ratio."""
    rows = {}
    for what, by in taken.items():
        row = {name: min(seconds) for name, seconds in by.items()}
        if "base" in row:
            row["ratio"] = row["own"] / row["base"]
        rows[what] = row
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="another checkout, which runs in turn with this")
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(RUNS), help="what is started")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    checkouts = {"own": OWN}
    if given.base is not None:
        if not (given.base / "treetap" / "__main__.py").is_file():
            sys.exit(f"startup: --base {given.base}: is no checkout of treetap")
        checkouts["base"] = given.base.resolve()
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("startup: needs Linux, which lets it count the processes that its children leave behind")
    taken = measure(checkouts, given.only, given.repeat)
    rows = summary(taken)
    if given.as_json:
        print(json.dumps({"runs": taken, "least": rows}, indent=1))
        return
    print_machine(["auto"])
    table = Table("CPU s, least of " + str(given.repeat), *checkouts, *(["own ÷ base"] if len(checkouts) > 1 else []))
    for what, row in rows.items():
        table.add_row(RUNS[what][0], *(f"{value:.3f}" for value in row.values()))
    terminal.out.print(table)


if __name__ == "__main__":
    main()
