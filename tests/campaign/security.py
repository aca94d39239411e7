"""The commands of `python -m tests.campaign` that attack: fuzz, certificates, raw-bytes, http, step-orders."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def add(kinds: Any) -> None:
    """Add the commands to a parser's."""
    fuzz = kinds.add_parser("fuzz", help="altered messages, drawn from a seed; 0: all there are")
    fuzz.add_argument("--count", type=int, default=3000)
    fuzz.add_argument("--seed", type=int, default=0)
    kinds.add_parser("certificates", help="every kind of certificate against every method")
    raw = kinds.add_parser("raw-bytes", help="bytes that are no message, to every method")
    raw.add_argument("--count", type=int, default=50, help="pieces of noise for each method")
    raw.add_argument("--seed", type=int, default=0)
    http = kinds.add_parser("http", help="requests that fit the OpenAPI document, and requests that do not")
    http.add_argument("--count", type=int, default=150, help="requests of each kind to each operation")
    http.add_argument("--seed", type=int, default=0)
    tables = kinds.add_parser("tables", help="damaged files of tables in every format")
    tables.add_argument("--count", type=int, default=4_000, help="files of each format")
    tables.add_argument("--seed", type=int, default=0)
    kinds.add_parser("step-orders", help="every step at every moment of small jobs")


#: Command → the module that carries it out.
MODULES = {
    "fuzz": "fuzz_many",
    "certificates": "certificate_matrix",
    "raw-bytes": "raw_bytes",
    "http": "http_requests",
    "tables": "hostile_tables",
    "step-orders": "step_orders",
}


def _conducted(given: argparse.Namespace) -> dict[str, Any]:
    """A command's figures; its module is imported only now, since it may need a library that is not there."""
    module = import_module(f"tests.campaign.{MODULES[given.kind]}")
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any]
        if given.kind in ("fuzz", "tables"):
            found = module.conduct(given.count, given.workers, given.seed)
        else:
            found = module.conduct(Path(folder), *((given.count, given.seed) if "count" in given else ()))
    return found


COMMANDS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = dict.fromkeys(MODULES, _conducted)
