"""Start and end of every server process: print its address, stop on a signal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from treetap.errors import BadInput, cannot
from treetap.models.durable import make_folder
from treetap.names import asked_at
from treetap.process.limits import give_memory_back, has_terminal
from treetap.wire.tls import Insecure

if TYPE_CHECKING:
    from treetap.process.config import Relayed
    from treetap.wire.relay.forwarder import Forwarder

log = logging.getLogger(__name__)


@contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Hold a state folder for this process; `BadInput` where another process has it."""
    with cannot("keep anything there", f"state = {str(folder)!r}"):
        make_folder(folder)
        lock = (folder / "lock").open("w", encoding="ascii")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"state = {str(folder)!r}: another process uses this folder; stop it first") from None
        yield


def forwarder_of(config: Relayed, own_port: str) -> Forwarder | None:
    """The forwarder to this process from its relay; None without one. `own_port`: where its gRPC listens."""
    relay, transport = config.relay_address, config.transport()
    if relay is None or isinstance(transport, Insecure):
        return None
    from treetap.wire.relay.forwarder import Forwarder  # most processes have no relay

    return Forwarder(relay, transport, asked_at(own_port))


async def serve_until_stopped(
    kind: str,
    where: Mapping[str, str],
    *,
    until_stdin_closes: bool,
    reread: Callable[[], Awaitable[None]] | None = None,
    in_terminal: bool = False,
) -> None:
    """Print one JSON line, then wait for SIGTERM, SIGINT or the end of standard input.

    `where`: name, address and, where they are served, metrics. `reread`: is called after SIGHUP, also after one that
    `hold_hangup` held back. A closed terminal stops this process all the same; `in_terminal`: what `hold_hangup` said.
    """
    loop = asyncio.get_running_loop()
    stop, hangup = asyncio.Event(), asyncio.Event()
    if reread is not None:

        def hung_up() -> None:
            (stop if in_terminal and not has_terminal() else hangup).set()

        loop.add_signal_handler(signal.SIGHUP, hung_up)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if until_stdin_closes:
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        watcher = asyncio.ensure_future(reader.read())
        watcher.add_done_callback(lambda _: stop.set())
    print(json.dumps({"serving": kind, **where}), flush=True)
    log.info("%s %s serves at %s", kind, where["name"], where["address"])
    beside = [asyncio.ensure_future(give_memory_back())]
    if reread is not None:
        beside.append(asyncio.ensure_future(_after_each(hangup, reread)))
    await stop.wait()
    for task in beside:
        task.cancel()
    log.info("%s %s stops", kind, where["name"])


async def _after_each(hangup: asyncio.Event, reread: Callable[[], Awaitable[None]]) -> None:
    """Call `reread` after each hang-up; of several that come while it runs, once. A defect in it ends no later call."""
    while True:
        await hangup.wait()
        hangup.clear()
        try:
            await reread()
        except Exception:
            log.exception("SIGHUP: a defect; what this process goes by may be as before")
