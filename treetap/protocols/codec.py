"""Parameters of a protocol as a dataclass and as its message: the names of their fields coincide.

A field of the dataclass that the message does not have itself is one of a message inside it, which several protocols
share (growth.proto: TreeParams). None and NaN stay absent; sequences are repeated fields; a field that is a dataclass
itself, or a mapping to such, is a message or a map of messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from google.protobuf.message import Message

Fields = TypeVar("Fields")


def write_params(params: Any, message: Message) -> None:
    """Write the fields of a dataclass into a message."""
    message.SetInParent()
    for field in fields(params):
        holder, value = _holder(message, field.name), getattr(params, field.name)
        if is_dataclass(value):
            write_params(value, getattr(holder, field.name))
        elif isinstance(value, Mapping):
            entries = getattr(holder, field.name)
            for name, entry in value.items():
                if is_dataclass(entry):
                    write_params(entry, entries[name])
                else:
                    entries[name] = entry
        elif isinstance(value, Sequence) and not isinstance(value, str):
            getattr(holder, field.name).extend(value)
        elif value is not None and not (isinstance(value, float) and math.isnan(value)):
            setattr(holder, field.name, value)


def params_in(message: Message, kind: type[Fields]) -> Fields:
    """The dataclass of a message; a field that is absent has its default."""
    values: dict[str, Any] = {}
    for name, inner in _dataclasses_in(kind).items():  # type: ignore[arg-type] # a type is hashable
        holder = _holder(message, name)
        if holder.DESCRIPTOR.fields_by_name[name].has_presence and not holder.HasField(name):
            continue
        values[name] = _plain(getattr(holder, name), inner)
    return kind(**values)


@cache
def _dataclasses_in(kind: type) -> dict[str, type | None]:
    """Each field of a dataclass, and the dataclass that its type is, or maps names to; kept, as types are compiled.

    None for plain values.
    """
    hints = get_type_hints(kind)
    within = {field.name: (hints[field.name], *get_args(hints[field.name])) for field in fields(kind)}
    return {
        name: next((it for it in types if isinstance(it, type) and is_dataclass(it)), None)
        for name, types in within.items()
    }


def _plain(value: Any, kind: type | None) -> Any:
    """A field's value as a dataclass has it; `kind`: the dataclass of its messages, if it has some."""
    if isinstance(value, Message):
        return value if kind is None else params_in(value, kind)
    if isinstance(value, Mapping):
        return {name: _plain(item, kind) for name, item in value.items()}
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else value


def _holder(message: Message, name: str) -> Message:
    """The message that has the field: this one, or the one inside it that does."""
    own = message.DESCRIPTOR.fields_by_name
    if name in own:
        return message
    inner = next(f for f in message.DESCRIPTOR.fields if f.message_type and name in f.message_type.fields_by_name)
    holder: Message = getattr(message, inner.name)
    return holder
