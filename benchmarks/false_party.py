"""A process of a federation whose cipher is false; only `false_cipher.py` starts any.

Importing this module puts `false_residues` into a process: it is what a worker of such a party imports besides. No
file of a party, no variable and no option of treetap leads here.
"""

from __future__ import annotations

import sys

from false_residues import substitute

substitute()


def serve() -> None:
    """Run `treetap WORDS` of this process's arguments; a party's workers import this module as well."""
    if sys.argv[1] == "party":
        from treetap.party.server import main as server

        server.OF_WORKERS = (*server.OF_WORKERS, __name__)  # type: ignore[assignment] # one more
    from treetap.commands.cli import main

    main()
