"""A training of a frontier by a real federation: processes, sockets, transcripts, and the attacks on these."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from treetap.commands.experiment.experiment_file import AuditTable
from treetap.commands.experiment.joined_table import labels_of
from treetap.commands.experiment.run import run_seed
from treetap.commands.frontier.attacked import attacks_of
from treetap.commands.frontier.frontier_file import FrontierFile
from treetap.commands.frontier.plan import Training
from treetap.commands.frontier.results import TrainingResult, kept
from treetap.errors import TreetapError


def train(experiment: FrontierFile, table: pa.Table, training: Training, folder: Path, records: int) -> TrainingResult:
    """One training with its prediction and audit. `folder`: empty; gets all files of the federation."""
    started = time.monotonic()
    names = attacks_of(experiment, records)
    audit = AuditTable(attacks=names, by_tree=False, settings=experiment.frontier.settings)
    asked = experiment.model_copy(update={"defences": training.plan.defences, "audit": audit})
    run = run_seed(asked, table, training.seed, folder, title=training.word)
    if run.audit_fault is not None:
        raise TreetapError(f"{training.word}: the audit failed: {run.audit_fault}")
    defended = run.defences
    tested = {training.plan.name: run.metrics["test"]} | ({} if defended is None else defended.variants)
    return TrainingResult(
        test={name: kept(tested[name]) for name in training.plan.points},
        v_measure={
            party: {name: figures["v_measure"] for name, figures in attacks.items()}
            for party, attacks in (run.audit or {}).items()
        },
        classes=len(labels_of(experiment, table).classes),
        local_subtrees=(defended and defended.local_subtrees) or 0,
        hidden_nodes=(defended and defended.hidden_nodes) or 0,
        ciphertexts=run.ciphertexts,
        records=run.records.model_dump(),
        seconds=time.monotonic() - started,
    )
