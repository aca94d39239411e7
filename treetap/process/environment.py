"""Variables of the environment that steer gRPC, which takes none of them here unasked; `pin` is called first of all."""

from __future__ import annotations

import os

#: What gRPC may take from the environment: its log, and which of its two ways to look names up works on this host.
OF_GRPC = ("GRPC_VERBOSITY", "GRPC_TRACE", "GRPC_DNS_RESOLVER")
#: Variables that were set, and are ignored.
ignored: list[str] = []


def pin() -> None:
    """Take from this process's environment what would steer gRPC; call it before gRPC is first used."""
    for name in [name for name in os.environ if name.startswith("GRPC_") and name not in OF_GRPC]:
        del os.environ[name]
        ignored.append(name)
