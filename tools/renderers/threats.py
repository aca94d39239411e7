"""The disclosure classes in docs/threats.md, and docs/reference/messages.md: every field of every message.

Classes come from the generated descriptors; readers from the services that carry a message; comments from the .proto
files by way of protoc, which needs grpcio-tools. The files are those of the folder: the two frames first, each file
after those that it imports.
"""

from __future__ import annotations

import importlib
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from importlib import resources
from itertools import groupby
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from tools.renderers.rendering import ROOT, with_tables
from treetap.wire.disclosure import CLASSES, UNSPECIFIED, disclosure_table

PROTOS = ROOT / "protos"
PACKAGE = "treetap.wire.v2"
#: Files that come first, after what they import.
FRAMES = ("control", "exchange")
#: Service → who reads its requests, who reads its responses.
READERS = {
    "Exchange": ("party ← party", "party ← party"),
    "Control": ("party ← coordinator", "coordinator ← party"),
    "Jobs": ("coordinator ← operator", "operator ← coordinator"),
    "Approvals": ("party ← approver", "approver ← party"),
    "Overview": ("party ← approver", "approver ← party"),
    "Serving": ("label holder ← client", "client ← label holder"),
}
OWN_LOG = "its own party alone (own log)"


MESSAGES = """# Messages

Every field of every message, with its disclosure class: what its reader learns
([the classes](../threats.md#disclosure-classes)). This page is for an auditor who reads a
[transcript](../transcript.md) or checks what a policy lets out. It is generated from the files below `protos/`, one
section for each.

*Read by* says at which end a message arrives: `party ← coordinator` is read by a party and comes from the coordinator.
A message that holds others is read by the same.

"""


def rendered(docs: Path) -> dict[Path, str]:
    """The pages."""
    files = descriptors()
    return {
        **with_tables({"classes": class_table(files)}, docs),
        docs / "reference" / "messages.md": MESSAGES + field_tables(files).rstrip() + "\n",
    }


def class_table(files: list[FileDescriptor]) -> str:
    """The classes in Markdown: each that a message carries, who reads such messages, and to whom parties send it."""
    readers = readers_of(files)
    carried: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for row in disclosure_table(files):
        carried[row.disclosure].update(dict.fromkeys(readers.get(row.message) or [OWN_LOG]))
    lines = ["| class | what its reader learns | read by | sent by default to |", "|---|---|---|---|"]
    for name, declared in CLASSES.items():
        if name in carried:
            receivers = ", ".join(f"`{each}`" for each in declared.default_receivers) or "no receiver"
            lines.append(f"| {name} | {declared.tells} | {', '.join(carried[name])} | {receivers} |")
    return "\n".join(lines) + "\n"


def field_tables(files: list[FileDescriptor]) -> str:
    """The fields in Markdown, a table for each file, the message named on its first line only.

    ValueError for a field without a class.
    """
    if missing := [f"{row.message}.{row.field}" for row in disclosure_table(files) if row.disclosure == UNSPECIFIED]:
        raise ValueError(f"no disclosure class: {', '.join(missing)}")
    readers, held, said = readers_of(files), _files_of(files), comments(sources())
    lines = []
    for stem, of_file in groupby(disclosure_table(files), key=lambda row: held[row.message]):
        lines += [f"## {stem}.proto", "", "| message | field | class | read by | meaning |", "|---|---|---|---|---|"]
        for message, rows in groupby(of_file, key=lambda row: row.message):
            who = ", ".join(readers.get(message) or [OWN_LOG])
            name = f"`{message.removeprefix(PACKAGE + '.')}`"
            for row in rows:
                comment = said.get(f"{row.message}.{row.field}", "").replace("|", "\\|").replace("<", "&lt;")
                lines.append(f"| {name} | `{row.field}` | {row.disclosure} | {who} | {comment} |")
                name = who = ""
        lines.append("")
    return "\n".join(lines)


def comments(sources: FileDescriptorSet) -> dict[str, str]:
    """Full name of a field → its comment in the .proto file, on one line.

    Generated Python code carries none: they come from the output of `protoc --include_source_info
    --descriptor_set_out`. Paths of source locations are those of descriptor.proto.
    """
    found: dict[str, str] = {}
    for file in sources.file:
        texts = {
            tuple(place.path): " ".join((place.leading_comments or place.trailing_comments).split())
            for place in file.source_code_info.location
        }
        for k, message in enumerate(file.message_type):
            found.update(_field_comments(message, file.package, (file.MESSAGE_TYPE_FIELD_NUMBER, k), texts))
    return found


def _field_comments(
    message: DescriptorProto, scope: str, path: tuple[int, ...], texts: dict[tuple[int, ...], str]
) -> Iterator[tuple[str, str]]:
    name = f"{scope}.{message.name}"
    for k, field in enumerate(message.field):
        yield f"{name}.{field.name}", texts.get((*path, DescriptorProto.FIELD_FIELD_NUMBER, k), "")
    for k, nested in enumerate(message.nested_type):
        yield from _field_comments(nested, name, (*path, DescriptorProto.NESTED_TYPE_FIELD_NUMBER, k), texts)


def _files_of(files: list[FileDescriptor]) -> dict[str, str]:
    """Full name of a message → the stem of its file."""
    found = {}
    for file in files:
        pending = list(file.message_types_by_name.values())
        while pending:
            message = pending.pop()
            found[message.full_name] = Path(file.name).stem
            pending += message.nested_types
    return found


def descriptors() -> list[FileDescriptor]:
    """The descriptors of all .proto files, each after those that it imports."""
    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for imported in file.dependencies:
            if imported.package == PACKAGE:
                add(imported)
        found.setdefault(file.name, file)

    for stem in (*FRAMES, *sorted(path.stem for path in (PROTOS / PACKAGE.replace(".", "/")).glob("*.proto"))):
        add(importlib.import_module(f"{PACKAGE}.{stem}_pb2").DESCRIPTOR)
    return list(found.values())


def readers_of(files: list[FileDescriptor]) -> dict[str, list[str]]:
    """Full name of a message → who reads it, from the services' requests and responses and what these hold."""
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for file in files:
        for service in file.services_by_name.values():
            for method in service.methods:
                for message, reader in zip((method.input_type, method.output_type), READERS[service.name], strict=True):
                    for inner in reachable(message):
                        found[inner.full_name][reader] = None
    return {name: list(readers) for name, readers in found.items()}


def reachable(message: Descriptor) -> Iterator[Descriptor]:
    """A message and every message that its fields can hold, each once."""
    pending, seen = [message], {message.full_name}
    while pending:
        descriptor = pending.pop()
        yield descriptor
        for field in descriptor.fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                pending.append(inner)


def sources() -> FileDescriptorSet:
    """The .proto files as protoc reads them, comments included; RuntimeError where it cannot."""
    protoc = importlib.import_module("grpc_tools.protoc")
    well_known = str(resources.files("grpc_tools") / "_proto")
    names = [str(path) for path in sorted(PROTOS.rglob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        options = ["--include_source_info", f"--descriptor_set_out={out}", f"-I{PROTOS}", f"-I{well_known}"]
        if protoc.main(["protoc", *options, *names]) != 0:
            raise RuntimeError("protoc cannot read the .proto files")
        return FileDescriptorSet.FromString(out.read_bytes())
