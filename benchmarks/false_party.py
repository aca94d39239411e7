"""A process of a federation whose cipher is false; only `false_cipher.py` starts any.

Importing this module puts `false_residues` into a process. No file of a party, no variable and no option of treetap
leads here.
"""

from __future__ import annotations

from false_residues import substitute

substitute()


def serve() -> None:
    """Run `treetap WORDS` of this process's arguments."""
    from treetap.commands.cli import main

    main()
