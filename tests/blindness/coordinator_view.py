"""A coordinator's view of a federation, and a world whose names do not occur by chance in it."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tests.simulator import Federation
from tests.worlds import PARTIES, World, joined_model
from treetap.wire.frame import name_of
from treetap.wire.transcript import TranscriptReader, open_message
from treetap.wire.v2 import exchange_pb2

#: Classes that may reach the coordinator.
OPEN = {"CONTROL", "TOPOLOGY", "METRIC", "SIZE", "USAGE"}
#: Bytes of a secret that are looked for: chance repeats no string of this length.
WINDOW = 12


class Seen(NamedTuple):
    """Events, requests, and all that the coordinator had or wrote; secrets by kind; the content of parties' files."""

    events: list[bytes]
    requests: list[bytes]
    everything: bytes
    secrets: dict[str, list[bytes]]
    parties: bytes


def with_long_names(here: World) -> World:
    """The world, changed in place: ids and columns that do not occur by chance."""
    for columns, tables in here.tables.values():
        for name, table in tables.items():
            ids = pa.array([f"patient-{cell}" for cell in table.column("id").to_pylist()])
            named = ["id", *(f"measurement-{c}" if c in columns else c for c in table.column_names[1:])]
            tables[name] = table.set_column(0, "id", ids).rename_columns(named)
        columns[:] = [f"measurement-{column}" for column in columns]
    return here


def on_disk(folder: Path) -> bytes:
    """Every file of the coordinator, and what the journal holds in base64 too."""
    content = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content.append(path.read_bytes())
        for line in path.read_text().splitlines():
            event = json.loads(line)
            content += [base64.b64decode(event[key]) for key in ("spec", "opening", "status") if key in event]
    return b"\n".join(content)


def _numbers(values: Iterable[float]) -> list[bytes]:
    """A number as the wire and as people write it: both byte orders, and its first digits."""
    forms = []
    for value in values:
        if not np.isnan(value) and abs(value) > 1e-9:
            forms += [struct.pack("<d", value), struct.pack(">d", value), repr(abs(float(value)))[:8].encode()]
    return [form for form in forms if len(form) >= 6]


def _windows(block: bytes, step: int = 64) -> list[bytes]:
    return [block[at : at + WINDOW] for at in range(0, len(block) - WINDOW, step)]


def secrets_of(
    federation: Federation, here: World, jobs: Sequence[str] = ("job", "eini", "lattice")
) -> dict[str, list[bytes]]:
    """What only parties may know, by kind: as their tables, models and transcripts of these jobs have it."""
    found: dict[str, list[bytes]] = {"ids": [], "columns": [], "ciphertexts": [], "keys": [], "digests": []}
    for columns, tables in here.tables.values():
        found["columns"] += [column.encode() for column in columns]
        for table in tables.values():
            found["ids"] += [cell.encode() for cell in table.column("id").to_pylist()]
    found["features"] = _numbers(float(v) for block in [*here.blocks, *here.new] for v in block.ravel())
    found["labels"] = _numbers(float(v) for v in here.y)
    trees = joined_model(federation.states)
    found["thresholds"] = _numbers(n[3] for tree in trees for n in tree.values() if n[0] == "split" and n[3] < 1e9)
    found["weights"] = _numbers(w for tree in trees for n in tree.values() if n[0] == "leaf" for w in n[1])
    found["gains"] = _numbers(n[5] for tree in trees for n in tree.values() if n[0] == "split")
    for party, state in federation.states.items():
        records = (record for job in jobs for record in TranscriptReader(state / "transcripts" / job))
        for record in records:
            message = open_message(record)
            if not isinstance(message, exchange_pb2.PeerMessage):
                continue
            found["ciphertexts"] += _windows(message.protocol.boosting.gradients.ciphertexts)
            found["ciphertexts"] += _windows(message.growth.candidate_sums.ciphertexts)
            found["ciphertexts"] += _windows(message.protocol.eini.leaf_entries.ciphertexts) + _windows(
                message.protocol.eini.leaf_sums.ciphertexts
            )
            lattice = (
                *message.protocol.lattice.lattice_columns.ciphertexts,
                *message.protocol.lattice.lattice_sums.ciphertexts,
            )
            found["ciphertexts"] += [window for data in lattice for window in _windows(data, step=4096)]
            found["keys"] += _windows(message.setup.public_key.modulus, step=WINDOW)
            found["keys"] += _windows(message.protocol.lattice.lattice_key.public, step=4096)
            found["digests"] += [message.alignment.record_digest.digest] if name_of(message) == "record_digest" else []
        assert party in PARTIES
    return found
