"""Transcripts in sound chains, with fields at random set to values at random: read, or refused by name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.attacks.recorded import rewritten
from treetap.attacks import sections
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput, Malformed
from treetap.wire.transcript import open_message, summarise
from treetap.wire.v2.control_pb2 import StepRequest
from treetap.wire.v2.exchange_pb2 import PeerMessage
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

pytestmark = [pytest.mark.filterwarnings("ignore:a 512-bit"), pytest.mark.xdist_group("tampered")]
#: Forged transcripts of each seed.
EACH = 12
_F = FieldDescriptor
VALUES: dict[int, list[Any]] = {
    _F.CPPTYPE_INT32: [0, 1, -1, 2**31 - 1, -(2**31)],
    _F.CPPTYPE_UINT32: [0, 1, 2, 3, 2**31, 2**32 - 1],
    _F.CPPTYPE_INT64: [0, -1, 2**40, 2**63 - 1, -(2**63)],
    _F.CPPTYPE_UINT64: [0, 1, 2, 61, 2**32, 2**40, 2**63, 2**64 - 1],
    _F.CPPTYPE_DOUBLE: [0.0, -1.0, 1e308, float("nan"), float("inf")],
    _F.CPPTYPE_BOOL: [True, False],
    _F.CPPTYPE_ENUM: [0, 1, 99],
    _F.CPPTYPE_STRING: ["", "x", "\x1b[31m", "feature-c", "label-holder", "a" * 300],
}
BYTES = [b"", b"\x01", b"\xff" * 9, bytes(100)]


def _value(chance: random.Random, field: FieldDescriptor) -> Any:
    return chance.choice(BYTES if field.type == _F.TYPE_BYTES else VALUES[field.cpp_type])


def _within(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for inner in value if field.is_repeated else [value]:
                found += _within(inner)
    return found


def _forge(chance: random.Random, message: Message) -> None:
    """Set one field of the message, or of one within it."""
    inner: Any = chance.choice(_within(message))
    fields = [field for field in inner.DESCRIPTOR.fields if field.message_type is None]
    if not fields or chance.random() < 0.1:
        inner.Clear()
        return
    field = chance.choice(fields)
    if not field.is_repeated:
        setattr(inner, field.name, _value(chance, field))
        return
    values = getattr(inner, field.name)
    if values and chance.random() < 0.7:
        values[chance.randrange(len(values))] = _value(chance, field)
    else:
        values.append(_value(chance, field))


def _forged(chance: random.Random, records: list[TranscriptRecord]) -> list[TranscriptRecord]:
    for _ in range(chance.choice([1, 1, 2, 3])):
        record = chance.choice(records)
        message = open_message(record)
        _forge(chance, message)
        record.message = message.SerializeToString()
        if isinstance(message, StepRequest | PeerMessage) and chance.random() < 0.7:
            record.job, record.attempt = message.job, message.attempt
            record.round, record.stage = message.round, message.stage
    return records


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", range(6))
def test_a_forged_transcript_is_read_or_refused(seed: int, sound: Path, tmp_path: Path) -> None:
    """Every section that the audit makes of a view ends, within the memory that sets of a few records take."""
    chance, ends = random.Random(seed), set()
    faults: list[tuple[str, str]] = []
    for number in range(EACH):
        folder = rewritten(sound, tmp_path / str(number), lambda records: _forged(chance, records))
        try:
            assert summarise(folder)["records"] > 0
            view = read_view(folder)
            sections.bound_rows(view, None)
            sections.signature(view, None)
            sections.tree_rows(view, None)
            ends.add("read")
        except (Malformed, BadInput) as refused:
            ends.add("refused")
            faults.append((str(folder), str(refused)))
    assert ends == {"read", "refused"}
    assert [fault for folder, fault in faults if not fault.startswith(folder)] == []
