"""The part of a message that must not depend on the data: its fields by class, as numbered paths with values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.blindness.observed import Crossed
from tests.simulator import COORDINATOR
from treetap.wire.disclosure import class_of
from treetap.wire.v2 import reveals_pb2

#: Classes of fields whose values are compared, whichever reader they have.
PLAIN = frozenset({"CONTROL", "TOPOLOGY", "SIZE", "METRIC"})
#: Classes of random or secret content, of which number and length are compared.
BY_LENGTH = frozenset(
    {
        *("PUBLIC_KEY", "BLINDED_ID", "CIPHERTEXT", "CANDIDATE_SUM", "SPLIT_DIRECTION", "MASKED_SHARE", "PREDICTION"),
        *("EXPLANATION", "EMBEDDING", "EMBEDDING_GRADIENT"),
    }
)
#: Classes that say which records a message is about, in full: they are compared where the data say the same.
RECORDS = frozenset({"INSTANCE_SPACE"})
#: The figures that are measured, by name: two runs do not agree about them.
MEASURED = {
    *("Accounted.seconds", "Accounted.peak_rss_mb", "Accounted.cpu_seconds", "NamedAmount.amount"),
    *("ServingFigures.p50_s", "ServingFigures.p99_s", "ServingFigures.records_per_s"),
    "Signed.unix_nanos",
}
#: Random bytes of other classes, of which the length is compared: a trace id, left bits under their pads.
RANDOM = {"StepRequest.trace", "Child.left_bits"}

Shown = list[tuple[str, Any]]


def shown(message: Message, classes: Collection[str] = PLAIN) -> Shown:
    """Path and value of every field of these classes; of other classes path and length, or nothing."""
    return list(_shown(message, "", frozenset(classes)))


def _shown(message: Message, path: str, classes: frozenset[str]) -> Iterator[tuple[str, Any]]:
    for field, value in message.ListFields():
        compared = _compared(field, classes)
        if compared is None:
            continue
        for number, each in enumerate(list(value) if field.is_repeated else [value]):
            where = f"{path}.{field.name}[{number}]"
            if _is_message(field):
                yield from _shown(each, where, classes)
            yield where, compared(each)


def _compared(field: FieldDescriptor, classes: frozenset[str]) -> Callable[[Any], Any] | None:
    """Return the function from a field's value to the part that is compared; None for a field that is not."""
    name = reveals_pb2.Disclosure.Name(reveals_pb2.Disclosure.ValueType(class_of(field)))
    full = f"{field.containing_type.name}.{field.name}"
    if _is_message(field):
        return lambda _: "message"
    if full in MEASURED:
        return None
    if full in RANDOM:
        return len
    if name in classes:
        return lambda value: value
    if name in BY_LENGTH and field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return len
    return None


def _is_message(field: FieldDescriptor) -> bool:
    return field.message_type is not None and not field.message_type.GetOptions().map_entry


def of_coordinator(crossed: list[Crossed]) -> list[tuple[str, str, bytes]]:
    """Messages that the coordinator received, byte for byte, without the figures that are measured."""
    found = []
    for sender, to, step, message in crossed:
        if to == COORDINATOR:
            copy = type(message).FromString(message.SerializeToString())
            _forget_measured(copy)
            found.append((sender, step, copy.SerializeToString(deterministic=True)))
    return found


def _forget_measured(message: Message) -> None:
    for field, value in message.ListFields():
        if f"{field.containing_type.name}.{field.name}" in MEASURED and field.message_type is None:
            message.ClearField(field.name)
        elif _is_message(field):
            for each in value if field.is_repeated else [value]:
                _forget_measured(each)


def between_parties(crossed: list[Crossed], classes: Collection[str] = PLAIN) -> list[tuple[str, str, str, Shown]]:
    """Messages that parties sent each other, in order, by the fields of these classes."""
    return [(sender, to, step, shown(message, classes)) for sender, to, step, message in crossed if to != COORDINATOR]
