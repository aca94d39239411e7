"""Time without encryption, for the panels (b) of Figures 10 to 12: the same federation, whose ciphertexts hide nothing.

PIVODL has no mode without encryption. All parties run in one process, by the simulator of the tests, whose transparent
cipher has no obfuscators and decrypts by a division: all sums are packed, sent and opened as ever. What remains of the
cipher is its additions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cells import Cell
from worlds import drawn

from treetap.errors import TreetapError
from treetap.lab.experiment.party_tables import ID
from treetap.lab.local_federation import working_folder


def processor_seconds(cell: Cell) -> float:
    """Of the whole job, all parties together."""
    here = drawn(cell)
    cipher, simulator = import_module("tests.campaign.cipher"), import_module("tests.simulator")
    first, *others = here.experiment.in_order
    spec = here.experiment.job.model_copy(update={"seed": cell.seed}).spec(first, others, "train")
    with working_folder(None, "treetap-") as folder:
        tables = {party: _table(found, here.experiment.data.label) for party, found in here.write(folder).items()}

        async def train() -> float:
            federation = simulator.Federation(
                folder / "simulated",
                tables,
                encode=here.experiment.data.encode,
                silence_s=3600,
            )
            started = time.process_time()
            status = await federation.train(spec)
            used = time.process_time() - started
            await federation.close()
            if status.state != "finished":
                raise TreetapError(status.error or status.state)
            return used

        with cipher.ciphers(cipher.KeysMade(), transparent=True):
            used: float = simulator.run(train())
            return used


def _table(settings: Mapping[str, Any], label: str) -> tuple[list[str], dict[str, pa.Table]]:
    """A party's columns and training table, as the simulator takes them."""
    config = settings["tables"]["train"]
    table = pq.read_table(Path(config["path"]))
    names = {ID: "id", label: "y"}
    return config["columns"], {"train": table.rename_columns([names.get(name, name) for name in table.column_names])}
