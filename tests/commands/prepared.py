"""Commands as processes that are forked from one that has imported what they need: most of a short command is imports.

Each is a process of its own all the same, with its streams, folder, environment and exit status.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import runpy
import sys
from collections.abc import Mapping, Sequence

from treetap import logs

#: What every command gets, and what is imported must find: some of it looks at the environment.
ENVIRONMENT = {"COLUMNS": "200", "TERM": "dumb"}
_PACKAGES = ("treetap.commands", "attacks")
#: Imported by functions of these packages when they are called.
_MORE = ("pyarrow.parquet", "sklearn.cluster", "sklearn.ensemble", "sklearn.metrics")


def preload() -> None:
    """Import all modules of commands and attacks, with what they need."""
    os.environ.update(ENVIRONMENT)
    logs.quiet_grpc()  # as commands do before they import gRPC
    for name in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    for name in _MORE:
        importlib.import_module(name)


def command(words: Sequence[str], folder: str, environment: Mapping[str, str], out: str, err: str) -> None:
    """Be `treetap …`, from the beginning to the end of this process. `out`, `err`: files of its two streams."""
    _become(folder, environment, out, err)
    sys.argv = ["treetap", *words]
    from treetap.commands.cli import main

    main()


def python(words: Sequence[str], folder: str, environment: Mapping[str, str], out: str, err: str) -> None:
    """Be `python FILE …`, or `python -c CODE …`, in the same way."""
    _become(folder, environment, out, err)
    sys.path[:0] = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv = list(words)
        sys.path.insert(0, os.path.dirname(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def _become(folder: str, environment: Mapping[str, str], out: str, err: str) -> None:
    for descriptor, path, way in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        opened = os.open(path, way)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
