"""A fit without processes, `simulate = True`: the parties' tables in a folder, read as parties read theirs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput
from treetap.lab import simulation
from treetap.lab.api.errors import InvalidInput
from treetap.lab.api.loopback import ID, OwnTable, to_caller
from treetap.lab.api.parameters import Parameters
from treetap.lab.local_federation import keep_table
from treetap.protocols.prediction import predicting


def check(given: Parameters, base_model: Any) -> None:
    """Raise InvalidInput for what a training without processes cannot have."""
    lacking = {
        "base_model": (base_model, "train with more n_estimators, at the same cost"),
        "federation": (given.federation, "no federation trains; leave it out"),
        "policy": (given.policy, "there is no party to keep it; leave it out"),
        "workdir": (given.workdir, "there are no processes whose files it would keep; leave it out"),
    }
    for name, (value, remedy) in lacking.items():
        if value is not None:
            raise InvalidInput(f"{name} and simulate do not go together: {remedy}")
    if given.prediction not in (None, predicting(given.protocol, withheld=False)[0]):
        raise InvalidInput(
            f"prediction = {given.prediction!r} and simulate do not go together: it rounds scores; leave it out"
        )


def train(
    tables: Mapping[str, OwnTable],
    job: JobTable,
    label_holder: str,
    evaluated: Mapping[str, OwnTable] | None,
    defences: Mapping[str, Any],
) -> simulation.Shards:
    """The shards that a federation would publish.

    `evaluated`: tables by which it is measured, if there are some. `defences`: the label holder's.

    Raises:
        InvalidInput: a table or the job cannot be used, or the federation's model would be another one.
    """
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
            return simulation.simulated(job, placed, defences)
        except BadInput as failure:
            said = re.sub(rf"{re.escape(folder)}/\S+?\.parquet: ", "", str(failure))
            raise InvalidInput(to_caller(said)) from None
