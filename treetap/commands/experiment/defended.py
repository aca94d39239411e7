"""What the defences of an experiment's label holder did: how much it withheld, and the models it could publish.

It reads the shards of all parties, which no party of a real federation has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from party.defences.settings import Defences
from treetap.commands.experiment import open_model
from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.party_tables import read_as_party
from treetap.errors import Defect

#: Most by which scores of the opened shards may differ from those of the federation, relative to the largest: encrypted
#: ones are rounded.
TOLERANCE = 1e-2


def defended(
    experiment: ExperimentFile,
    settings: Mapping[str, Mapping[str, Any]],
    models: Mapping[str, Path],
    predictions: pa.Table,
) -> dict[str, Any]:
    """The report on the defences of a finished run.

    Raises:
        Defect: the published model, opened, has other scores than the federation has predicted.
    """
    missing = experiment.job.params().missing
    given = {name: each["tables"] for name, each in settings.items()}
    after = {
        name: read_as_party(tables["predict"], missing, read_as_party(tables["train"], missing))
        for name, tables in given.items()
    }
    model, meaning = open_model.open_shards(models)
    scores = open_model.scores(model, meaning, {name: table.features for name, table in after.items()})
    names = [name for name in predictions.column_names if name == "score" or name.startswith("score_")]
    difference = float(np.abs(np.column_stack([predictions.column(name) for name in names]) - scores).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(scores).max())):
        raise Defect(f"the federation's scores differ by {difference:g} from those of its parties' shards together")
    return {
        "table": experiment.defences.model_dump(exclude_defaults=True),
        **open_model.hidden(model),
        "max_difference": difference,
        "says": says(experiment.defences),
    }


def says(defences: Defences) -> list[str]:
    """What each defence means for the figures, as sentences."""
    found = []
    if (limit := defences.id_lmid) is not None:
        counted = "all its records count" if limit.counts == "shown" else "the records that the tree draws count"
        found.append(f"ID-LMID: no set of records that is shown exceeds {limit.xi:g} nats in Eq. 6 ({counted}).")
    if (reduced := defences.reduced_leakage) is not None:
        found.append(f"Reduced-Leakage: trees grown by the label holder alone: {reduced.trees}, the first.")
    return found
