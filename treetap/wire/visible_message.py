"""A message of another process whose texts a person will read."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from google.protobuf.message import Message

from treetap.names import visible

M = TypeVar("M", bound=Message)


def visible_message(message: M, paths: Collection[str] = ()) -> M:
    """A copy of a message in which all texts are visible, those of its inner messages too.

    `paths`: fields that name a file, which a program may open; they stay as they are.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    _make_visible(copy, paths)
    return copy


def _make_visible(message: Message, paths: Collection[str]) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                _make_visible(inner, paths)
        elif field.type == field.TYPE_STRING and field.name not in paths:
            if field.is_repeated:
                value[:] = [visible(text) for text in value]
            else:
                setattr(message, field.name, visible(value))
