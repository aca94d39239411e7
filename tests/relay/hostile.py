"""A relay in the way of a server that alters what passes, and one in a thread of its own that does so at random."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.relay.rig import first_bytes

Alter = Callable[[int, bytes], list[bytes]]  # number and content of a record → what is sent on in its place


class Hostile:
    """A relay in the way of one server, which looks at the caller's TLS records and changes them.

    Args:
        alter: what becomes of a record; an error cuts the connection.
    """

    def __init__(self, alter: Alter) -> None:
        self._alter = alter
        self.at = ""
        self.leads_to = ""
        self.recorded: list[bytes] = []

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One caller's connection."""
        back, further = await first_bytes(self.leads_to, b"")
        with suppress(ConnectionError, asyncio.IncompleteReadError, EOFError):
            await asyncio.gather(self._forth(reader, further), self._back(back, writer))
        for each in (writer, further):
            each.close()

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = b""
        number = 0
        while True:
            header = await reader.readexactly(5)
            record = header + await reader.readexactly(int.from_bytes(header[3:]))
            seen += record
            self.recorded = [*self.recorded[-1:], seen]
            for piece in self._alter(number, record):
                writer.write(piece)
            number += 1

    @staticmethod
    async def _back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65_536):
            writer.write(content)
            await writer.drain()
        raise EOFError


class AtRandom:
    """A hostile relay before a real one, for as long as it is entered: it cuts and alters records here and there.

    Args:
        leads_to: the real relay.
        seed: of its choices.
        one_in: records between two that it meddles with, on average; handshakes pass.
    """

    def __init__(self, leads_to: str, seed: int, one_in: int) -> None:
        self._draw, self._one_in = random.Random(seed), one_in
        self._way = Hostile(self._meddle)
        self._way.leads_to = leads_to
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self.meddled = 0

    @property
    def at(self) -> str:
        """Its address."""
        return self._way.at

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(5)

    def _meddle(self, number: int, record: bytes) -> list[bytes]:
        if number < 4 or self._draw.randrange(self._one_in):
            return [record]
        self.meddled += 1
        match self._draw.randrange(3):
            case 0:
                raise EOFError
            case 1:
                return [record, record]
            case _:
                return [record[:-1] + bytes([record[-1] ^ 1])]

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._way.carry, "127.0.0.1", 0)
        self._way.at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
