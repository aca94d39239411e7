"""What a message reveals: every byte counted for its class, and the rules that the wire's own messages keep."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.wire.samples import FILE, Inner, Outer
from tools.renderers.threats import comments
from treetap.errors import Malformed
from treetap.wire.disclosure import (
    CLASSES,
    UNSPECIFIED,
    DisclosureRow,
    bytes_by_class,
    bytes_by_class_of,
    class_of,
    disclosure_table,
)
from treetap.wire.v2 import (
    approvals_pb2,
    control_pb2,
    exchange_pb2,
    jobs_pb2,
    overview_pb2,
    reveals_pb2,
    serving_pb2,
    transcript_pb2,
)
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

ROOT = Path(__file__).parents[3]
PROTOS = sorted((ROOT / "protos" / "treetap" / "wire" / "v2").glob("*.proto"))
OPEN = {"CONTROL", "TOPOLOGY", "METRIC", "SIZE", "USAGE"}
CONTROL = control_pb2.DESCRIPTOR.services_by_name["Control"]
EXCHANGE = exchange_pb2.DESCRIPTOR.services_by_name["Exchange"]
SERVING = serving_pb2.DESCRIPTOR.services_by_name["Serving"]
JOBS = jobs_pb2.DESCRIPTOR.services_by_name["Jobs"]
APPROVALS = approvals_pb2.DESCRIPTOR.services_by_name["Approvals"]
OVERVIEW = overview_pb2.DESCRIPTOR.services_by_name["Overview"]

# --- the rules


def _files() -> list[FileDescriptor]:
    return [importlib.import_module(f"treetap.wire.v2.{path.stem}_pb2").DESCRIPTOR for path in PROTOS]


def _reached(message: Descriptor, seen: set[str] | None = None) -> Iterator[FieldDescriptor]:
    """Every field that a message of this type can hold, at any depth; of a map the map, whose class is its entries'."""
    seen = set() if seen is None else seen
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        yield field
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from _reached(field.message_type, seen)


def _classes(*messages: Descriptor) -> dict[str, list[str]]:
    """Class → the fields that carry it, of all that these messages can hold."""
    found: dict[str, list[str]] = {}
    for message in messages:
        for field in _reached(message):
            name = reveals_pb2.Disclosure.Name(reveals_pb2.Disclosure.ValueType(class_of(field)))
            found.setdefault(name, []).append(field.full_name)
    return found


def test_every_field_of_every_message_carries_a_class() -> None:
    """All .proto files have their generated module, and none of their fields is without a class."""
    files = _files()
    assert {file.name for file in files} == {f"treetap/wire/v2/{path.name}" for path in PROTOS}
    rows = list(disclosure_table(files))
    assert [row for row in rows if row.disclosure == UNSPECIFIED] == []
    assert len(rows) > 200


def test_every_class_is_described_where_it_is_declared() -> None:
    """Each class says its kind and what it tells, in words of its own."""
    assert set(CLASSES) == set(reveals_pb2.Disclosure.keys())
    assert {declared.kind for declared in CLASSES.values()} == {"open", "sealed", "plain"}
    assert len({declared.tells for declared in CLASSES.values()} - {""}) == len(CLASSES)
    assert CLASSES["PREDICTION"].default_receivers == ("parties", "clients")
    assert CLASSES[UNSPECIFIED].default_receivers == ()


@pytest.mark.parametrize("service", [CONTROL, JOBS], ids=lambda service: service.name)
def test_control_messages_carry_plain_classes_only(service: ServiceDescriptor) -> None:
    """Nothing that a control or operator call can hold, in either direction and at any depth, is of another class.

    But for the count of a preview, which is what its operator asks for.
    """
    classes = _classes(*[kind for method in service.methods for kind in (method.input_type, method.output_type)])
    counts = {f"treetap.wire.v2.CommonCount.{name}" for name in ("records", "fewer_than")}
    assert set(classes.pop("OVERLAP")) == counts
    assert {name: fields for name, fields in classes.items() if name not in OPEN} == {}
    assert {"CONTROL", "METRIC"} <= set(classes)


def test_data_travels_only_in_requests() -> None:
    """What answers a parcel is control, so that one interceptor before the service sees all that a party learns."""
    (deliver,) = EXCHANGE.methods
    assert set(_classes(deliver.output_type)) <= OPEN
    assert not deliver.client_streaming
    assert not deliver.server_streaming


def test_what_crosses_between_parties_in_these_protocols() -> None:
    """The classes of parcels are these and no others."""
    assert set(_classes(exchange_pb2.PeerMessage.DESCRIPTOR)) == {
        *("CONTROL", "TOPOLOGY", "PUBLIC_KEY", "BLINDED_ID", "CIPHERTEXT"),
        *("CANDIDATE_SUM", "MONOTONE_DIRECTION", "INSTANCE_SPACE", "SPLIT_DIRECTION", "PREDICTION"),
        "OVERLAP",  # of a preview
        *("SHARE", "SIZE"),  # of shared sums, and what their dealer is told
        *(
            "FEATURE_NAME",
            "EXPLANATION",
            "REASON",
            "COLUMN_BINS",
        ),  # on request only, and to nobody unless a policy says so
        *("AGGREGATE", "BIN_ASSIGNMENT", "LEAF_WEIGHT", "MASKED_SHARE"),  # where parties share labels; likewise
        *("EMBEDDING", "EMBEDDING_GRADIENT"),  # of split networks; likewise
    }


def test_a_client_gets_predictions_and_says_about_whom() -> None:
    """What clients ask is control and instance spaces, what they are answered control and predictions, no more."""
    for method in SERVING.methods:
        assert set(_classes(method.input_type)) <= {"CONTROL", "INSTANCE_SPACE"}
        assert set(_classes(method.output_type)) <= {"CONTROL", "PREDICTION"}
        assert not method.server_streaming


def test_a_partys_people_are_shown_plain_classes_only() -> None:
    """What they ask is control; no answer can hold more about a record than an operator's."""
    for method in (*APPROVALS.methods, *OVERVIEW.methods):
        assert set(_classes(method.input_type)) == {"CONTROL"}
        assert set(_classes(method.output_type)) <= OPEN


def test_every_service_is_known_here() -> None:
    """A further service would need its own rule."""
    services = {name for file in _files() for name in file.services_by_name}
    assert services == {"Control", "Exchange", "Jobs", "Serving", "Approvals", "Overview"}


def test_no_message_is_made_for_a_secret() -> None:
    """A secret type has no encoder: no message and no field is named for one."""
    for file in _files():
        for message in file.message_types_by_name.values():
            names = [message.name, *(field.name for field in message.fields)]
            assert not [name for name in names if "secret" in name.lower() or "private" in name.lower()]


def test_generated_code_is_current(tmp_path: Path) -> None:
    """Generating again with the flags of `make protos` gives the files of treetap/wire/v2, byte for byte."""
    pytest.importorskip("grpc_tools", reason="generating code needs grpcio-tools (the dev extra)")
    flags = ("--python_out", "--mypy_out", "--grpc_python_out", "--mypy_grpc_out")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"{flag}=." in makefile for flag in flags)
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "-Iprotos"),
            *(f"{flag}={tmp_path}" for flag in flags),
            *(str(path.relative_to(ROOT)) for path in PROTOS),
        ],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PATH": paths},
    )
    made = {path.name: path.read_bytes() for path in (tmp_path / "treetap/wire/v2").iterdir()}
    without_service = {stem for stem in (path.stem for path in PROTOS) if b"Stub" not in made[f"{stem}_pb2_grpc.py"]}
    for stem in without_service:  # as the Makefile does
        del made[f"{stem}_pb2_grpc.py"], made[f"{stem}_pb2_grpc.pyi"]
    kept = {path.name: path.read_bytes() for path in (ROOT / "treetap/wire/v2").glob("*_pb2*.py*") if path.is_file()}
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []


# --- bytes by class


def test_every_byte_is_counted_for_the_class_of_its_leaf() -> None:
    """Contents count for their own fields; tag and length of a wrapper count for the wrapper."""
    message = Outer(label="ab", inner=Inner(block=b"x" * 300, count=7), packed=[1, 2, 300], names={"k": -1})
    assert bytes_by_class(message) == {
        "FEATURE_NAME": (2 + 2) + (2 + 3 + 2),  # label; a map entry of key and value
        "CONTROL": 1 + 2 + 2,  # tag and length of inner (305 bytes, so two of length); count
        "CIPHERTEXT": 1 + 2 + 300,
        "INSTANCE_SPACE": 2 + 4,
    }


def test_map_values_of_message_type_count_for_their_fields() -> None:
    """A map's keys and overhead are the map's class, the fields inside its messages have theirs."""
    message = Outer(by_name={"k": Inner(block=b"123")})
    assert bytes_by_class(message) == {"METRIC": 2 + 3 + 2, "CIPHERTEXT": 5}


def test_foreign_types_count_for_the_field_that_holds_them() -> None:
    """google.protobuf.Struct declares nothing; its bytes reveal what the field with it reveals."""
    foreign = struct_pb2.Struct()
    foreign.update({"auc": 0.9, "list": [1, {"a": None}]})
    message = Outer(foreign=foreign)
    assert bytes_by_class(message) == {"METRIC": message.ByteSize()}


def test_what_has_no_class_shows_as_unspecified() -> None:
    """A field without the option and a field that this version does not know are both accounted."""
    unclassed = Outer(unclassed=5)
    assert bytes_by_class(unclassed) == {"DISCLOSURE_UNSPECIFIED": 2}
    unknown = Inner.FromString(Outer(single=1.0, label="x").SerializeToString())
    assert bytes_by_class(unknown) == {"CIPHERTEXT": 3, "DISCLOSURE_UNSPECIFIED": 5}


_inners = st.recursive(
    st.builds(Inner, block=st.binary(max_size=200), count=st.integers(0, 2**64 - 1)),
    lambda deeper: st.builds(Inner, block=st.binary(max_size=3), next=deeper),
    max_leaves=3,
)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "label": st.text(max_size=150),
            "inner": _inners,
            "inners": st.lists(_inners, max_size=3),
            "packed": st.lists(st.integers(0, 2**32 - 1), max_size=70),
            "weights": st.lists(st.floats(), max_size=20),
            "blocks": st.lists(st.binary(max_size=5), max_size=5),
            "names": st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1), max_size=3),
            "by_name": st.dictionaries(st.text(max_size=5), _inners, max_size=3),
            "single": st.floats(width=32),
            "fixed": st.integers(0, 2**64 - 1),
            "unclassed": st.integers(-(2**31), 2**31 - 1),
        },
    )
)
def test_classes_add_up_to_the_size(fields: dict[str, object]) -> None:
    """Whatever is set, the sum over the classes is ByteSize() exactly."""
    message = Outer(**fields)
    assert sum(bytes_by_class(message).values()) == message.ByteSize()


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_malformed(content: bytes) -> None:
    """The accounting of raw bytes ends with counts that add up or with Malformed."""
    try:
        counts = bytes_by_class_of(content, Outer)
    except Malformed:
        return
    assert sum(counts.values()) == len(content)


def test_every_field_of_the_record_is_control_and_documented(tmp_path: Path) -> None:
    """The log never leaves its party; its table has one commented row per field, map entries left out."""
    pytest.importorskip("grpc_tools")
    protos = Path(__file__).parents[3] / "protos"
    target = tmp_path / "sources.bin"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{protos}", "--include_source_info"),
            *(f"--descriptor_set_out={target}", "treetap/wire/v2/transcript.proto"),
        ],
        check=True,
    )
    said = comments(FileDescriptorSet.FromString(target.read_bytes()))
    name = TranscriptRecord.DESCRIPTOR.full_name
    table = [row for row in disclosure_table([transcript_pb2.DESCRIPTOR]) if row.message == name]
    assert [row.field for row in table] == [field.name for field in TranscriptRecord.DESCRIPTOR.fields]
    assert {row.disclosure for row in table} == {"CONTROL"}
    texts = [said[f"{row.message}.{row.field}"] for row in table]
    assert texts[4] == 'Name of the protocol\'s step or message, for example "gradients".'
    assert all(texts)


def test_fields_without_a_class_are_found() -> None:
    """The one unclassed field is named; entries of maps, which the compiler makes, are not."""
    rows = list(disclosure_table([FILE]))
    assert [row.field for row in rows if row.disclosure == UNSPECIFIED] == ["unclassed"]
    fields = FILE.message_types_by_name["Outer"].fields_by_name
    assert class_of(fields["unclassed"]) == 0
    assert class_of(fields["packed"]) == reveals_pb2.INSTANCE_SPACE
    assert rows[0] == DisclosureRow("treetap_tests.Inner", "block", "CIPHERTEXT")
