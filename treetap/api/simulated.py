"""A fit without processes, `simulate = True`: the parties' tables in a folder, read as parties read theirs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treetap.api.errors import InvalidInput
from treetap.api.loopback import ID, POLICY, OwnTable, to_caller
from treetap.commands import simulation
from treetap.commands.jobs.job_file import JobTable
from treetap.commands.local_federation import keep_table
from treetap.errors import BadInput


def train(
    tables: Mapping[str, OwnTable],
    job: JobTable,
    label_holder: str,
    evaluated: Mapping[str, OwnTable] | None,
    defences: Mapping[str, Any],
) -> simulation.Shards:
    """The shards that a federation with these defences of the label holder would publish; raises InvalidInput."""
    order = [label_holder, *(party for party in tables if party != label_holder)]
    with tempfile.TemporaryDirectory(prefix="treetap-tables-") as folder:
        placed: dict[str, dict[str, Any]] = {party: {} for party in order}
        for name, of_parties in ((simulation.TRAIN, tables), (simulation.EVAL, evaluated or {})):
            for party, own in of_parties.items():
                path = Path(folder) / f"{party}.{name}.parquet"
                keep_table(own.records, path)
                keys = {key: value for key, value in own.keys.items() if value is not None}
                placed[party][name] = {"path": str(path), "id": ID, **keys}
        try:
            return simulation.simulated(job, placed, defences, POLICY)
        except BadInput as failure:
            said = re.sub(rf"{re.escape(folder)}/\S+?\.parquet: ", "", str(failure))
            raise InvalidInput(to_caller(said)) from None
