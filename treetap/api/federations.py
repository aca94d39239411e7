"""Federations that the caller starts and ends: `treetap.federation`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

from treetap.api.loopback import Loopback, Settings


@contextmanager
def federation(
    parties: int | Sequence[str] = 2,
    *,
    defences: Mapping[str, Mapping[str, Any]] | None = None,
    policy: Mapping[str, Any] | None = None,
    workers: int | None = None,
    workdir: str | Path | None = None,
    serve: bool = False,
) -> Iterator[Loopback]:
    """A federation of processes of this machine that runs while the block does.

    Estimators take it as `federation`; they predict with it until the block ends, and afterwards in this process.

    Args:
        parties: their names, or their number.
        defences: party → its table `[defences]`.
        policy: lines of every party's policy file.
        workers: worker processes of each party; None: the number of cores.
        workdir: a folder that keeps configurations, certificates, states and logs; None: a temporary one.
        serve: give the parties an address at which `model.serve` answers over HTTP; needs the extra `serve`.

    Raises:
        TreetapError: the processes do not start.
    """
    if isinstance(parties, int | Integral):
        names: Sequence[str] = [f"party-{number}" for number in range(1, int(parties) + 1)]
    else:
        names = parties if isinstance(parties, str) else tuple(parties)
    kept = None if workdir is None else Path(workdir)
    running = Loopback(Settings(names, dict(defences or {}), dict(policy or {}), workers, kept, serve))
    try:
        running.start()
        yield running
    finally:
        running.end()
