"""The commands of `python -m tests.campaign` that attack: fuzz, certificates, raw-bytes, http, step-orders."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
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


def _fuzz(given: argparse.Namespace) -> dict[str, Any]:
    from tests.campaign.fuzz_many import conduct

    return conduct(given.count, given.workers, given.seed)


def _certificates(_given: argparse.Namespace) -> dict[str, Any]:
    from tests.campaign.certificate_matrix import conduct

    with tempfile.TemporaryDirectory() as folder:
        return conduct(Path(folder))


def _raw_bytes(given: argparse.Namespace) -> dict[str, Any]:
    from tests.campaign.raw_bytes import conduct

    with tempfile.TemporaryDirectory() as folder:
        return conduct(Path(folder), given.count, given.seed)


def _http(given: argparse.Namespace) -> dict[str, Any]:
    from tests.campaign.http_requests import conduct

    with tempfile.TemporaryDirectory() as folder:
        return conduct(Path(folder), given.count, given.seed)


def _tables(given: argparse.Namespace) -> dict[str, Any]:
    from tests.campaign.hostile_tables import conduct

    return conduct(given.count, given.workers, given.seed)


def _step_orders(_given: argparse.Namespace) -> dict[str, Any]:
    from tests.campaign.step_orders import conduct

    with tempfile.TemporaryDirectory() as folder:
        return conduct(Path(folder))


COMMANDS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "fuzz": _fuzz,
    "certificates": _certificates,
    "raw-bytes": _raw_bytes,
    "http": _http,
    "tables": _tables,
    "step-orders": _step_orders,
}
