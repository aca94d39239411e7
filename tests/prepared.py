"""Work of processes that are forked from one that has imported what they need: most of a short process is imports.

Each is a process of its own all the same, with its streams, folder, environment and exit status.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import pkgutil
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TextIO

from tests import forks
from treetap import logs
from treetap.additive.residues import fixed_base
from treetap.process.limits import keep_memory_private, leave_to_parent

#: What every command gets, and what is imported must find: some of it looks at the environment.
ENVIRONMENT = {"COLUMNS": "200", "TERM": "dumb"}
#: Bits of the windows of tables of powers: those of production would take half the time of a small job. Windows change
#: no power, only how many products it takes. Processes that are typed, and not forked, have those of production.
SMALL_WINDOWS = range(4, 7)
#: Rounds of the proofs of keys in jobs under virtual time: a false proof still fails but once in 2^32 tries. Those of
#: production take a tenth of a small job.
FEW_ROUNDS = 32
_PACKAGES = (
    "treetap.commands",
    "treetap.attacks",
    "treetap.lab",
    "treetap.ops",
    "treetap.party",
    "treetap.coordinator",
)
#: Imported by functions of these packages when they are called.
_MORE = ("pyarrow.parquet", "sklearn.cluster", "sklearn.ensemble", "sklearn.metrics")


def preload() -> None:
    """Import all modules of commands, attacks and servers, with what they need."""
    os.environ.update(ENVIRONMENT)
    logs.quiet_grpc()  # as commands do before they import gRPC
    for name in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    for name in _MORE:
        importlib.import_module(name)
    fixed_base.WINDOWS = SMALL_WINDOWS
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy what all share


def command(words: Sequence[str], folder: str, environment: Mapping[str, str], out: str, err: str) -> None:
    """Be `treetap …`, from the beginning to the end of this process. `out`, `err`: files of its two streams."""
    _become(folder, environment, _opened(out, err))
    _treetap(words)


def python(words: Sequence[str], folder: str, environment: Mapping[str, str], out: str, err: str) -> None:
    """Be `python FILE …`, or `python -c CODE …`, in the same way."""
    _become(folder, environment, _opened(out, err))
    forks.fork_all()
    sys.path[:0] = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv = list(words)
        sys.path.insert(0, os.path.dirname(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def server(words: Sequence[str], folder: str, environment: Mapping[str, str], streams: Sequence[int]) -> None:
    """Be `treetap party …` or `treetap coordinator …` in a session of its own. `streams`: descriptors of all three."""
    os.setsid()
    os.umask(0o077)  # as `local_federation.begin` does
    _become(folder, environment, streams)
    _treetap(words)


def child(
    target: Callable[..., None],
    pipe: Connection,
    args: Sequence[Any],
    folder: str,
    environment: Mapping[str, str],
    streams: Sequence[int],
) -> None:
    """Be a process that such a server has forked: a reader of tables, or the driver of a cluster."""
    _become(folder, environment, streams)
    leave_to_parent()
    keep_memory_private()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    target(pipe, *args)


def _end_with_parent() -> None:
    """Leave at once when the parent is gone, killed or not."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _treetap(words: Sequence[str]) -> None:
    sys.argv = ["treetap", *words]
    forks.fork_all()
    from treetap.commands.cli import main

    main()


def _opened(out: str, err: str) -> list[int]:
    return [os.open(os.devnull, os.O_RDONLY), os.open(out, os.O_WRONLY), os.open(err, os.O_WRONLY)]


def _become(folder: str, environment: Mapping[str, str], streams: Sequence[int]) -> None:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = _again(sys.stdin), _again(sys.stdout), _again(sys.stderr)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)


def _again(stream: TextIO) -> TextIO:
    """The stream of a descriptor that is another file now, which may be one that cannot be sought."""
    way = "w" if stream.writable() else "r"
    number = (sys.stdin, sys.stdout, sys.stderr).index(stream)
    return open(number, way, 1, encoding=stream.encoding, errors=stream.errors, closefd=False)
