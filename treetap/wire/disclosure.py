"""Disclosure classes, and the class of each field of a message: options of the protos, read, counted and tabulated.

Each field carries one class that names the information its reader learns. The accounting walks the
serialised form, jumping over contents, because the protobuf runtime has no other way to tell a field's size
than to copy the field. `ByteCounts` adds up what one process has sent for one attempt at a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple, cast

from google.protobuf.descriptor import Descriptor, EnumValueDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import Message

from treetap.errors import Malformed
from treetap.wire.v2 import reveals_pb2, types_pb2

UNSPECIFIED = reveals_pb2.Disclosure.Name(reveals_pb2.DISCLOSURE_UNSPECIFIED)
_FIXED = {1: 8, 5: 4}  # wire type → bytes


class DisclosureClass(NamedTuple):
    """A class as reveals.proto describes it."""

    name: str
    kind: str  # open (information about records), sealed (unreadable without a key), plain (needed to run a job)
    tells: str  # the information that its reader learns
    default_receivers: tuple[str, ...]  # "*", "coordinators", "parties", "clients": need no entry in a policy


def _declared(value: EnumValueDescriptor) -> DisclosureClass:
    options = value.GetOptions().Extensions
    kind = reveals_pb2.DisclosureKind.Name(options[reveals_pb2.kind]).lower()
    return DisclosureClass(value.name, kind, options[reveals_pb2.tells], tuple(options[reveals_pb2.default_receivers]))


#: Name → class, in the order of reveals.proto; UNSPECIFIED, which no message may carry, is the first.
CLASSES: Mapping[str, DisclosureClass] = {
    value.name: _declared(value) for value in reveals_pb2.Disclosure.DESCRIPTOR.values
}


class DisclosureRow(NamedTuple):
    """One field of one message, for the table of docs/threats.md."""

    message: str  # full name
    field: str
    disclosure: str  # name of the class


def class_of(field: FieldDescriptor) -> int:
    """Number of the disclosure class that ``field`` declares; 0 if it declares none."""
    return int(field.GetOptions().Extensions[reveals_pb2.reveals])


def bytes_by_class(message: Message) -> dict[str, int]:
    """Serialised bytes of ``message`` for each disclosure class; they add up to ``message.ByteSize()``.

    Serialises the message once. A caller that has the serialised form uses :func:`bytes_by_class_of`.
    """
    return bytes_by_class_of(message.SerializeToString(), type(message))


def bytes_by_class_of(serialised: bytes, message_type: type[Message]) -> dict[str, int]:
    """As :func:`bytes_by_class`, from the serialised form of a message of ``message_type``.

    The cost grows with the number of fields set, not with their sizes: a packed list or a block of bytes is one
    step. Tag and length of a sub-message count for the field that holds it, its content for its own fields;
    keys and plain values of a map count for the map. A field without a class (a foreign type's) counts for
    the field around it, one unknown to the descriptor as DISCLOSURE_UNSPECIFIED. Raises Malformed if the bytes
    are not a message.
    """
    counts: dict[str, int] = {}
    descriptor = cast(Descriptor, message_type.DESCRIPTOR)
    _count(serialised, 0, len(serialised), descriptor, UNSPECIFIED, counts)
    return counts


def disclosure_table(files: Iterable[FileDescriptor]) -> Iterator[DisclosureRow]:
    """One row for each field of each message of ``files``, in the order of the .proto files."""
    pending = [message for file in files for message in file.message_types_by_name.values()]
    while pending:
        message = pending.pop(0)
        if message.GetOptions().map_entry:  # made by the compiler; its class is the map's
            continue
        for field in message.fields:
            disclosure = reveals_pb2.Disclosure.Name(reveals_pb2.Disclosure.ValueType(class_of(field)))
            yield DisclosureRow(message.full_name, field.name, disclosure)
        pending[:0] = message.nested_types


def classes_within(message: Descriptor) -> frozenset[str]:
    """The classes of all fields that a message of this type can hold, at any depth."""
    classes: set[str] = set()
    pending, seen = [message], {message.full_name}
    while pending:
        for disclosure, inner in _plan(pending.pop()).values():
            classes.update({disclosure} if disclosure is not None else ())
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                pending.append(inner)
    return frozenset(classes)


def own_classes(message: Descriptor) -> frozenset[str]:
    """The classes of a message's own fields, those of the messages within left out."""
    return frozenset(disclosure for disclosure, _ in _plan(message).values() if disclosure is not None)


@cache
def _plan(descriptor: Descriptor) -> dict[int, tuple[str | None, Descriptor | None]]:
    """Field number → (class or None, type of the sub-message or None)."""
    plan: dict[int, tuple[str | None, Descriptor | None]] = {}
    for field in descriptor.fields:
        number = reveals_pb2.Disclosure.ValueType(class_of(field))
        plan[field.number] = (reveals_pb2.Disclosure.Name(number) if number else None, field.message_type)
    return plan


def _count(data: bytes, at: int, end: int, descriptor: Descriptor, around: str, counts: dict[str, int]) -> None:
    """Add the bytes of each field in ``data[at:end]`` to its class; ``around`` is that of the field that holds them."""
    plan = _plan(descriptor)
    while at < end:
        begin = at
        # Most varints are one byte long, and the loop runs for every field of every message.
        tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at, end)
        wire = tag & 7
        known = plan.get(tag >> 3)
        disclosure, inner = (known[0] or around, known[1]) if known else (UNSPECIFIED, None)
        content = at
        if wire == 0:
            at = at + 1 if at < end and data[at] < 0x80 else _varint(data, at, end)[1]
        elif wire in _FIXED:
            at += _FIXED[wire]
        elif wire == 2:
            length, content = (data[at], at + 1) if at < end and data[at] < 0x80 else _varint(data, at, end)
            at = content + length
        else:
            raise Malformed(f"{descriptor.full_name}: byte {begin} starts no field (wire type {wire})")
        if at > end:
            raise Malformed(f"{descriptor.full_name}: the field at byte {begin} runs past the end")
        # Tag and length belong to the field that holds the message, its content to the fields inside.
        if inner is not None and wire == 2:
            counts[disclosure] = counts.get(disclosure, 0) + content - begin
            _count(data, content, at, inner, disclosure, counts)
        else:
            counts[disclosure] = counts.get(disclosure, 0) + at - begin


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise Malformed(f"a number of the message is cut or too long at byte {at}")


class ByteCounts:
    """The lines of one process in the table of received bytes.

    `count`: by which the process's metrics count them too: receiver, class and bytes.
    """

    def __init__(self, name: str, count: Callable[[str, str, int], None]) -> None:
        self._name, self._count = name, count
        self._messages: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()
        self.bytes_sent = 0

    def sent(self, to: str, step: str, classes: Mapping[str, int]) -> None:
        """Count a message that left for `to`, by its bytes of each class (`bytes_by_class`)."""
        for disclosure, size in classes.items():
            self._messages[to, step, disclosure] += 1
            self._bytes[to, step, disclosure] += size
            self.bytes_sent += size
            self._count(to, disclosure, size)

    def by_class(self) -> Counter[str]:
        """Bytes by disclosure class."""
        sums = Counter[str]()
        for (_, _, disclosure), size in self._bytes.items():
            sums[disclosure] += size
        return sums

    def rows(self) -> list[types_pb2.TrafficRow]:
        """Everything counted."""
        return [
            types_pb2.TrafficRow(
                **{"from": self._name},
                to=to,
                step=step,
                disclosure=disclosure,
                messages=self._messages[to, step, disclosure],
                bytes=size,
            )
            for (to, step, disclosure), size in sorted(self._bytes.items())
        ]
