"""What every server process does at its start and end: say where it listens, stop when told."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys

log = logging.getLogger(__name__)


async def serve_until_stopped(name: str, kind: str, address: str, *, until_stdin_closes: bool) -> None:
    """Print one JSON line with name, kind and address, then wait for SIGTERM, SIGINT or the end of standard input."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if until_stdin_closes:
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        watcher = asyncio.ensure_future(reader.read())
        watcher.add_done_callback(lambda _: stop.set())
    print(json.dumps({"serving": kind, "name": name, "address": address}), flush=True)
    log.info("%s %s serves at %s", kind, name, address)
    await stop.wait()
    log.info("%s %s stops", kind, name)
