"""A process of a federation that counts its calls; only `calls.py` starts any, and nothing of treetap leads here.

At SIGUSR1 it writes what it has counted to a file of its own, named by its process id.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from treetap.lab import local_federation
from treetap.party.server.services import Threads
from treetap.wire.frame import name_of
from treetap.wire.rpc import GrpcDialer
from treetap.wire.v2 import exchange_pb2
from treetap.workers import engines

#: Variable that names the folder of these files.
FOLDER = "TREETAP_BENCH_COUNTS"
#: What is counted: kind → name → number.
COUNTS: dict[str, Counter[str]] = {
    kind: Counter() for kind in ("deliver", "bytes", "step", "kernel", "work", "loop", "fsync")
}


def _counted(owner: Any, name: str, kind: str, of: Callable[..., str]) -> None:
    """Count calls of a function of a class or module under the name that `of` gives to their arguments."""
    original = getattr(owner, name)

    def call(*args: Any, **more: Any) -> Any:
        COUNTS[kind][of(*args)] += 1
        return original(*args, **more)

    setattr(owner, name, call)


def _named(work: Any) -> str:
    return f"{getattr(work, '__module__', '')}.{getattr(work, '__qualname__', type(work).__qualname__)}"


def _delivered(_dialer: object, _to: object, message: bytes) -> str:
    COUNTS["bytes"]["deliver"] += len(message)
    return name_of(exchange_pb2.PeerMessage.FromString(message))


def substitute() -> None:
    """Put counters in the place of what sends, computes, hands to threads and writes."""
    _counted(os, "fsync", "fsync", lambda _: "fsync")
    _counted(GrpcDialer, "deliver", "deliver", _delivered)
    _counted(Threads, "__call__", "work", lambda _, work: _named(work))
    for engine in (engines.Engine, engines.ThreadEngine):
        for name in ("call", "begin"):
            _counted(engine, name, "kernel", lambda *args: _named(args[2]))
    take, step = engines.Turns.take, GrpcDialer.step

    def taken(turns: engines.Turns, us: float) -> bool:
        COUNTS["loop"]["taken"] += (has_room := take(turns, us))
        return has_room

    async def stepped(dialer: GrpcDialer, to: Any, request: Any) -> AsyncIterator[Any]:
        COUNTS["step"][name_of(request)] += 1
        COUNTS["bytes"]["step"] += request.ByteSize()
        async for event in step(dialer, to, request):
            COUNTS["bytes"]["step"] += event.ByteSize()
            yield event

    engines.Turns.take = taken  # type: ignore[method-assign, assignment]
    GrpcDialer.step = stepped  # type: ignore[method-assign, assignment]


def serve(pipe: Connection, words: Sequence[str], name: str, log: Path) -> None:
    """As `local_federation.serve`, and write counts when asked."""
    substitute()
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}.json"

    def write(*_: object) -> None:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(COUNTS))
        part.rename(path)

    signal.signal(signal.SIGUSR1, write)
    local_federation.serve(pipe, words, name, log)
