"""A coordinator's view of a federation, and a world whose names do not occur by chance in it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tests.worlds import World

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
