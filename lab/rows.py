"""The laboratory's commands, as a list shows them; entry points of the group `treetap.lab` name these rows."""

from __future__ import annotations

from treetap.commands.lazy import JOBS, PRIVACY, TRY, Row

DEMO = Row(
    "treetap.lab.commands",
    "A whole federation on this machine: one process per party, mutual TLS, breast cancer data split by columns.",
    TRY,
)
EXPERIMENT = Row(
    "treetap.lab.commands",
    "Split one table between parties and run the federation on it, once per seed and fold; keep the results.",
    TRY,
)
AUDIT = Row(
    "treetap.lab.audit.cli",
    "Attack every feature party's transcript, and report what each of them could infer.",
    PRIVACY,
)
FRONTIER = Row(
    "treetap.lab.commands",
    "Train with defences of the label at several strengths; say which to take, beside the label holder alone.",
    PRIVACY,
)
ATTACK = Row(
    "treetap.lab.audit.cli",
    "Run one attack on one party's transcript: sort the records into groups that should share a label.",
    PRIVACY,
)
MEASURE_EPSILON = Row(
    "treetap.lab.commands",
    "Measure by canaries how private noise is at best: a lower bound of ε, beside what is claimed.",
    PRIVACY,
)
MODEL_XGBOOST = Row(
    "treetap.lab.commands",
    "Write a model as XGBoost's JSON: all parts of an experiment's run, or a label holder's that stands alone.",
    JOBS,
)
MODEL_SCORECARD = Row(
    "treetap.lab.scorecard.cli",
    "Show a model of trees of depth 1 as points of the bins of its columns, whose sum is a record's score.",
    JOBS,
)
MODEL_STABILITY = Row(
    "treetap.lab.scorecard.cli",
    "Compare two tables of a party by the bins of its model's columns, and the scores of two predictions.",
    JOBS,
)
