"""Messages of version 1 of the wire, read as today's messages of the same meaning.

`descriptors.binpb` holds version 1 whole, as the compiler described it when it was in use; it is never regenerated.
Most messages have kept the numbers and types of their fields, so today's message reads their bytes as they are. Those
that have not are listed in `CHANGED`, each with the function that fills today's message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from treetap.errors import Malformed
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.frame import filled
from treetap.wire.generated import message_class

#: Prefix of the full names of all messages of version 1.
PACKAGE = "treetap.wire.v1."
_TODAY = "treetap.wire.v2."
#: Messages of version 1 that have another name today.
RENAMED = {
    "ColumnWay": "ColumnPath",
    "Parcel": "PeerMessage",
    "PublicKeyParcel": "PublicKeyMessage",
    "Turn": "Branch",
}
_PREDICTION = {"interactive": "interactive", "eini": "eini", "eini-lattice": "lattice"}


def name_today(full_name: str) -> str:
    """The full name that a message type has today; that of a type which is not of version 1 as it is."""
    if not full_name.startswith(PACKAGE):
        return full_name
    name = full_name.removeprefix(PACKAGE)
    return _TODAY + RENAMED.get(name, name)


def upgraded(full_name: str, serialised: bytes) -> Message:
    """The message of today for the bytes of a message of version 1.

    Raises:
        KeyError: version 1 had no message of that name.
        DecodeError: the bytes are none of that message.
        Malformed: its content is impossible in version 1, or version 1 never stored messages of its kind.
    """
    kind = descriptors().FindMessageTypeByName(full_name)
    old = message_factory.GetMessageClass(kind).FromString(serialised)
    for inner in _held(old):
        # Today's message could give such a field a meaning, or lose it.
        unknown = UnknownFieldSet(inner)
        if len(unknown):
            raise Malformed(f"{inner.DESCRIPTOR.full_name} has no field {unknown[0].field_number} in version 1")
    return _upgraded(old)


def bytes_by_class(full_name: str, serialised: bytes) -> dict[str, int]:
    """Bytes of a message of version 1 by disclosure class, as version 1 counted them.

    Raises:
        KeyError: version 1 had no message of that name.
    """
    kind = message_factory.GetMessageClass(descriptors().FindMessageTypeByName(full_name))
    return bytes_by_class_of(serialised, kind)


@cache
def descriptors() -> descriptor_pool.DescriptorPool:
    """Version 1, in a pool of its own."""
    pool = descriptor_pool.DescriptorPool()
    content = Path(__file__).with_name("descriptors.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _held(message: Message) -> Iterator[Message]:
    """A message and all messages in its fields; the one map of version 1 holds numbers."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for inner in value if field.is_repeated else [value]:
                yield from _held(inner)


def _upgraded(old: Message) -> Message:
    kind = old.DESCRIPTOR.full_name
    new = message_class(name_today(kind))()
    CHANGED.get(kind.removeprefix(PACKAGE), _same)(old, new)
    return new


def _same(old: Message, new: Message) -> None:
    """Fields have kept their numbers and types."""
    new.ParseFromString(old.SerializeToString())


def _frame(old: Message, new: Any) -> None:
    """The content lay in one oneof, whose fields had the names that contents have today."""
    name = old.WhichOneof(old.DESCRIPTOR.oneofs[0].name)
    content = _upgraded(getattr(old, name)) if name else None
    if name:
        old.ClearField(name)
    _same(old, new)
    if name:
        filled(new, name, content)


def _holding_spec(old: Any, new: Any) -> None:
    """A training job was described with its protocol by name."""
    spec = _upgraded(old.spec) if old.HasField("spec") else None
    old.ClearField("spec")
    _same(old, new)
    if spec is not None:
        new.spec.CopyFrom(spec)


def _spec(old: Any, new: Any) -> None:
    """The protocol was named by a word, and each protocol had a field for its parameters."""
    protocol, trained = old.protocol, _trained()
    if protocol and protocol not in trained:
        raise Malformed(f"a training job of version 1 names the protocol {protocol!r}, which did not train then")
    others = [field for field in trained if field != protocol and old.HasField(field)]
    if others:
        raise Malformed(
            f"a training job of version 1 names the protocol {protocol!r} and has parameters of {others[0]}"
        )
    parameters = _upgraded(getattr(old, protocol)) if protocol else None
    for field in ("protocol", *trained):
        old.ClearField(field)
    _same(old, new)
    if parameters is not None:
        getattr(new.parameters, protocol).CopyFrom(parameters)


def _trained() -> dict[str, str]:
    """The protocols that trained, by the field of a job that held their parameters → the message of these."""
    fields = descriptors().FindMessageTypeByName(PACKAGE + "JobSpec").fields
    return {field.name: field.message_type.name for field in fields if field.message_type is not None}


def _tree_parameters(old: Message, new: Any) -> None:
    """The parameters of all protocols of trees were fields beside the protocol's own."""
    new.trees.SetInParent()
    for field, value in old.ListFields():
        holder = new if field.name in new.DESCRIPTOR.fields_by_name else new.trees
        if field.name == "party_dropout":
            holder.party_dropout.update({row.name: row.amount for row in value})
        else:
            setattr(holder, field.name, value)


def _opening(old: Any, new: Any) -> None:
    """The protocol was named by a word, and the options of all protocols stood side by side."""
    if old.protocol and old.protocol not in _PREDICTION:
        raise Malformed(f"a prediction of version 1 names the protocol {old.protocol!r}, which did not predict then")
    if old.protocol:
        options = getattr(new.parameters, _PREDICTION[old.protocol])
        options.SetInParent()
        for name in options.DESCRIPTOR.fields_by_name:
            if name in old.DESCRIPTOR.fields_by_name:
                setattr(options, name, getattr(old, name))
    for field in ("protocol", "form", "key_bits", "obfuscation"):
        old.ClearField(field)
    new.MergeFromString(old.SerializeToString())


def _never_stored(old: Message, _new: Message) -> None:
    """Calls of operators, and answers to steps, which no transcript and no journal holds."""
    raise Malformed(f"version 1 wrote no {old.DESCRIPTOR.full_name} to a file")


#: Message of version 1 whose bytes have another meaning today → the function that fills today's message.
CHANGED: dict[str, Callable[[Any, Any], None]] = {
    "StepRequest": _frame,
    "StepResult": _frame,
    "Parcel": _frame,
    "Prepare": _holding_spec,
    "JobSpec": _spec,
    **dict.fromkeys(_trained().values(), _tree_parameters),
    "OpenModel": _opening,
    "StepEvent": _never_stored,
    "SubmitRequest": _never_stored,
    "PredictRequest": _never_stored,
}
