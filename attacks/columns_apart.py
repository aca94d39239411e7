"""The label holder's attack on columns of a job of trees in a process of its own, beside the attacks on labels.

The process is forked from a server that loads its libraries beforehand, once a command has begun it. Where the process
fails, the audit attacks by itself, from the steps that were finished.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from treetap.errors import TreetapError
from treetap.process.fork_server import Child, ForkServer

if TYPE_CHECKING:
    from treetap.attacks.audit_file import AuditFile

log = logging.getLogger(__name__)
#: Seconds that the audit waits for the process when it has nothing else to do.
PATIENCE_S = 600.0
_FORKS = ForkServer(
    ["treetap.attacks.label_holder_audit", "treetap.attacks.sums.attack", "treetap.attacks.sums.reverse_sum"]
)


def begin() -> None:
    """Load the libraries in the server, which is not waited for; not on a machine of one core."""
    if (os.cpu_count() or 1) > 1:
        _FORKS.begin()


@contextmanager
def reading(file: AuditFile, holder: str | None) -> Iterator[Child | None]:
    """The process that attacks, and ends with this context; None unless it can be beside anything."""
    of_networks = any(victim.auxiliary for victim in file.victim)
    if holder is None or of_networks or not _FORKS.begun or len(file.party) < 2:
        yield None
        return
    child = _FORKS.fork(_read, (file, holder))
    try:
        yield child
    finally:
        child.end()


def figures_of(child: Child) -> dict[str, dict[str, Any]] | None:
    """The figures that the process read, as `columns_read` has them; None where it failed, or has not answered."""
    try:
        if child.pipe.poll(PATIENCE_S):
            figures: dict[str, dict[str, Any]] | None = child.pipe.recv()
            return figures
        log.warning("the attack on columns has not ended after %g s: it goes on in the audit's own process", PATIENCE_S)
    except (EOFError, OSError):
        child.ended(1.0)
        how = child.fate or f"status {child.exitcode}"
        log.warning("the process of the attack on columns has ended (%s): the audit attacks by itself", how)
    child.end()
    return None


def _read(pipe: Connection, file: AuditFile, holder: str) -> None:
    """The child's work. What is wrong with the files is said by the audit, which meets it too."""
    from treetap.attacks.label_holder_audit import columns_read, read_holder

    party = next(party for party in file.party if party.name == holder)
    try:
        figures = columns_read(file, party, read_holder(file, party), lambda _: None)
    except TreetapError:
        pipe.send(None)
    else:
        pipe.send(figures)
