"""A federation of real processes that reach each other through a relay, which can be killed and started again."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.system.federations import until
from treetap.commands.certs.authority import issue
from treetap.commands.local_federation import LocalFederation, begin, to_toml
from treetap.usage import measure_process
from treetap.wire.roles import Role


def free_address() -> str:
    """An address of loopback at which nothing listens."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{tried.getsockname()[1]}"


class RelayedFederation:
    """A `LocalFederation` whose coordinator, parties and operator call each other at one relay's address.

    Args:
        folder, parties: as of `LocalFederation`.
        more: further keys of the relay's file.
    """

    def __init__(self, folder: Path, parties: Mapping[str, Mapping[str, Any]], **more: Any) -> None:
        self.address, self._more = free_address(), more
        own = {name: {**settings, "relay": self.address} for name, settings in parties.items()}
        self.federation = LocalFederation(folder, own, {"relay": self.address}, reached=lambda _: self.address)
        self.folder = folder
        self._relay: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.federation.__enter__()
        try:
            issue(self.folder / "certs", "relay", Role.RELAY)
            self.start()
        except BaseException:
            self.federation.stop()
            raise
        self.federation.addresses["coordinator"] = self.address
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.federation.stop()
        self.kill()

    @property
    def log(self) -> Path:
        """What the relay has logged."""
        return self.folder / "relay.log"

    @property
    def cpu_s(self) -> float:
        """Processor seconds of the relay so far."""
        assert self._relay is not None
        return measure_process(self._relay.pid).cpu_seconds

    def await_registered(self, count: int) -> None:
        """Wait until so many processes are registered, since the relay was started last."""
        until(lambda: self.log.read_text().rpartition(" serves at ")[2].count(" registers, from ") >= count, "registered")

    def start(self) -> None:
        """Start the relay, at the same address each time."""
        certs = self.folder / "certs"
        tls = {"ca": certs / "ca.crt", "certificate": certs / "relay.crt", "key": certs / "relay.key"}
        content = {"listen": self.address, **self._more, "tls": {key: str(path) for key, path in tls.items()}}
        path = self.folder / "relay.toml"
        path.write_text(to_toml(content))
        with self.log.open("ab") as log:
            self._relay = begin(["relay", str(path), "--until-stdin-closes", "--log-level", "debug"], log)
        assert self._relay.stdout is not None
        said = json.loads(self._relay.stdout.readline())
        assert (said["serving"], said["address"]) == ("relay", self.address)

    def kill(self) -> None:
        """SIGKILL to the relay."""
        if self._relay is None:
            return
        self._relay.kill()
        self._relay.wait(10)
        for stream in (self._relay.stdin, self._relay.stdout):
            if stream is not None:
                stream.close()
        self._relay = None
