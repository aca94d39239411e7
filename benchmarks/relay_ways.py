"""Two ways from a relay to a process that dials out: a connection for each caller, and one stream for all (ADR 0202).

   python benchmarks/relay_ways.py [--mb 123] [--rounds 5] [--calls 300]

The first is treetap's own relay and forwarder; the second is made here, in as few lines as it takes, without TLS and
without flow control of its own. Callers, carriers and the server are in one process, and send plain bytes after a
ClientHello: CPU is that of all of them, and wall leaves out what several processes would do at once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from backends import print_machine

from tests.relay import hellos
from tests.relay.rig import first_bytes, relaying
from treetap import terminal
from treetap.wire.ports import Identity, Role
from treetap.wire.relay.control import SILENT_S

BANK = Identity("bank", Role.PARTY)
HELLO = hellos.real(BANK.dns)
ANSWER = bytes(100)
PIECE = 256 * 1024
_DIGITS = 8


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each message, of a length and as many bytes."""
    with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # the last at the end
        await reader.readexactly(len(HELLO))
        while True:
            left = int.from_bytes(await reader.readexactly(_DIGITS))
            while left:
                left -= len(await reader.readexactly(min(left, PIECE // 4)))
            writer.write(ANSWER)
    writer.close()


class _OneStream:
    """Carries all callers over one connection, in frames: number of the caller, length, bytes."""

    def __init__(self, own: str) -> None:
        self._own, self._callers = own, 0
        self._writers: dict[tuple[str, int], asyncio.StreamWriter] = {}
        self._carrying: set[asyncio.Task[None]] = set()
        self._stream: dict[str, asyncio.StreamWriter] = {}

    async def begin(self) -> tuple[str, list[asyncio.Server]]:
        """Returns where callers connect, and what to close."""
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def relays(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._stream["relay"] = writer
            joined.set_result(None)
            await self._unpack("relay", reader)

        async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._callers += 1
            await self._pack("relay", self._callers, reader, writer)

        meeting, public = [await asyncio.start_server(side, "127.0.0.1", 0, limit=PIECE) for side in (relays, called)]
        reader, self._stream["process"] = await first_bytes(_at(meeting), b"")
        self._keep(asyncio.ensure_future(self._unpack("process", reader)))
        await joined
        return _at(public), [meeting, public]

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _pack(self, side: str, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what comes from one caller, or for it."""
        self._writers[side, number] = writer
        with suppress(ConnectionError):
            while content := await reader.read(PIECE):
                self._stream[side].write(number.to_bytes(4) + len(content).to_bytes(4) + content)
                await self._stream[side].drain()
        self._stream[side].write(number.to_bytes(4) + bytes(4))  # without bytes: it ends
        writer.close()

    async def _unpack(self, side: str, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readexactly(8)
                content, number = await reader.readexactly(int.from_bytes(head[4:])), int.from_bytes(head[:4])
                if not content:
                    self._writers[side, number].close()
                    continue
                if (side, number) not in self._writers:  # a new caller, at the process
                    there, writer = await first_bytes(self._own, b"")
                    self._keep(asyncio.ensure_future(self._pack(side, number, there, writer)))
                    self._writers[side, number] = writer
                self._writers[side, number].write(content)
                await self._writers[side, number].drain()


def _at(server: asyncio.Server) -> str:
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def ways() -> AsyncIterator[dict[str, str]]:
    """Addresses that lead to one server, by way."""
    with tempfile.TemporaryDirectory(prefix="treetap-ways-") as folder:
        async with relaying(Path(folder)) as rig:
            own = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=PIECE)
            await rig.forward(BANK.name, _at(own), silent_s=SILENT_S)
            one, servers = await _OneStream(_at(own)).begin()
            yield {"direct": _at(own), "a connection for each caller": rig.at, "one stream for all": one}
            for server in (own, *servers):
                server.close()


async def _asked(at: str, sizes: list[int]) -> list[float]:
    """Seconds from connecting to the first answer, and of each further one."""
    took, began = [], time.perf_counter()
    reader, writer = await first_bytes(at, HELLO)
    for size in sizes:
        writer.write(size.to_bytes(_DIGITS))
        for first in range(0, size, PIECE):
            writer.write(bytes(min(PIECE, size - first)))
            await writer.drain()
        await reader.readexactly(len(ANSWER))
        took.append(time.perf_counter() - began)
        began = time.perf_counter()
    writer.close()
    return took


async def measure(size: int, rounds: int, calls: int) -> dict[str, list[float]]:
    """Medians by way: seconds and CPU seconds of one large message, seconds of a small one and of a first one."""
    rows: dict[str, list[list[float]]] = {}
    async with ways() as addresses:
        for _ in range(rounds):
            for way, at in addresses.items():
                cpu = time.process_time()
                _, wall = await _asked(at, [1, size])
                cpu = time.process_time() - cpu
                small = await _asked(at, [len(ANSWER)] * calls)
                first = [(await _asked(at, [1]))[0] for _ in range(20)]
                rows.setdefault(way, []).append([wall, cpu, statistics.median(small), statistics.median(first)])
    return {way: [statistics.median(column) for column in zip(*made, strict=True)] for way, made in rows.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=123, help="megabytes of the large message (default 123)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all ways (default 5)")
    parser.add_argument("--calls", type=int, default=300, help="small messages in a round (default 300)")
    given = parser.parse_args()
    print_machine(["auto"])
    for way, (wall, cpu, small, first) in asyncio.run(measure(given.mb * 10**6, given.rounds, given.calls)).items():
        terminal.out.print(
            f"{way}: {given.mb} MB {wall:.3f} s, CPU {cpu:.3f} s; {len(ANSWER)} bytes and back {1e6 * small:.0f} µs, "
            f"to connect {1e6 * first:.0f} µs"
        )


if __name__ == "__main__":
    main()
