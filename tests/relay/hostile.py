"""A relay in the way of a server that alters what passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

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
