"""The audit at the end of a run of an experiment: its files, and the accuracies that an audit of files lacks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from treetap.commands.audit import local_job
from treetap.commands.experiment.baselines import ALONE, UNDEFENDED
from treetap.commands.experiment.experiment_file import AuditTable, ExperimentFile
from treetap.commands.experiment.joined_table import ID, Split, content_digest
from treetap.commands.experiment.party_tables import labels_file
from treetap.commands.experiment.results import Measures, RunResult
from treetap.commands.local_federation import keep_table
from treetap.protocols.registry import training
from treetap.trees import sampling

#: Share of the training records whose columns the label holder is assumed to know, and the fewest and most of them.
_KNOWN, _LEAST_KNOWN, _MOST_KNOWN = 0.1, 10, 2000


def add_audit(
    run: RunResult, experiment: ExperimentFile, asked: AuditTable, table: pa.Table, drawn: Split, folder: Path
) -> None:
    """Audit the transcripts of all parties but the label holder; of a network its own too, if it records.

    `run`: gets the results; from its metrics an audit of networks has the gain over alone. `table`: the joined one.
    """
    states = {party.name: folder / party.name / "state" for party in experiment.party if not party.labels}
    parties = {
        name: (state / "transcripts" / "experiment", folder / name / "train.parquet", drawn.columns[name])
        for name, state in states.items()
    }
    more = asked.model_dump(include={"attacks", "classes", "drawn_only", "settings"}, exclude_none=True)
    more |= {"ca": "certs/ca.crt", "data_digest": content_digest(table)}
    if training(experiment.job.protocol).grows_trees:
        more["defences"] = experiment.defences.model_dump(exclude_defaults=True)
    if asked.frontier is not None:
        more["frontier"] = os.path.relpath(asked.frontier, folder)
    label = (labels_file(experiment, folder), experiment.data.label)
    networks = holder = None
    if not training(experiment.job.protocol).grows_trees:
        more |= {"network": asked.network, "accuracy": _accuracies(experiment, run.metrics)}
        models = {
            name: (state / "models" / "experiment", folder / name / "predict.parquet") for name, state in states.items()
        }
        networks = local_job.Networks(models, folder / experiment.in_order[0] / "predict.parquet")
        holder = _label_holder(experiment, table, drawn, run.seed, folder)
        more |= {} if holder is None else {"features": asked.features}
    started = time.monotonic()
    file = local_job.write_file(folder, parties, ID, label, more, networks, holder)
    document = local_job.run(folder, file, by_tree=asked.by_tree)
    run.audit, run.audit_report = local_job.scores(document), str(folder / local_job.REPORT)
    run.audit_seconds = time.monotonic() - started


def _label_holder(
    experiment: ExperimentFile, table: pa.Table, drawn: Split, seed: int, folder: Path
) -> local_job.LabelHolder | None:
    """The label holder as attacker, with the auxiliary records that it is assumed to know, which are drawn.

    None where it keeps no transcript, or there are too few records to know some and guess others.
    """
    party = next(party for party in experiment.party if party.labels)
    count = min(_MOST_KNOWN, max(_LEAST_KNOWN, round(_KNOWN * len(drawn.train))))
    if experiment.record(party) == "off" or count >= len(drawn.train):
        return None
    rows = np.sort(sampling.generator(seed, "experiment auxiliary").permutation(drawn.train)[:count])
    victims = {}
    for other in experiment.party:
        if other.labels:
            continue
        known, own = folder / party.name / f"known-{other.name}.parquet", folder / other.name
        keep_table(table.select([ID, *drawn.columns[other.name]]).take(pa.array(rows)), known)
        victims[other.name] = local_job.VictimPlaces(
            known, own / "train.parquet", own / "state" / "models" / "experiment"
        )
    own = folder / party.name
    return local_job.LabelHolder(
        party.name, own / "state" / "transcripts" / "experiment", own / "train.parquet", victims
    )


def _accuracies(experiment: ExperimentFile, metrics: Mapping[str, Measures]) -> dict[str, float]:
    """Accuracies on the held-out rows, as far as the run has them; without defences `undefended` is `together`."""
    undefended = UNDEFENDED if experiment.defended else "test"
    rows = {"together": "test", "alone": ALONE, "undefended": undefended}
    accuracies = {name: metrics.get(row, {}).get("accuracy") for name, row in rows.items()}
    return {name: value for name, value in accuracies.items() if value is not None}
