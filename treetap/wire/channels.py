"""The channels of a process: dialled anew when its TLS files change, and only to servers that are not revoked.

gRPC in Python takes no list of revoked certificates and does not show the server's certificate. Where there is a list,
a handshake of Python's `ssl` checks the server before gRPC connects; gRPC repeats an attempt that failed without
another check. What remains: docs/threats.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import grpc.aio

from treetap.errors import Incompatible, Unanswered, Unreachable
from treetap.wire.credentials import CredentialSource
from treetap.wire.ports import Address
from treetap.wire.probe import Diagnosis, refusal
from treetap.wire.proxies import way
from treetap.wire.tls import Insecure, Transport, check_near

#: Seconds between two looks at the files, beside the look before every call.
LOOK_S = 5.0
_CONNECTED = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.CONNECTING)


class Channels:
    """One channel to each process that is called.

    Args:
        transport: the process's own credentials.
        options: gRPC's, of every channel.
        look_s: most seconds of a look at a server.
    """

    def __init__(self, transport: Transport, options: Sequence[tuple[str, str | int]], look_s: float) -> None:
        self._transport, self._options, self._look_s = transport, list(options), look_s
        self._credentials: CredentialSource | None = None
        self._number = 0
        self._dialled: grpc.ChannelCredentials | None = None
        self._open: dict[Address, grpc.aio.Channel] = {}
        self._examining: dict[Address, asyncio.Lock] = {}
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def channel(self, to: Address) -> grpc.aio.Channel:
        """The channel to a process, opened on first use, whatever has changed since."""
        if to not in self._open:
            self._open[to] = self._dial(to)
        return self._open[to]

    async def ready(self, to: Address) -> grpc.aio.Channel:
        """The channel for one more call, by the files as they are now.

        Raises:
            Incompatible, Unanswered, Unreachable: there is a list, no connection, and the server cannot be called.
        """
        self._closed = False
        await self.renew()
        if isinstance(self._transport, Insecure) or self._transport.revoked is None:
            return self.channel(to)
        async with self._examining.setdefault(to, asyncio.Lock()):
            if to not in self._open or self._open[to].get_state() not in _CONNECTED:
                await self._drop(to)
                if fault := await asyncio.to_thread(refusal, to, self._transport, self._look_s):
                    raise self.error(fault)
                self.channel(to).get_state(try_to_connect=True)
        return self.channel(to)

    async def broken(self, to: Address) -> None:
        """Give up a channel that has lost its connection: with a list, gRPC must not connect it again by itself."""
        if isinstance(self._transport, Insecure) or self._transport.revoked is None:
            return
        if to in self._open and self._open[to].get_state() is not grpc.ChannelConnectivity.READY:
            await self._drop(to)

    async def renew(self) -> None:
        """Close all channels if the files have changed: their calls end with `CancelledError`, see `left`."""
        if self._credentials is None or self._credentials.now().number == self._number:
            return
        self._number, self._dialled = self._credentials.now().number, None
        for to in list(self._open):
            await self._drop(to)

    def left(self, to: Address, channel: grpc.aio.Channel) -> bool:
        """True if a call was cancelled because its channel was closed, and not by the task that waits for it."""
        task = asyncio.current_task()
        return not self._closed and self._open.get(to) is not channel and not (task and task.cancelling())

    def error(self, diagnosis: Diagnosis, more: str = "") -> Unreachable | Incompatible:
        """The error of a server that could not be called; while our own files change, a repeat may succeed."""
        changing = diagnosis.own and self._credentials is not None and self._credentials.unsettled
        kind = Unanswered if changing or (diagnosis.there and not diagnosis.lasting) else Unreachable
        return (Incompatible if diagnosis.lasting and not changing else kind)(f"{diagnosis.line}{more}")

    def look_on(self) -> None:
        """Also look at the files while no call begins: calls may last for days."""
        if self._looking is None and not isinstance(self._transport, Insecure):
            self._looking = asyncio.ensure_future(self._look())

    async def close(self) -> None:
        """Close all channels; the next call opens them again."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for to in list(self._open):
            await self._drop(to)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.renew()

    async def _drop(self, to: Address) -> None:
        if (channel := self._open.pop(to, None)) is not None:
            await channel.close()

    def _dial(self, to: Address) -> grpc.aio.Channel:
        if isinstance(self._transport, Insecure):
            check_near(f"{to.name} at", to.location)
            target, options = way(to.location, proxied=False)
            return grpc.aio.insecure_channel(target, options=[*self._options, *options])
        if self._credentials is None:
            self._credentials = CredentialSource(self._transport)
        if self._dialled is None:
            now = self._credentials.now()
            self._number = now.number
            self._dialled = grpc.ssl_channel_credentials(now.ca, now.key, now.certificate)
        target, options = way(to.location, proxied=self._transport.proxied)
        options = [*self._options, *options, ("grpc.ssl_target_name_override", to.dns)]
        return grpc.aio.secure_channel(target, self._dialled, options=options)
