"""The frame of every message: names of steps, of their results and of messages between parties, and their places.

`StepRequest`, `StepResult` and `PeerMessage` hold their content a few oneofs deep: by the phase that it belongs to, or
by its protocol (protocols.proto). Its name is that of the innermost field, and no two have one name; so steps, metrics,
transcripts and mailboxes call it by that name alone, and a protocol that is added there is known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import TypeAlias, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from treetap.errors import Malformed, visible
from treetap.wire.v2 import alignment_pb2, control_pb2, exchange_pb2, prediction_pb2, setup_pb2

#: The content of a step that opens a job.
Opening: TypeAlias = setup_pb2.Prepare | prediction_pb2.OpenModel | alignment_pb2.OpenPreview
#: The fields that lead to a content, from the outermost.
Path = tuple[str, ...]
Frame = TypeVar("Frame", control_pb2.StepRequest, control_pb2.StepResult, exchange_pb2.PeerMessage)


@cache
def _group(descriptor: Descriptor) -> str | None:
    """The name of the oneof of a message that consists of one oneof only."""
    if len(descriptor.oneofs) == 1 and all(field.containing_oneof is not None for field in descriptor.fields):
        return str(descriptor.oneofs[0].name)
    return None


@cache
def _outermost(descriptor: Descriptor) -> str:
    """The name of the oneof that a frame has beside its other fields."""
    return str(descriptor.oneofs[0].name)


def _contents(descriptor: Descriptor, above: Path = ()) -> Iterator[tuple[Path, str]]:
    """Path and full type name of every content below a message's oneof."""
    for field in descriptor.oneofs[0].fields:
        path, inner = (*above, field.name), cast(Descriptor, field.message_type)
        if _group(inner) is not None:
            yield from _contents(inner, path)
        else:
            yield path, inner.full_name


def paths_of(frame: type[Message]) -> dict[str, Path]:
    """Name → path of all contents of a frame.

    Raises:
        ValueError: two have one name.
    """
    paths: dict[str, Path] = {}
    for path, _ in _contents(cast(Descriptor, frame.DESCRIPTOR)):
        if path[-1] in paths:
            raise ValueError(f"two contents of {frame.__name__} are called {path[-1]}: {paths[path[-1]]} and {path}")
        paths[path[-1]] = path
    return paths


#: Frame → name of a content → its path.
PATHS: Mapping[type[Message], Mapping[str, Path]] = {
    frame: paths_of(frame) for frame in (control_pb2.StepRequest, control_pb2.StepResult, exchange_pb2.PeerMessage)
}
_RESULTS = {kind: path[-1] for path, kind in _contents(control_pb2.StepResult.DESCRIPTOR)}


def name_of(frame: Message) -> str:
    """The name of a frame's content: of the step, its result, or the message between parties; empty without one."""
    name, current = "", frame
    oneof: str | None = _outermost(frame.DESCRIPTOR)
    while oneof is not None:
        field = current.WhichOneof(oneof)
        if field is None:
            return ""
        name, current = field, getattr(current, field)
        oneof = _group(current.DESCRIPTOR)
    return name


def content_of(frame: Message, name: str) -> Message:
    """The content of that name; an empty one where the frame holds another.

    Raises:
        Malformed: no content is called so.
    """
    path = PATHS[type(frame)].get(name)
    if path is None:
        raise Malformed(f"{type(frame).__name__} has no content {name!r}")
    current = frame
    for field in path:
        current = getattr(current, field)
    return current


def filled(frame: Frame, name: str, body: Message | None = None) -> Frame:
    """The frame with a content of that name; None for a content that is empty."""
    content = content_of(frame, name)
    content.SetInParent()
    if body is not None:
        content.CopyFrom(body)
    return frame


def serialised(frame: Message, name: str, content: bytes) -> bytes:
    """The bytes of a frame that is `filled` with a content of that name, from the content's own bytes.

    `frame`: one without content. Its other fields come first, as protobuf writes them, by number.
    """
    within: Descriptor = cast(Descriptor, frame.DESCRIPTOR)
    numbers = []
    for field in PATHS[type(frame)][name]:
        described = within.fields_by_name[field]
        numbers.append(described.number)
        within = cast(Descriptor, described.message_type)
    heads, size = list[bytes](), len(content)
    for number in reversed(numbers):
        heads.append(head_of(number, size))
        size += len(heads[-1])
    return b"".join((frame.SerializeToString(), *reversed(heads), content))


def head_of(number: int, size: int) -> bytes:
    """Tag and length before the `size` bytes of a field with that number."""
    return _varint(number << 3 | 2) + _varint(size)


def _varint(number: int) -> bytes:
    coded = bytearray()
    while number > 0x7F:
        coded.append(number & 0x7F | 0x80)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def type_of(name: str) -> Descriptor:
    """The type of a content: of a step's result, or of a message between parties.

    Raises:
        Malformed: no content is called so.
    """
    return cast(Descriptor, content_of(_frame_with(name)(), name).DESCRIPTOR)


def frame_of(name: str) -> Descriptor:
    """The type of the frame that holds a content: a step's result, or a message between parties.

    Raises:
        Malformed: no content is called so.
    """
    return _frame_with(name).DESCRIPTOR


def _frame_with(name: str) -> type[control_pb2.StepResult] | type[exchange_pb2.PeerMessage]:
    frames: list[type[control_pb2.StepResult] | type[exchange_pb2.PeerMessage]] = [
        frame for frame in (control_pb2.StepResult, exchange_pb2.PeerMessage) if name in PATHS[frame]
    ]
    if len(frames) != 1:
        raise Malformed(f"{len(frames)} results of steps and messages between parties are called {name!r}, not one")
    return frames[0]


def result(body: Message) -> control_pb2.StepResult:
    """The result of a step, whose name follows from its type."""
    return filled(control_pb2.StepResult(), _RESULTS[body.DESCRIPTOR.full_name], body)


M = TypeVar("M", bound=Message)


def visible_message(message: M, paths: Collection[str] = ()) -> M:
    """A copy of a message in which all texts are visible, those of its inner messages too.

    `paths`: fields that name a file, which a program may open; they stay as they are.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    _make_visible(copy, paths)
    return copy


def _make_visible(message: Message, paths: Collection[str]) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                _make_visible(inner, paths)
        elif field.type == field.TYPE_STRING and field.name not in paths:
            if field.is_repeated:
                value[:] = [visible(text) for text in value]
            else:
                setattr(message, field.name, visible(value))
