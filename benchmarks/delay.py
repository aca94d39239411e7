"""A TCP proxy that makes a loopback connection as slow as a long one, from the first packet on."""

from __future__ import annotations

import asyncio
import threading


class DelayProxy:
    """A TCP proxy on a free port: what comes in at either end goes out at the other `seconds` later.

    A connection carries its first byte one round trip after it was opened, as TCP's own handshake takes.
    """

    def __init__(self, target: str, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.address = ""
        threading.Thread(target=self._run, daemon=True).start()
        self._ready.wait(10)

    def close(self) -> None:
        """Stop serving; connections end."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_forever()
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))  # within which they end

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self._server = server
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()

    async def _connect(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * self._seconds)
        host, port = self._target.rsplit(":", 1)
        far, forth = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self._carry(near, forth), self._carry(far, back))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=4096)

        async def read() -> None:
            data = b"more"
            while data:
                try:
                    data = await source.read(1 << 16)
                except OSError:
                    data = b""
                await waiting.put((self._loop.time() + self._seconds, data))

        async def write() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                if not data:
                    sink.close()
                    return
                try:
                    sink.write(data)
                    await sink.drain()
                except OSError:
                    return

        await asyncio.gather(read(), write())
