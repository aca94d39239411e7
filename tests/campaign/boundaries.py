"""Boundary values of every field of a message, from its descriptor.

A `Change` names one field, of one message within the message, and what becomes of it: each of the values at which types
and programs have their limits, a message left out or empty, a list without its last element or with thousands, another
member of a oneof, an unknown field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
#: The fields, and the places in lists, that lead from a message to a field.
Path = tuple[str | int, ...]
#: Type → the least and the greatest whole number.
_WHOLE = {
    Field.TYPE_INT32: (-(2**31), 2**31 - 1),
    Field.TYPE_INT64: (-(2**63), 2**63 - 1),
    Field.TYPE_UINT32: (0, 2**32 - 1),
    Field.TYPE_UINT64: (0, 2**64 - 1),
    Field.TYPE_FIXED64: (0, 2**64 - 1),
    Field.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    Field.TYPE_SINT32: (-(2**31), 2**31 - 1),
    Field.TYPE_SINT64: (-(2**63), 2**63 - 1),
    Field.TYPE_ENUM: (-(2**31), 2**31 - 1),
}
_NUMBERS = (0, 1, -1, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, -(2**63), 2**64 - 1)
_REALS = (0.0, -0.0, 1.0, -1.0, 5e-324, 1e308, -1e308, math.inf, -math.inf, math.nan)
_TEXTS = ("", "x", "../../escape", "\x1b[2J\r\n", "nobody", "ö" * 40, "a" * 60_000, "\x00")
_MANY, _LONG = 4_000, 200_000


class Change(NamedTuple):
    """The field at the end of a path, and the name of what becomes of it."""

    path: Path
    what: str


def _scalars(field: Field, before: Any) -> dict[str, Any]:
    """Values to put into a field of one value, by name."""
    if field.type in _WHOLE:
        low, high = _WHOLE[field.type]
        return {str(value): value for value in (*_NUMBERS, before + 1) if low <= value <= high}
    if field.type in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT):
        return {repr(value): value for value in _REALS}
    if field.type == Field.TYPE_BOOL:
        return {"the other": not before}
    if field.type == Field.TYPE_STRING:
        return {repr(value)[:24]: value for value in _TEXTS}
    assert field.type == Field.TYPE_BYTES
    return {
        "empty": b"",
        "a byte less": before[:-1],
        "a byte more": before + b"\x01",
        "zeros": bytes(len(before)),
        "ones": b"\xff" * len(before),
        "no text": b"\xc3\x28",
        "long": b"\x5a" * _LONG,
    }


@cache
def _is_map(field: Field) -> bool:
    return field.type == Field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry


def _same(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)  # 0.0 is not -0.0, and nan is itself


def changes(message: Message, above: Path = ()) -> Iterator[Change]:
    """Every change of a message, that of its parts included; a list's first and last element are its parts."""
    yield Change(above, "an unknown field")
    for field in message.DESCRIPTOR.fields:
        path = (*above, field.name)
        value = getattr(message, field.name)
        if field.is_repeated:
            yield from (Change(path, what) for what in _lists(field) if value or what in ("one", "many"))
            if not _is_map(field):
                for place in sorted({0, len(value) - 1} if value else set()):
                    yield from _of_one(field, value[place], (*path, place))
        elif field.type == Field.TYPE_MESSAGE and not message.HasField(field.name):
            yield Change(path, "there")  # where others of a oneof are, they go
        else:
            if field.has_presence and message.HasField(field.name):
                yield Change(path, "missing")
            if not field.containing_oneof or message.HasField(field.name):
                yield from _of_one(field, value, path)


def _of_one(field: Field, value: Any, path: Path) -> Iterator[Change]:
    if field.type == Field.TYPE_MESSAGE:
        if value.ByteSize():
            yield Change(path, "empty")
        yield from changes(value, path)
    else:
        yield from (Change(path, what) for what, other in _scalars(field, value).items() if not _same(other, value))


def _lists(field: Field) -> dict[str, Callable[[Any], None]]:
    """Changes to make to a list or a map, by name."""
    if _is_map(field):
        return {
            "none": lambda values: values.clear(),
            "one": lambda values: _add(field, values, "nobody"),
            "many": lambda values: _add(field, values, *(f"nobody-{k}" for k in range(_MANY))),
            "less": lambda values: values.pop(min(values)),
        }

    def more(values: Any, times: int) -> None:
        if values:
            values.extend([values[0]] * times)
        elif field.type == Field.TYPE_MESSAGE:
            for _ in range(times):
                values.add()
        else:
            values.extend([_zero(field)] * times)

    return {
        "none": lambda values: values.__delitem__(slice(None)),
        "one": lambda values: more(values, 1),
        "many": lambda values: more(values, _MANY),
        "less": lambda values: values.__delitem__(-1),
    }


def _add(field: Field, entries: Any, *names: str) -> None:
    """Put entries of these names into a map: zeros, or empty messages."""
    for name in names:
        if field.message_type.fields_by_name["value"].type == Field.TYPE_MESSAGE:
            entries.get_or_create(name)
        else:
            entries[name] = 0


def _zero(field: Field) -> Any:
    return {Field.TYPE_STRING: "", Field.TYPE_BYTES: b"", Field.TYPE_BOOL: False}.get(field.type, 0)


def changed(message: M, change: Change) -> M:
    """A copy of a message with a change; IndexError or the like never: the path must be of this message."""
    made = type(message)()
    made.CopyFrom(message)
    *way, last = change.path or ("",)
    holder: Any = made
    for step in way:
        holder = holder[step] if isinstance(step, int) else getattr(holder, step)
    if change.what == "an unknown field":
        target = made if not change.path else holder[last] if isinstance(last, int) else getattr(holder, last)
        target.MergeFromString(b"\x8a\xbb\x7f\x03new")  # of a number that no field has
        return made
    if isinstance(last, int):
        _put_one(made, change, holder, last)
        return made
    field = holder.DESCRIPTOR.fields_by_name[last]
    if field.is_repeated:
        _lists(field)[change.what](getattr(holder, last))
    elif change.what == "missing":
        holder.ClearField(last)
    elif field.type == Field.TYPE_MESSAGE:
        holder.ClearField(last)
        getattr(holder, last).SetInParent()
    else:
        setattr(holder, last, _scalars(field, getattr(holder, last))[change.what])
    return made


def _put_one(made: Message, change: Change, values: Any, place: int) -> None:
    """Change an element of a list."""
    if isinstance(values[place], Message):
        values[place].Clear()
        return
    holder: Any = made
    for step in change.path[:-2]:
        holder = holder[step] if isinstance(step, int) else getattr(holder, step)
    field = holder.DESCRIPTOR.fields_by_name[change.path[-2]]
    values[place] = _scalars(field, values[place])[change.what]
