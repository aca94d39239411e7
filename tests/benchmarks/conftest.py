"""Benchmarks are imported as their own folder does."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The module of a benchmark, or of a reproduction, by its name."""
    monkeypatch.syspath_prepend(BENCHMARKS / "reproductions")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module
