"""Work of processes that are forked from one that has imported what they need: most of a short process is imports.

Each is a process of its own all the same, with its streams, folder, environment and exit status.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from tests.heavy_libraries import HEAVY
from treetap import logs
from treetap.additive.residues import fixed_base
from treetap.commands import cli
from treetap.process.limits import heed_signals

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
    """Import all modules of commands, attacks and servers, with what they need, but those of a hidden library."""
    os.environ.update(ENVIRONMENT)
    logs.quiet_grpc()  # as commands do before they import gRPC
    for name in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:
                if missing.name not in HEAVY:
                    raise
    for name in _MORE:
        importlib.import_module(name)
    fixed_base.WINDOWS = SMALL_WINDOWS
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy what all share


def command(
    pipe: Connection, words: Sequence[str], folder: str, environment: Mapping[str, str], out: str, err: str
) -> None:
    """Be `treetap …`, from the beginning to the end of this process. `out`, `err`: files of its two streams."""
    _become(pipe, folder, environment, out, err)
    sys.argv = ["treetap", *words]
    cli.main()


def python(
    pipe: Connection, words: Sequence[str], folder: str, environment: Mapping[str, str], out: str, err: str
) -> None:
    """Be `python FILE …`, or `python -c CODE …`, in the same way."""
    _become(pipe, folder, environment, out, err)
    sys.path[:0] = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv = list(words)
        sys.path.insert(0, os.path.dirname(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def _become(pipe: Connection, folder: str, environment: Mapping[str, str], out: str, err: str) -> None:
    heed_signals()
    pipe.close()
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", 1, errors="backslashreplace")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
