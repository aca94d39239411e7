"""The log of a party: its chain shows every change, a kill leaves it readable, and each byte has its class."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool, message_factory, struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue, StringValue
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.errors import BadInput, Interrupted, Malformed, Refused
from treetap.wire import transcript
from treetap.wire.disclosure import (
    DisclosureRow,
    bytes_by_class,
    bytes_by_class_of,
    class_of,
    disclosure_table,
    undeclared,
)
from treetap.wire.transcript import HEADER, TranscriptReader, TranscriptWriter, open_message, summarise
from treetap.wire.v1 import reveals_pb2, transcript_pb2
from treetap.wire.v1.transcript_pb2 import TranscriptRecord

RECEIVED, SENT, OWN = TranscriptRecord.RECEIVED, TranscriptRecord.SENT, TranscriptRecord.OWN
_F = FieldDescriptorProto


def _sample_file() -> FileDescriptorProto:
    """A message with every form of field: scalar, packed, repeated, nested, map, oneof, foreign, unclassed."""
    file = FileDescriptorProto(name="treetap_tests/sample.proto", package="treetap_tests", syntax="proto3")
    file.dependency.extend(["treetap/wire/v1/reveals.proto", "google/protobuf/struct.proto"])

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
_POOL.AddSerializedFile(_sample_file().SerializeToString())
_FILE = _POOL.FindFileByName("treetap_tests/sample.proto")


def _type(name: str) -> type[Message]:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"treetap_tests.{name}"))


Inner, Outer = _type("Inner"), _type("Outer")

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
    protos = Path(__file__).parents[2] / "protos"
    target = tmp_path / "sources.bin"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{protos}", "--include_source_info"),
            *(f"--descriptor_set_out={target}", "treetap/wire/v1/transcript.proto"),
        ],
        check=True,
    )
    table = disclosure_table([transcript_pb2.DESCRIPTOR], FileDescriptorSet.FromString(target.read_bytes()))
    assert [row.field for row in table] == [field.name for field in TranscriptRecord.DESCRIPTOR.fields]
    assert {(row.message, row.disclosure) for row in table} == {("treetap.wire.v1.TranscriptRecord", "CONTROL")}
    assert table[4].comment == 'Step of the protocol in one word, for example "gradients".'
    assert all(row.comment for row in table)
    assert undeclared([transcript_pb2.DESCRIPTOR]) == []


def test_fields_without_a_class_are_found() -> None:
    """The one unclassed field is named; entries of maps, which the compiler makes, are not."""
    assert undeclared([_FILE]) == ["treetap_tests.Outer.unclassed"]
    fields = _FILE.message_types_by_name["Outer"].fields_by_name
    assert class_of(fields["unclassed"]) == 0
    assert class_of(fields["packed"]) == reveals_pb2.INSTANCE_SPACE
    assert disclosure_table([_FILE])[0] == DisclosureRow("treetap_tests.Inner", "block", "CIPHERTEXT", "")


# --- the log


def _log(folder: Path, *texts: str, rotate_bytes: int = 1_000_000) -> None:
    with TranscriptWriter(folder, rotate_bytes) as writer:
        for text in texts:
            writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, StringValue(value=text))


def _texts(path: Path) -> list[str]:
    return [StringValue.FromString(record.message).value for record in TranscriptReader(path)]


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_record_carries_what_was_logged(tmp_path: Path) -> None:
    """Every argument comes back, with the clock's time, the type's name and the classes of the bytes."""
    message = Inner(block=b"xyz", count=1)
    with TranscriptWriter(tmp_path / "log", clock=lambda: 17) as writer:
        writer.append(SENT, "bank", "gradients", "j1", 2, 5, 3, message)
        writer.append(OWN, "", "split", "j1", 2, 5, 3, Inner())
    first, second = TranscriptReader(tmp_path / "log")
    assert first == TranscriptRecord(
        sequence=0,
        unix_nanos=17,
        kind=SENT,
        peer="bank",
        step="gradients",
        job="j1",
        attempt=2,
        tree=5,
        level=3,
        message_type="treetap_tests.Inner",
        message=message.SerializeToString(),
        bytes_by_class={"CIPHERTEXT": 5, "CONTROL": 2},
        previous=bytes(32),
    )
    assert second.sequence == 1
    assert len(second.previous) == len(hashlib.sha256().digest())
    assert open_message(first) == message


def test_files_are_for_their_owner_and_begin_with_magic_and_version(tmp_path: Path) -> None:
    """A transcript holds what its party learned: folder and files are closed to others."""
    _log(tmp_path / "log", "a")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "log" / "000001.tap").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "log" / "000001.tap").read_bytes().startswith(b"treetap transcript 1\n")


def test_files_rotate_and_read_as_one(tmp_path: Path) -> None:
    """No file exceeds the limit but one that holds a single larger record; the chain runs on across files."""
    texts = [os.urandom(60).hex() for _ in range(9)] + [os.urandom(2_000).hex(), "after"]
    _log(tmp_path, *texts, rotate_bytes=700)
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(sizes) > 4
    assert sum(size > 700 for size in sizes) == 1
    assert _texts(tmp_path) == texts
    assert _texts(tmp_path / "000002.tap") == texts[len(_texts(tmp_path / "000001.tap")) :][:2]


def test_a_restart_continues_the_chain_in_a_new_file(tmp_path: Path) -> None:
    """Numbers and digests go on; a start that logs nothing does no harm."""
    _log(tmp_path, "a", "b")
    _log(tmp_path)
    _log(tmp_path, "c")
    assert _files(tmp_path) == ["000001.tap", "000002.tap", "000003.tap"]
    assert [record.sequence for record in TranscriptReader(tmp_path)] == [0, 1, 2]
    assert _texts(tmp_path) == ["a", "b", "c"]


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second writer would fork the chain: it is refused until the first one closes."""
    with TranscriptWriter(tmp_path) as writer:
        with pytest.raises(BadInput, match="another process writes this transcript"):
            TranscriptWriter(tmp_path)
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="a"))
    writer.close()
    _log(tmp_path, "b")
    assert _texts(tmp_path) == ["a", "b"]


def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    """Records from four threads make one unbroken chain."""
    with TranscriptWriter(tmp_path, rotate_bytes=4_000) as writer:

        def run(name: str) -> None:
            for k in range(50):
                writer.append(RECEIVED, name, "s", "j", 1, 0, k, StringValue(value=name))

        threads = [threading.Thread(target=run, args=(f"t{k}",)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(_texts(tmp_path)) == sorted(f"t{k}" for k in range(4) for _ in range(50))


def test_secrets_are_refused(tmp_path: Path) -> None:
    """A type whose name says secret, and one that can hold such a type, are not logged."""
    with TranscriptWriter(tmp_path) as writer:
        for name in ("SecretKeyOfSomeone", "Carrier"):
            with pytest.raises(Refused, match="SecretKeyOfSomeone: a type whose name says secret"):
                writer.append(OWN, "", "s", "j", 1, 0, 0, _type(name)())
    assert _texts(tmp_path) == []


def test_a_record_cut_anywhere_at_the_end_is_torn_and_the_rest_is_read(tmp_path: Path) -> None:
    """For every length at which a kill may leave the file: whole records read, torn is reported, writing goes on."""
    _log(tmp_path / "whole", "a", "b")
    whole = (tmp_path / "whole" / "000001.tap").read_bytes()
    ends = _record_ends(whole)
    for length in range(len(whole)):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / "000001.tap").write_bytes(whole[:length])
        kept = ["a", "b"][: sum(end <= length for end in ends)]
        reader = TranscriptReader(folder)
        assert [StringValue.FromString(record.message).value for record in reader] == kept
        assert reader.torn == (length not in (len(HEADER), *ends))
        if length % 7 == 0:
            _log(folder, "c")
            assert _texts(folder) == [*kept, "c"]
            assert TranscriptReader(folder).torn == reader.torn


def test_a_killed_writer_leaves_a_log_that_reads_and_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing loses nothing that append had returned from."""
    code = (
        "import sys, os; from pathlib import Path; from treetap.wire.transcript import TranscriptWriter as W\n"
        "from google.protobuf.wrappers_pb2 import BytesValue as V\n"
        f"w = W(Path({str(tmp_path)!r}), rotate_bytes=300_000); k = 0\n"
        "while True:\n"
        "    w.append(1, 'p', 's', 'j', 1, 0, k, V(value=os.urandom(50_000))); k += 1; os.write(1, b'.')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        returned = len(process.stdout.read(12))
        process.send_signal(signal.SIGKILL)
        returned += len(process.stdout.read())
    _log(tmp_path, "after")
    records = list(TranscriptReader(tmp_path))
    assert [record.sequence for record in records] == list(range(len(records)))
    assert len(records) - 1 in (returned, returned + 1)


def test_no_changed_bit_goes_unnoticed(tmp_path: Path) -> None:
    """For every bit of a file: reading is Malformed with file and offset, or every record is what it was."""
    _log(tmp_path, "alpha", "beta")
    path = tmp_path / "000001.tap"
    whole = path.read_bytes()
    ends = _record_ends(whole)
    told = list(TranscriptReader(tmp_path))
    unchanged = 0
    for place in range(len(whole)):
        begin = max(offset for offset in (0, len(HEADER), ends[0]) if offset <= place)
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            outcome = _read_or_complaint(tmp_path)
            assert outcome == told or str(outcome).startswith(f"{path}: byte {begin}: ")
            unchanged += outcome == told
    assert unchanged <= 2 * 8  # bits that zstd's format leaves unused


def _read_or_complaint(path: Path) -> list[TranscriptRecord] | str:
    try:
        return list(TranscriptReader(path))
    except Malformed as error:
        return str(error)


def _cut_the_middle(folder: Path) -> str:
    content = (folder / "000002.tap").read_bytes()
    end, _ = _record_ends(content)
    (folder / "000002.tap").write_bytes(content[: len(HEADER)] + content[end:])
    return f"000002.tap: byte {len(HEADER)}: record 3 does not follow record 1"


def _cut_the_end_of_a_file(folder: Path) -> str:
    content = (folder / "000002.tap").read_bytes()
    (folder / "000002.tap").write_bytes(content[: _record_ends(content)[0]])
    return f"000003.tap: byte {len(HEADER)}: record 4 does not follow record 2"


def _remove_a_file(folder: Path) -> str:
    (folder / "000002.tap").unlink()
    return "000003.tap: byte 0: the file 000002.tap before it is missing"


def _remove_the_first_file(folder: Path) -> str:
    (folder / "000001.tap").unlink()
    return "000002.tap: byte 0: the file 000001.tap before it is missing"


def _remove_and_rename(folder: Path) -> str:
    (folder / "000002.tap").unlink()
    (folder / "000003.tap").rename(folder / "000002.tap")
    return f"000002.tap: byte {len(HEADER)}: record 4 does not follow record 1"


def _replace_a_record(folder: Path) -> str:
    """Another log's record of the same number and size."""
    _log(folder / "other", "a", "x")
    _log(folder / "other", "c", "d")
    (folder / "other" / "000001.tap").rename(folder / "000001.tap")
    return f"000002.tap: byte {len(HEADER)}: record 2 does not follow record 1"


def _swap_records(folder: Path) -> str:
    content = (folder / "000003.tap").read_bytes()
    first, _ = _record_ends(content)
    (folder / "000003.tap").write_bytes(HEADER + content[first:] + content[len(HEADER) : first])
    return f"000003.tap: byte {len(HEADER)}: record 5 does not follow record 3"


def _another_version(folder: Path) -> str:
    (folder / "000002.tap").write_bytes(b"treetap transcript 2\n")
    return "000002.tap: byte 0: not a treetap transcript, or one of another version"


@pytest.mark.parametrize(
    "tamper",
    [
        _cut_the_middle,
        _cut_the_end_of_a_file,
        _remove_a_file,
        _remove_the_first_file,
        _remove_and_rename,
        _replace_a_record,
        _swap_records,
        _another_version,
    ],
)
def test_what_was_removed_moved_or_replaced_shows(tmp_path: Path, tamper: Callable[[Path], str]) -> None:
    """Each way to falsify a log of three files is Malformed at the file and byte where the chain breaks."""
    for pair in ("ab", "cd", "ef"):
        _log(tmp_path, *pair)
    assert _texts(tmp_path) == list("abcdef")
    expected = tamper(tmp_path)
    with pytest.raises(Malformed) as caught:
        list(TranscriptReader(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/{expected}")


def test_a_writer_does_not_go_on_from_damage(tmp_path: Path) -> None:
    """Continuing after a changed record would give the change a place in the chain."""
    _log(tmp_path, "a")
    path = tmp_path / "000001.tap"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    with pytest.raises(Malformed, match=rf"{path}: byte {len(HEADER)}: the record is damaged"):
        TranscriptWriter(tmp_path)
    assert _files(tmp_path) == ["000001.tap"]


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed record is taken back and named; once there is space the log goes on without a break."""
    real = transcript._write_all
    with TranscriptWriter(tmp_path) as writer:

        def fill(file: object, *parts: bytes) -> None:
            real(file, *(part[:3] for part in parts))  # type: ignore[arg-type]
            raise OSError(28, "No space left on device")

        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="a"))
        with monkeypatch.context() as patched:
            patched.setattr(transcript, "_write_all", fill)
            with pytest.raises(Interrupted, match=r"000001\.tap: cannot write the transcript: No space left"):
                writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="b"))
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, StringValue(value="c"))
    assert _texts(tmp_path) == ["a", "c"]


def test_unusable_paths_are_told(tmp_path: Path) -> None:
    """No transcript, and a folder that cannot be one, are the person's input."""
    with pytest.raises(BadInput, match="no such transcript"):
        TranscriptReader(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot hold a transcript"):
        TranscriptWriter(tmp_path / "file" / "log")


def test_messages_open_without_importing_their_module() -> None:
    """A reader needs no list of modules: the wire's types are found by name; others are told."""
    code = (
        "import sys; from treetap.wire.transcript import open_message, TranscriptRecord\n"
        "message = open_message(TranscriptRecord(message_type='treetap.wire.v1.RecordChunk'))\n"
        "print(type(message).__name__, 'grpc' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["RecordChunk", "False"]
    with pytest.raises(Malformed, match=r"record 4: this version knows no type 'treetap\.Nothing'"):
        open_message(TranscriptRecord(sequence=4, message_type="treetap.Nothing"))
    with pytest.raises(Malformed, match=r"record 4: its bytes are no treetap_tests\.Inner"):
        open_message(TranscriptRecord(sequence=4, message_type="treetap_tests.Inner", message=b"\x0a\x09"))


def test_a_summary_counts_by_kind_peer_step_and_class(tmp_path: Path) -> None:
    """Messages are those that carried the class; bytes are those of the class; times are the first and the last."""
    clock = iter(range(100, 200))
    with TranscriptWriter(tmp_path, clock=lambda: next(clock)) as writer:
        for block in (b"", b"x", b"yz"):
            writer.append(RECEIVED, "bank", "gradients", "j", 1, 0, 0, Inner(block=block, count=1))
        writer.append(SENT, "bank", "sums", "j", 1, 0, 0, Outer(blocks=[b"abc"]))
    with (tmp_path / "000001.tap").open("ab") as file:
        file.write(b"\x00")
    row = ("kind", "peer", "step", "class", "messages", "bytes")
    assert summarise(tmp_path) == {
        "records": 4,
        "first_unix_nanos": 100,
        "last_unix_nanos": 103,
        "torn": True,
        "rows": [
            dict(zip(row, ("received", "bank", "gradients", "CIPHERTEXT", 2, 7), strict=True)),
            dict(zip(row, ("received", "bank", "gradients", "CONTROL", 3, 6), strict=True)),
            dict(zip(row, ("sent", "bank", "sums", "CANDIDATE_SUM", 1, 5), strict=True)),
        ],
    }
    (tmp_path / "empty").mkdir()
    assert summarise(tmp_path / "empty")["first_unix_nanos"] is None


def test_large_ciphertexts_come_back_whole(tmp_path: Path) -> None:
    """Twelve megabytes that do not compress take up hardly more on disk and read back equal."""
    block = os.urandom(12_000_000)
    with TranscriptWriter(tmp_path) as writer:
        writer.append(RECEIVED, "p", "s", "j", 1, 0, 0, BytesValue(value=block))
    (record,) = TranscriptReader(tmp_path)
    opened = open_message(record)
    assert isinstance(opened, BytesValue)
    assert opened.value == block
    assert (tmp_path / "000001.tap").stat().st_size < 12_010_000


def _record_ends(content: bytes) -> list[int]:
    ends, at = [], len(HEADER)
    while at < len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "big")
        ends.append(at)
    return ends
