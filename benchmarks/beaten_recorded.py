"""Recorded transcripts, of `beaten.py`: easy attacks on files of a real federation, beside the audit of these files.

Boosting by `treetap experiment`, two parties on this machine, the first half of the columns with the labels. The
feature party's transcript and table are read as the audit reads them, and the easy attacks of `beaten_labels.py` and
`beaten_groups.py` stand beside what `audit.json` says of the party: the best AUC of its attacks on labels, the best
V-measure, and the verdict's guess with the training, in the verdict's measure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from beaten_groups import seen
from beaten_labels import Trained, by_training
from beaten_tables import HOLDER, PARTY, Best, Ints, Row, Table

from treetap.attacks.audit_file import read
from treetap.attacks.case import held
from treetap.attacks.document import Document, parse
from treetap.attacks.id2graph.schema import KnownLabelResult, KnownSettings, RankedResult
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import labels_at_hand
from treetap.attacks.registry import Needs, rows
from treetap.attacks.scores import score
from treetap.attacks.view.view import read_view
from treetap.lab.experiment.audited import DOCUMENT
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.run import run_seed


def recorded_rows(_: str, table: Table, given: argparse.Namespace) -> Iterator[Row]:
    """The AUC, the V-measure and the verdict of one federation."""
    with TemporaryDirectory(prefix="treetap-beaten-") as folder:
        run = Path(folder) / "run"
        setting = experiment(table, Path(folder) / "table.parquet", given)
        result = run_seed(setting, read_table(setting, Path()), 0, run)
        assert result.audit is not None, result.audit_fault
        (it, draws), document = on_record(run), parse(json.loads((run / DOCUMENT).read_text()))
    aucs, scores = by_training(it, draws), {name: score(it.labels, some) for name, some in seen(it)}
    groups = {name: one.v_measure for name, one in scores.items()}
    verdict = next(one for one in document.verdicts if (one.party, one.learned) == (PARTY, "labels"))
    easy = aucs if verdict.measure == "AUC" else {name: one.accuracy for name, one in scores.items()}
    audit_aucs, audit_groups = audited(document)
    for question, measure, figures, audit in (
        ("with the training", "AUC", aucs, audit_aucs),
        ("with the training", "V-measure", groups, audit_groups),
        ("the verdict", str(verdict.measure), easy, {verdict.after_how: verdict.after or 0.0}),
    ):
        yield Row("recorded", "first half", question, measure, 0.01, Best.of(figures), Best.of(audit))


def experiment(table: Table, path: Path, given: argparse.Namespace) -> ExperimentFile:
    """The federation; its table is written to `path`."""
    names = [f"c{number}" for number in range(table.columns.shape[1])]
    columns = dict(zip(names, table.columns.T, strict=True))
    pq.write_table(pa.table({**columns, "label": table.labels}), path)
    half = len(names) // 2
    job = {"protocol": "boosting", "n_estimators": given.trees, "max_depth": given.depth, "max_bin": 32}
    content: dict[str, Any] = {
        "data": {"path": str(path), "label": "label"},
        "party": [
            {"name": HOLDER, "labels": True, "columns": names[:half]},
            {"name": PARTY, "columns": names[half:]},
        ],
        "job": job | table.objective,
        "audit": {},
    }
    return ExperimentFile.model_validate(content)


def on_record(run: Path) -> tuple[Trained, list[Ints]]:
    """What the feature party has of a run, its table and its view of the trees by its transcript, with labels beside.

    And the known labels that the audit draws.
    """
    file = read(run)
    party = next(one for one in file.party if one.name == PARTY)
    view = read_view(party.transcript, file.job, party.name, file.ca, file.revoked)
    own, labels = held(party, view, file)
    assert own is not None
    assert labels is not None
    known = labels_at_hand(view, own, labels, file.known)
    evidence = SignatureEvidence(view.trees, known, own.features, KnownSettings())
    return Trained(own.features, labels.values.astype(np.int64), tuple(view.trees)), evidence.draws


def audited(document: Document) -> tuple[dict[str, float], dict[str, float]]:
    """The AUC and the V-measure of each attack on the feature party's transcript, with the training."""
    party = document.parties[PARTY]
    aucs = dict[str, float]()
    groups = {name: one.v_measure or 0.0 for name, one in party.attacks.items() if name != "cl"}
    for name in rows(Needs.KNOWN_LABELS):
        result = getattr(party.known_labels, name.replace("-", "_"))
        if isinstance(result, KnownLabelResult):
            aucs |= {f"{name} ({kind})": it.auc.mean for kind in ("nodes", "both") if (it := getattr(result, kind))}
        elif isinstance(result, RankedResult):
            by = {f"{name} ({kind})": it for kind, it in result.by.items() if not kind.startswith("columns")}
            aucs |= {kind: it.auc for kind, it in by.items()}
            groups |= {kind: it.v_measure or 0.0 for kind, it in by.items()}
    return aucs, groups
