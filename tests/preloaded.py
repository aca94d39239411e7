"""Imported by the fork server of `tests.forks` when it starts."""

from tests.heavy_libraries import hide_as_asked
from tests.prepared import preload

hide_as_asked()
preload()
