"""Imported by the fork server of commands when it starts."""

from tests.commands.prepared import preload

preload()
