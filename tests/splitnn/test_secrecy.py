"""Nothing of the label holder's defences, of labels, ids, columns or numbers is in a job or reaches the coordinator."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor import Descriptor

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.blindness.comparison import PLAIN, shown
from tests.blindness.coordinator_view import OPEN, WINDOW, Seen, on_disk, with_long_names
from tests.blindness.observed import Crossed, Observed, observed
from tests.simulator import COORDINATOR
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.splitnn.networks import published
from tests.worlds import PARTIES, World, world
from treetap.party.defences.settings import Defences, Gradient
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import control_pb2, setup_pb2, splitnn_pb2

pytestmark = pytest.mark.second_tier

HOLDER, FEATURE, OTHER = PARTIES
LAMBDA, SCALE = 0.3718281828459045, 0.0031415926535897
DEFENCES: dict[str, Any] = {"dimip": {FEATURE: LAMBDA}, "gradient": {"kind": "noise", "scale": SCALE}}
LONGER = replace(PARAMS, epochs=3, reproducible=False)


def _named_world() -> World:
    """A world whose ids, columns and classes do not occur by chance."""
    here = with_long_names(world(49, (2, 2, 1), seed=8))
    for _, tables in here.tables.values():
        for name, table in tables.items():
            if "y" in table.column_names:
                classes = pa.array([f"diagnosis-{cell}" for cell in table.column("y").to_pylist()])
                tables[name] = table.set_column(table.column_names.index("y"), "y", classes)
    return here


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A training that is interrupted and resumed."""
    folder, here = tmp_path_factory.mktemp("secrecy") / "federation", _named_world()

    async def act(federation: Observed) -> Seen:
        federation.kill_at(
            FEATURE,
            lambda message: message.word == "store_epoch" and message.to == FEATURE and message.served,
            back=True,
        )
        assert (await federation.train(spec(LONGER))).state == "interrupted"
        status = await federation.resume()
        assert (status.state, federation.hook) == ("finished", None), status.error
        statuses = [each.SerializeToString() for each in federation.jobs.status("")]
        told = [text.encode() for text in federation.told_coordinator]
        disk = on_disk(folder / COORDINATOR)
        events, requests = (
            federation.seen_by_coordinator,
            [each.SerializeToString() for _, _, each in federation.conducted],
        )
        crossed = [each.message for each in federation.crossed if each.to in PARTIES]
        secrets = _secrets(here, folder, crossed)
        content = [path.read_bytes() for path in sorted(folder.glob("*/state/models/**/*.npz"))]
        parties = b"\n".join([*content, *(each.SerializeToString() for each in crossed)])
        return Seen(events, requests, b"\n".join([*events, *requests, *statuses, *told, disk]), secrets, parties)

    _, found = observed(folder, here.tables, act, policies=_PRIVATE, defences={HOLDER: Defences(**DEFENCES)})
    return found


#: Policies of jobs that are not reproducible.
_PRIVATE = {name: {"emits": lines["emits"]} for name, lines in EMITS.items()}


def _secrets(here: World, folder: Path, crossed: list[Any]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {"ids": [], "columns": [], "classes": [b"diagnosis-0", b"diagnosis-1"]}
    for columns, tables in here.tables.values():
        found["columns"] += [column.encode() for column in columns]
        for table in tables.values():
            found["ids"] += [cell.encode() for cell in table.column("id").to_pylist()]
    found["settings"] = [form for value in (LAMBDA, SCALE) for form in _forms(value)] + [b"dimip", b"noise", b"patient"]
    found["features"] = [
        form for block in here.blocks for value in block.ravel() for form in _forms(float(value)) if value
    ]
    weights = [each for own in published(folder, here).values() for each in own.values()]
    found["weights"] = [window for each in weights for window in _windows(each.tobytes())]
    for kind in ("embeddings", "embedding_gradients"):
        values = [content_of(each, kind).values for each in crossed if name_of(each) == kind]  # type: ignore[attr-defined]
        found[kind] = [window for each in values for window in _windows(each)]
    return found


def _forms(value: float) -> list[bytes]:
    """A number as the wire and as people write it."""
    return [struct.pack("<d", value), struct.pack(">d", value), struct.pack("<f", value), repr(abs(value))[:8].encode()]


def _windows(block: bytes) -> list[bytes]:
    return [block[at : at + WINDOW] for at in range(0, len(block) - WINDOW + 1, 64) if any(block[at : at + WINDOW])]


def test_only_plain_classes_reach_the_coordinator(seen: Seen) -> None:
    """Every byte of every event is of these classes, and so is every byte that the coordinator sends."""
    assert len(seen.events) > 20
    for event in seen.events:
        assert set(bytes_by_class_of(event, control_pb2.StepEvent)) <= OPEN
    for request in seen.requests:
        assert set(bytes_by_class_of(request, control_pb2.StepRequest)) <= OPEN


@pytest.mark.parametrize(
    "what", ["ids", "columns", "classes", "settings", "features", "weights", "embeddings", "embedding_gradients"]
)
def test_nothing_of_the_data_or_the_defences_is_among_its_bytes(what: str, seen: Seen) -> None:
    """No secret of this kind is in what it received, sent, was told, answers operators or keeps on disk."""
    looked_for = seen.secrets[what]
    assert len(looked_for) >= 2
    assert [secret for secret in looked_for if secret in seen.everything] == []


@pytest.mark.parametrize("what", ["weights", "embeddings", "embedding_gradients"])
def test_the_search_finds_them_where_they_are(what: str, seen: Seen) -> None:
    """The same search among the parties' own shards and messages finds what was made or crossed there."""
    assert sum(secret in seen.parties for secret in seen.secrets[what]) >= 2
    assert all(party.encode() in seen.everything for party in PARTIES)


def test_no_message_has_a_field_for_a_defence() -> None:
    """Neither a job nor a message of networks: their fields have no name of `[defences]` but those of `kind`."""
    fields = {
        field.name for message in splitnn_pb2.DESCRIPTOR.message_types_by_name.values() for field in _all(message)
    }
    fields |= {field.name for field in setup_pb2.JobSpec.DESCRIPTOR.fields}
    named = {*Defences.model_fields, *Gradient.model_fields} - {"kind"}
    assert {"objective", "values", "bottom", "alignment"} <= fields
    assert not fields & named


def _all(message: Descriptor) -> Iterator[Any]:
    yield from message.fields
    for nested in message.nested_types:
        yield from _all(nested)


def test_messages_are_as_many_and_as_long_with_and_without_defences(tmp_path: Path) -> None:
    """In the same order; the coordinator sees another loss, and nothing else."""

    async def act(federation: Observed) -> str:
        status = await federation.train(spec(PARAMS))
        return str(status.state)

    here = world(49, (2, 2, 1), seed=8)
    plain, defended = (
        observed(tmp_path / "f", here.tables, act, policies=EMITS, defences={HOLDER: Defences(**own)})
        for own in ({}, DEFENCES)
    )
    assert plain[1] == defended[1] == "finished"
    assert _outlines(plain[0]) == _outlines(defended[0])
    returned = [
        [each.message for each in crossed if each.step == "embedding_gradients"] for crossed, _ in (plain, defended)
    ]
    assert len(returned[0]) == 2 * 2 * 4
    assert all(one != other for one, other in zip(*returned, strict=True))


def _outlines(crossed: list[Crossed]) -> list[tuple[str, str, str, Any]]:
    """All messages by sender, receiver and step; of random or learned content the length, of metrics nothing."""
    return [(sender, to, step, shown(message, PLAIN - {"METRIC"})) for sender, to, step, message in crossed]
