"""Tests of this folder have the tables of production."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _small_tables() -> None:
    """Leave windows of powers as they are."""
