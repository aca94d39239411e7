"""A federation of real processes that reach each other through a relay, which can be killed and started again."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.system.federations import until
from treetap.commands.certs.authority import issue
from treetap.lab.local_federation import LocalFederation, serve, to_toml
from treetap.process.fork_server import FORKS, Child
from treetap.wire.ports import Role

_REGISTERED = re.compile(r"(\w+ '[\w-]+') registers, from")


def free_address() -> str:
    """An address of loopback at which nothing listens."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{tried.getsockname()[1]}"


class RelayedFederation:
    """A `LocalFederation` whose coordinator, parties and operator call each other at one relay's address.

    Args:
        folder, parties: as of `LocalFederation`.
        limits: further keys of the relay's file.
        coordinator: further keys of the coordinator's file.
    """

    def __init__(
        self,
        folder: Path,
        parties: Mapping[str, Mapping[str, Any]],
        limits: Mapping[str, Any] | None = None,
        **coordinator: Any,
    ) -> None:
        self.address, self._limits = free_address(), dict(limits or {})
        permitted = {"people": {"addresses": {"*": [self.address]}}}  # by each party's policy, and no other
        own = {
            name: {**settings, "relay": self.address, "policy": {**settings.get("policy", {}), **permitted}}
            for name, settings in parties.items()
        }
        self.federation = LocalFederation(
            folder, own, {"relay": self.address, **coordinator}, reached=lambda _: self.address
        )
        self.folder, self._starts, self.metrics = folder, 0, ""
        self._relay: Child | None = None

    def __enter__(self) -> Self:
        self.federation.__enter__()
        try:
            issue(self.folder / "certs", "relay", Role.RELAY)
            self.start()
        except BaseException:
            self.federation.stop()
            raise
        self.direct_operator = self.federation.operator
        self.federation.addresses["coordinator"] = self.address
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.federation.stop()
        self.kill()

    @property
    def log(self) -> Path:
        """What the relay that was started last has logged."""
        return self.folder / f"relay-{self._starts}.log"

    @property
    def pid(self) -> int:
        """The relay's process id."""
        assert self._relay is not None
        return self._relay.pid

    def await_registered(self, count: int) -> None:
        """Wait until so many processes are registered at the relay that runs now."""
        until(lambda: len(set(_REGISTERED.findall(self.log.read_text()))) == count, "registrations")

    def start(self) -> None:
        """Start the relay, at the same address each time."""
        certs = self.folder / "certs"
        tls = {"ca": certs / "ca.crt", "certificate": certs / "relay.crt", "key": certs / "relay.key"}
        content = {"listen": self.address, **self._limits, "tls": {key: str(path) for key, path in tls.items()}}
        path = self.folder / "relay.toml"
        path.write_text(to_toml(content))
        self._starts += 1
        words = ["relay", str(path), "--until-stdin-closes", "--log-level", "debug"]
        self._relay = FORKS.fork(serve, (words, "relay", self.log), asking=True)
        with os.fdopen(os.dup(self._relay.pipe.fileno())) as lines:
            said = json.loads(lines.readline())
        assert (said["serving"], said["address"]) == ("relay", self.address)
        self.metrics = said.get("metrics", "")

    def kill(self) -> None:
        """SIGKILL to the relay."""
        if self._relay is None:
            return
        self._relay.end()
        self._relay = None
