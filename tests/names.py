"""A name that stands for several addresses."""

from __future__ import annotations

import socket
from typing import Any

import pytest


def stands_for(monkeypatch: pytest.MonkeyPatch, name: str, *addresses: str) -> None:
    """For the length of a test a name resolves to these addresses, in this order."""
    resolve = socket.getaddrinfo

    def several(host: Any, port: Any, *args: Any, **named: Any) -> list[Any]:
        asked = addresses if host == name else [host]
        return [found for each in asked for found in resolve(each, port, *args, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", several)
