"""Content of a party's answer to a step; an answer to another step is refused."""

from __future__ import annotations

from typing import Any

from treetap.errors import Malformed
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import control_pb2


def answered(party: str, result: control_pb2.StepResult, name: str) -> Any:
    """The content of a party's result, a message of the type that `name` has.

    Raises:
        Malformed: the result holds another content, or none; read all the same, it would be empty and count as zeros.
    """
    found = name_of(result)
    if found != name:
        raise Malformed(f"{party} answered with {found or 'nothing'}, not with {name}")
    return content_of(result, name)
