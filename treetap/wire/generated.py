"""Generated messages by their full names, as transcripts name them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

import treetap.wire.v2


def message_class(full_name: str) -> type[Message]:
    """The class of a message type; generated modules are imported for one that is not known yet.

    Raises:
        KeyError: there is no type of that name.
    """
    pool = descriptor_pool.Default()
    try:
        descriptor = pool.FindMessageTypeByName(full_name)
    except KeyError:
        _import_generated()
        descriptor = pool.FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(descriptor)


@cache
def _import_generated() -> None:
    """Register every message of the wire; generated service code, which needs gRPC, is left out."""
    for module in pkgutil.iter_modules(treetap.wire.v2.__path__):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"treetap.wire.v2.{module.name}")
