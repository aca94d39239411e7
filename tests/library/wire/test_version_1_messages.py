"""Messages of version 1 as messages of today: field by field where bytes are kept, by samples where they are not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from treetap.errors import Malformed
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import prediction_name, training_name
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire import v1
from treetap.wire.frame import PATHS, content_of, name_of
from treetap.wire.generated import message_class
from treetap.wire.transcript import open_message, type_of
from treetap.wire.v1.convert import CHANGED, PACKAGE, RENAMED, descriptors, name_today, upgraded
from treetap.wire.v2 import control_pb2, exchange_pb2, prediction_pb2, setup_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

FROZEN = Path(v1.__path__[0]) / "descriptors.binpb"
#: Version 1 as it was when version 2 replaced it.
DIGEST = "b8bbd0095aa21cabafa1a81b9f487ca93df5c258802455696cc230be563218df"
#: Fields of messages whose bytes are kept that have another name today.
RENAMED_FIELDS = {
    "Binned.trees": "rounds",
    "ColumnWay.turns": "branches",
    "JobStatus.depth": "stage",
    "JobStatus.tree": "round",
    "JobStatus.trees": "rounds",
    "LeafPath.turns": "branches",
    "Prepared.stored_trees": "stored_rounds",
    "TranscriptRecord.level": "stage",
    "TranscriptRecord.tree": "round",
}
#: Fields that no message has today; version 1 never stored them, or nothing reads them.
REMOVED_FIELDS = {"WrittenPredictions.metrics", "ApplySplits.decisions", "Decision.candidates"}
#: Frame of version 1 → its oneof, and the frame of today.
FRAMES = {
    "StepRequest": ("step", control_pb2.StepRequest),
    "StepResult": ("result", control_pb2.StepResult),
    "Parcel": ("body", exchange_pb2.PeerMessage),
}


def _types() -> dict[str, Descriptor]:
    """Name → type, of all messages of version 1."""
    files = descriptor_pb2.FileDescriptorSet.FromString(FROZEN.read_bytes()).file
    found: dict[str, Descriptor] = {}
    for file in files:
        if file.package == "treetap.wire.v1":
            found |= descriptors().FindFileByName(file.name).message_types_by_name
    return found


TYPES = _types()


def _number(message: str, field: str) -> int:
    return TYPES[message].fields_by_name[field].number


def _in_field(number: int, content: bytes) -> bytes:
    """A field of bytes or of a message, as the wire has it."""
    key = number << 3 | 2
    return bytes([key & 0x7F | 0x80, key >> 7, len(content)] if key > 0x7F else [key, len(content)]) + content


CONTENTS = [
    (frame, field.name) for frame, (oneof, _) in FRAMES.items() for field in TYPES[frame].oneofs_by_name[oneof].fields
]


def _new(name: str, **fields: Any) -> Any:
    """A message of version 1."""
    return message_factory.GetMessageClass(TYPES[name])(**fields)


def _filled(message: Any, seed: int = 1) -> Any:
    """The message with something in each of its fields; of a oneof the last field stays."""
    for number, field in enumerate(message.DESCRIPTOR.fields, start=seed):
        if f"{message.DESCRIPTOR.name}.{field.name}" in REMOVED_FIELDS:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[f"key-{number}"] = number
        elif field.message_type is not None:
            inner = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
            inner.SetInParent()
            _filled(inner, number + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend([_value(field, number), _value(field, number + 1)])
        else:
            setattr(message, field.name, _value(field, number))
    return message


def _value(field: FieldDescriptor, number: int) -> Any:
    kinds = {
        FieldDescriptor.CPPTYPE_STRING: f"text-{number}".encode()
        if field.type == FieldDescriptor.TYPE_BYTES
        else f"text-{number}",
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_DOUBLE: number + 0.5,
        FieldDescriptor.CPPTYPE_ENUM: 1,
    }
    return kinds.get(field.cpp_type, number)


def _upgraded(message: Message) -> Any:
    return upgraded(message.DESCRIPTOR.full_name, message.SerializeToString())


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _shape(field: FieldDescriptor) -> tuple[Any, ...]:
    """The parts of a field that decide its bytes, and the oneof that it is in."""
    inner = field.message_type
    return (
        field.number,
        field.type,
        field.is_repeated,
        field.is_packed,
        field.has_presence,
        field.containing_oneof and field.containing_oneof.name,
        inner and name_today(inner.full_name),
    )


def _values(field: FieldDescriptor) -> set[tuple[str, int]]:
    return {(value.name, value.number) for value in field.enum_type.values} if field.enum_type else set()


def _fields(descriptor: Descriptor) -> Iterator[tuple[str, FieldDescriptor]]:
    for field in descriptor.fields:
        if f"{descriptor.name}.{field.name}" not in REMOVED_FIELDS:
            yield RENAMED_FIELDS.get(f"{descriptor.name}.{field.name}", field.name), field


def test_version_1_is_frozen() -> None:
    """The set of descriptors is the one that was made before version 2, and holds all files."""
    assert hashlib.sha256(FROZEN.read_bytes()).hexdigest() == DIGEST
    assert len(TYPES) == 120
    assert TYPES.keys() >= CHANGED.keys() | RENAMED.keys() | {name.partition(".")[0] for name in RENAMED_FIELDS}


@pytest.mark.parametrize("name", sorted(TYPES.keys() - CHANGED.keys()))
def test_bytes_that_are_kept_say_the_same(name: str) -> None:
    """Number, type, label, name and values of each field, so that today's message reads the bytes of version 1.

    Fields that came later have numbers above all of those.
    """
    before = TYPES[name]
    today: Any = message_class(name_today(before.full_name)).DESCRIPTOR
    last = max((field.number for field in before.fields), default=0)
    kept = {it.name: _shape(it) for it in today.fields if it.number <= last}
    assert {field: _shape(it) for field, it in _fields(before)} == kept
    assert all(_values(it) <= _values(today.fields_by_name[field]) for field, it in _fields(before))
    inner = {field.message_type.name for field in before.fields if field.message_type is not None}
    assert not inner & CHANGED.keys()
    sample = _filled(_new(name))
    assert _bytes(_upgraded(sample)) == _bytes(sample)


@pytest.mark.parametrize(("frame", "name"), CONTENTS)
def test_contents_keep_their_names(frame: str, name: str) -> None:
    """Every step, result and body comes back under its name, with the fields of its frame."""
    where = {field.name for field in TYPES[frame].fields if field.containing_oneof is None}
    sample = _new(frame, **{field: _value(TYPES[frame].fields_by_name[field], 7) for field in where})
    content = getattr(sample, name)
    content.SetInParent()
    if content.DESCRIPTOR.name not in CHANGED:
        _filled(content)
    found = _upgraded(sample)
    assert type(found) is FRAMES[frame][1]
    assert name_of(found) == name
    assert _bytes(content_of(found, name)) == _bytes(content)
    today = {"tree": "round", "level": "stage"}
    for field in where:
        assert getattr(found, today.get(field, field)) == getattr(sample, field) != 0


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_without_a_content_are_read(frame: str) -> None:
    """A frame that holds nothing, as an empty record does."""
    assert _upgraded(_new(frame)) == FRAMES[frame][1]()


def test_all_contents_of_version_1_are_contents_of_today() -> None:
    """None is left out above."""
    assert len(CONTENTS) == 39 + 12 + 26
    for frame, (_, today) in FRAMES.items():
        assert {name for kind, name in CONTENTS if kind == frame} <= PATHS[today].keys()


def _spec(protocol: str, **params: Any) -> Any:
    job = {"table": "t", "label_holder": "a", "feature_parties": ["b", "c"], "key_bits": 2048, "alignment": "psi"}
    return _new("JobSpec", protocol=protocol, obfuscation="standard", **job, **{protocol: params} if protocol else {})


BOOSTING = {
    "objective": "reg:squarederror",
    "n_estimators": 7,
    "max_depth": 4,
    "max_bin": 16,
    "learning_rate": 0.25,
    "reg_lambda": 2.0,
    "gamma": 0.5,
    "min_child_weight": 3.0,
    "subsample": 0.75,
    "colsample_bytree": 0.5,
    "multi_strategy": "multi_output_tree",
    "base_score": 0.125,
    "early_stopping_rounds": 2,
    "validation_share": 0.3,
    "missing": -999.0,
    "seed": 11,
}
FOREST = {
    "criterion": "squared_error",
    "n_estimators": 5,
    "max_depth": 6,
    "max_bin": 8,
    "subsample": 0.5,
    "bootstrap": True,
    "colsample_bytree": 0.25,
    "min_samples_leaf": 4,
    "binning": "per-node",
    "missing": 0.0,
    "seed": 3,
}


@pytest.mark.parametrize(
    ("protocol", "params", "kind"), [("boosting", BOOSTING, BoostingParams), ("forest", FOREST, ForestParams)]
)
def test_parameters_of_a_training(protocol: str, params: dict[str, Any], kind: type[Any]) -> None:
    """Each parameter, the chances to drop out included, and all else that a job says."""
    assert {*params, "party_dropout"} == {field.name for field in TYPES[kind.__name__].fields}
    before = _spec(protocol, **params, party_dropout=[{"name": "b", "amount": 0.125}, {"name": "c", "amount": 0.5}])
    spec = _upgraded(before)
    assert training_name(spec) == protocol
    assert params_of(spec) == kind(**params, party_dropout={"b": 0.125, "c": 0.5})
    assert spec.aggregator == before.label_holder
    for field in ("table", "feature_parties", "key_bits", "obfuscation", "alignment"):
        assert getattr(spec, field) == getattr(before, field)
    prepared = _upgraded(_new("StepRequest", job="j", prepare={"spec": before, "submission": "s", "peers": [{}]}))
    assert prepared.setup.prepare == setup_pb2.Prepare(spec=spec, submission="s", peers=[{}])


def test_parameters_that_were_not_given_stay_absent() -> None:
    """None and NaN had no field on the wire, and 0 none either."""
    optional = ("base_score", "early_stopping_rounds", "missing")
    spec = _upgraded(_spec("boosting", **{name: value for name, value in BOOSTING.items() if name not in optional}))
    params = params_of(spec)
    assert isinstance(params, BoostingParams)
    assert (params.base_score, params.early_stopping_rounds) == (None, None)
    assert not spec.parameters.boosting.trees.HasField("missing")
    spec = _upgraded(_spec("forest", **FOREST | {"seed": 0, "bootstrap": False}))
    params = params_of(spec)
    assert isinstance(params, ForestParams)
    assert (params.seed, params.bootstrap, params.missing) == (0, False, 0.0)


@pytest.mark.parametrize(
    ("protocol", "field", "options"),
    [
        ("interactive", "interactive", {"form": "per-tree"}),
        ("eini", "eini", {"key_bits": 1024, "obfuscation": "half-length"}),
        ("eini-lattice", "lattice", {}),
    ],
)
def test_options_of_a_prediction(protocol: str, field: str, options: dict[str, Any]) -> None:
    """The protocol and its options, and all that every prediction says."""
    before = _filled(_new("OpenModel"))
    for name in ("form", "key_bits", "obfuscation"):
        before.ClearField(name)
    before.MergeFrom(_new("OpenModel", protocol=protocol, **options))
    before.protocol = protocol
    opening = _upgraded(before)
    assert isinstance(opening, prediction_pb2.OpenModel)
    assert prediction_name(opening) == protocol
    assert opening.parameters.WhichOneof("protocol") == field
    assert {it.name: value for it, value in getattr(opening.parameters, field).ListFields()} == options
    moved = {"protocol", "form", "key_bits", "obfuscation"}
    for it in TYPES["OpenModel"].fields:
        if it.name not in moved:
            today = "recipient" if it.name == "label_holder" else it.name
            assert str(getattr(opening, today)) == str(getattr(before, it.name))
    asked = _upgraded(_new("StepRequest", open_model=before))
    assert asked.prediction.open_model == opening


def test_what_version_1_never_wrote_is_malformed() -> None:
    """A protocol that there was none of, a call that was never stored, and a type that version 1 did not have."""
    with pytest.raises(Malformed, match="names the protocol 'split', which did not train"):
        _upgraded(_new("JobSpec", protocol="split"))
    with pytest.raises(Malformed, match="names the protocol 'split', which did not predict"):
        _upgraded(_new("OpenModel", protocol="split"))
    with pytest.raises(Malformed, match="names the protocol 'forest' and has parameters of boosting"):
        _upgraded(_new("JobSpec", protocol="forest", boosting={}, forest={}))
    with pytest.raises(Malformed, match="names the protocol '' and has parameters of boosting"):
        _upgraded(_new("JobSpec", boosting={}))
    for name in ("SubmitRequest", "PredictRequest", "StepEvent"):
        with pytest.raises(Malformed, match=f"wrote no treetap.wire.v1.{name} to a file"):
            _upgraded(_new(name))
    with pytest.raises(Malformed, match=r"record 4: this version knows no type 'treetap\.wire\.v1\.PeerMessage'"):
        open_message(TranscriptRecord(sequence=4, message_type=f"{PACKAGE}PeerMessage"))
    with pytest.raises(Malformed, match=r"record 4: its bytes are no treetap\.wire\.v1\.Parcel"):
        open_message(TranscriptRecord(sequence=4, message_type=f"{PACKAGE}Parcel", message=b"\x0a\x09"))


@pytest.mark.parametrize(
    ("inside", "wrapped"),
    [
        ("treetap.wire.v1.Parcel has", lambda unknown: unknown),
        ("treetap.wire.v1.Children has", lambda unknown: _in_field(_number("Parcel", "children"), unknown)),
    ],
)
def test_fields_that_version_1_did_not_have_are_not_lost(inside: str, wrapped: Callable[[bytes], bytes]) -> None:
    """Forged bytes are refused; read as today's message they might mean something, or nothing."""
    forged = wrapped(_in_field(99, b"more"))
    with pytest.raises(Malformed, match=f"{inside} no field 99 in version 1"):
        open_message(TranscriptRecord(message_type=f"{PACKAGE}Parcel", message=forged))


@pytest.mark.parametrize("before", [_new("Parcel", job="j"), _new("OwnSplit", node=3)])
def test_a_record_of_either_version_has_the_type_of_today(before: Message) -> None:
    """Readers ask what a message is, whichever version wrote it."""
    record = TranscriptRecord(message_type=before.DESCRIPTOR.full_name, message=before.SerializeToString())
    found = open_message(record)
    assert type_of(record) == found.DESCRIPTOR.full_name
    again = TranscriptRecord(message_type=found.DESCRIPTOR.full_name, message=found.SerializeToString())
    assert (type_of(again), open_message(again)) == (type_of(record), found)
