"""Renders the table of docs/threats.md: every field of every message, its disclosure class, and who reads it.

    python docs/render_threats.py            write the table
    python docs/render_threats.py --check    exit with status 1 if the file is stale

Classes come from the generated descriptors; readers from the services that carry a message; comments from the .proto
files by way of protoc, which needs grpcio-tools.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from importlib import resources
from itertools import groupby
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from treetap.wire.disclosure import disclosure_table, undeclared

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PAGE = ROOT / "docs" / "threats.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
#: In the order in which a reader meets them; `reveals` declares the classes and has no message.
FILES = (
    *("setup", "alignment", "boosting", "forest", "interactive", "eini", "explain", "lattice", "serving", "types"),
    *("exchange", "control", "jobs", "own", "transcript"),
)
PACKAGE = "treetap.wire.v2"
#: Service → who reads its requests, who reads its responses.
READERS = {
    "Exchange": ("party ← party", "party ← party"),
    "Control": ("party ← coordinator", "coordinator ← party"),
    "Jobs": ("coordinator ← operator", "operator ← coordinator"),
    "Serving": ("label holder ← client", "client ← label holder"),
}
NOBODY = "nobody else (own log)"


def main() -> int:
    """Write the page, or compare it; returns the exit status."""
    parser = argparse.ArgumentParser(description="Render the disclosure table.")
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with status 1 if the page is stale")
    options = parser.parse_args()
    old = options.page.read_text(encoding="utf-8")
    new = with_table(old, table())
    if options.check and new != old:
        print(f"{options.page} is stale: run make threats", file=sys.stderr)
        return 1
    if new != old:
        options.page.write_text(new, encoding="utf-8")
    return 0


def with_table(page: str, rendered: str) -> str:
    """The page with the text between the two markers replaced; ValueError where it has not just one of each."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"the page must have {BEGIN} and {END} once each")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{rendered}{END}{rest.split(END)[1]}"


def table() -> str:
    """The table in Markdown, a line per field, the message named on its first line only.

    ValueError for a .proto file that FILES does not name, and for a field without a class.
    """
    if left_out := {path.stem for path in PROTOS.rglob("*.proto")} - {*FILES, "reveals"}:
        raise ValueError(f"not in the table: {', '.join(sorted(left_out))}")
    files = [descriptors(name) for name in FILES]
    if missing := undeclared(files):
        raise ValueError(f"no disclosure class: {', '.join(missing)}")
    readers = readers_of(files)
    lines = ["| message | field | class | read by | meaning |", "|---|---|---|---|---|"]
    for message, rows in groupby(disclosure_table(files, sources()), key=lambda row: row.message):
        who = ", ".join(readers.get(message) or [NOBODY])
        name = f"`{message.removeprefix(PACKAGE + '.')}`"
        for row in rows:
            comment = row.comment.replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| {name} | `{row.field}` | {row.disclosure} | {who} | {comment} |")
            name = who = ""
    return "\n".join(lines) + "\n"


def descriptors(name: str) -> FileDescriptor:
    """The descriptors of one generated module."""
    found: FileDescriptor = importlib.import_module(f"{PACKAGE}.{name}_pb2").DESCRIPTOR
    return found


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


if __name__ == "__main__":
    sys.exit(main())
