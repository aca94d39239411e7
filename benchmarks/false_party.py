"""A process of a federation whose cipher is false; only `false_cipher.py` starts any.

No file of a party, no variable and no option of treetap leads here.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from false_residues import substitute

from treetap.lab import local_federation


def serve(pipe: Connection, words: Sequence[str], name: str, log: Path) -> None:
    """As `local_federation.serve`."""
    substitute()
    local_federation.serve(pipe, words, name, log)
