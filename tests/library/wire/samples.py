"""Messages of every form, made without a .proto file: what the accounting and the log are tried on."""

from __future__ import annotations

from google.protobuf import descriptor_pool, message_factory, struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

from treetap.wire.v2 import reveals_pb2

_F = FieldDescriptorProto


def sample_file() -> FileDescriptorProto:
    """A message with every form of field: scalar, packed, repeated, nested, map, oneof, foreign, unclassed."""
    file = FileDescriptorProto(name="treetap_tests/sample.proto", package="treetap_tests", syntax="proto3")
    file.dependency.extend([reveals_pb2.DESCRIPTOR.name, struct_pb2.DESCRIPTOR.name])  # both are loaded

    def field(message: object, name: str, kind: int, reveals: int, **more: object) -> None:
        made = message.field.add(name=name, number=len(message.field) + 1, type=kind, **more)  # type: ignore[attr-defined]
        made.label = more.get("label", _F.LABEL_OPTIONAL)
        if reveals:
            made.options.Extensions[reveals_pb2.reveals] = reveals

    many = {"label": _F.LABEL_REPEATED}
    inner = file.message_type.add(name="Inner")
    field(inner, "block", _F.TYPE_BYTES, reveals_pb2.CIPHERTEXT)
    field(inner, "count", _F.TYPE_UINT64, reveals_pb2.CONTROL)
    field(inner, "next", _F.TYPE_MESSAGE, reveals_pb2.TOPOLOGY, type_name=".treetap_tests.Inner")
    outer = file.message_type.add(name="Outer")
    for name in ("NamesEntry", "InnersEntry"):
        entry = outer.nested_type.add(name=name)
        entry.options.map_entry = True
        field(entry, "key", _F.TYPE_STRING, 0)
    field(outer.nested_type[0], "value", _F.TYPE_SINT64, 0)
    field(outer.nested_type[1], "value", _F.TYPE_MESSAGE, 0, type_name=".treetap_tests.Inner")
    field(outer, "label", _F.TYPE_STRING, reveals_pb2.FEATURE_NAME)
    field(outer, "inner", _F.TYPE_MESSAGE, reveals_pb2.CONTROL, type_name=".treetap_tests.Inner")
    field(outer, "inners", _F.TYPE_MESSAGE, reveals_pb2.CONTROL, type_name=".treetap_tests.Inner", **many)
    field(outer, "packed", _F.TYPE_UINT32, reveals_pb2.INSTANCE_SPACE, **many)
    field(outer, "weights", _F.TYPE_DOUBLE, reveals_pb2.LEAF_WEIGHT, **many)
    field(outer, "blocks", _F.TYPE_BYTES, reveals_pb2.CANDIDATE_SUM, **many)
    field(
        outer, "names", _F.TYPE_MESSAGE, reveals_pb2.FEATURE_NAME, type_name=".treetap_tests.Outer.NamesEntry", **many
    )
    field(outer, "by_name", _F.TYPE_MESSAGE, reveals_pb2.METRIC, type_name=".treetap_tests.Outer.InnersEntry", **many)
    field(outer, "foreign", _F.TYPE_MESSAGE, reveals_pb2.METRIC, type_name=".google.protobuf.Struct")
    field(outer, "single", _F.TYPE_FLOAT, reveals_pb2.AGGREGATE)
    field(outer, "fixed", _F.TYPE_FIXED64, reveals_pb2.PUBLIC_KEY)
    field(outer, "unclassed", _F.TYPE_INT32, 0)
    secret = file.message_type.add(name="SecretKeyOfSomeone")
    field(secret, "p", _F.TYPE_BYTES, reveals_pb2.CONTROL)
    carrier = file.message_type.add(name="Carrier")
    field(carrier, "inner", _F.TYPE_MESSAGE, reveals_pb2.CONTROL, type_name=".treetap_tests.SecretKeyOfSomeone")
    return file


_POOL = descriptor_pool.Default()
_POOL.AddSerializedFile(sample_file().SerializeToString())
FILE = _POOL.FindFileByName("treetap_tests/sample.proto")


def sample_type(name: str) -> type[Message]:
    """The class of one of the messages above."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"treetap_tests.{name}"))


Inner, Outer = sample_type("Inner"), sample_type("Outer")
