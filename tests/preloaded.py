"""Imported by the fork server of `tests.forks` when it starts."""

from tests.prepared import preload

preload()
