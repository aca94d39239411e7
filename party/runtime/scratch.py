"""Files of one attempt at a job that no later attempt needs: unnamed ones of the state folder.

The operating system deletes them when they are closed, at the latest with the process: nothing is left to clean up.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO


class Scratch:
    """Opens unnamed files, and closes all of them with the session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[IO[bytes]] = []

    def file(self) -> IO[bytes]:
        """A new, empty file for reading and writing, without a buffer; its user may close it earlier."""
        self._files = [each for each in self._files if not each.closed]
        made = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed below
        self._files.append(made)
        return made

    def close(self) -> None:
        """Close all files, which deletes them."""
        for each in self._files:
            each.close()
        self._files.clear()
