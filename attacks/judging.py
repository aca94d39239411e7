"""The verdicts of an audit: one on each party and whatever it could learn, from what its attacks compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from treetap.attacks.case import Case
from treetap.attacks.features.schema import VictimFigures
from treetap.attacks.pivodl.schema import SourceFigures
from treetap.attacks.sums.schema import ColumnFigures
from treetap.attacks.verdict import OTHERS, Verdict, best_of, judged, unbalanced
from treetap.protocols.registry import training


def verdicts(cases: Sequence[Case], parties: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """The verdicts on labels, then those on columns.

    Args:
        cases: attackers.
        parties: name → the fields of its part of the document.
    """
    on_labels = [case for case in cases if not case.view.of_columns]
    judgements = [_of_labels(case) for case in on_labels]
    for case in cases:
        judgements += _of_columns(case.party.name, parties[case.party.name])
    # a label holder may be audited of some feature parties alone, and need not be audited at all
    read = {verdict.of for verdict in judgements if verdict.learned == "columns"}
    if cases and not training(cases[0].view.protocol).one_role:
        judgements += _unread(cases[0].view.label_holder, [case for case in on_labels if case.party.name not in read])
    return judgements


def _of_labels(case: Case) -> Verdict:
    """The verdict on what a party learned of labels; of PIVODL of those that others have.

    Where a class is rare the measure is AUC wherever an attack has it, so that no two runs differ in it. Of trees the
    best guess of all attacks stands beside the best one without the training.
    """
    of = case.view.label_holder if case.view.pivodl is None else OTHERS
    details = "attacks" if case.view.network is None else "network"
    rare = case.labels is not None and unbalanced(np.bincount(case.labels.values.astype(np.int64)).tolist())
    ranked = [it for it in case.compared if rare and it.measure == "AUC"]
    every = ranked or case.compared
    if case.view.network is None:  # a network's guesses are of different records
        every = [
            best_of([it for it in every if it.measure == measure])
            for measure in dict.fromkeys(it.measure for it in every)
        ]
    return judged(case.party.name, "labels", of, every, reason=_unscored(case), details=details)


def _unscored(case: Case) -> str:
    """The reason why nothing that a party learned of labels was compared."""
    if case.view.regression:
        return "the label is a number, and what sets of records tell of numbers is not measured"
    if case.labels is None:
        return "no labels were given to compare with"
    return "no attack that uses the training was run"


def _of_columns(party: str, fields: Mapping[str, Any]) -> Iterator[Verdict]:
    """The verdicts on what a party learned of columns: a label holder, or a party of PIVODL."""
    for key, details in (("columns_read", "columns"), ("victims", "columns")):
        for of, figures in fields.get(key, {}).items():
            yield _of_victim(party, of, figures, "; ".join(figures.reasons.values()), details)
    if (sources := fields.get("source_columns")) is not None:
        # of many parties that read many others' columns the one that was read most stands for all
        every = [
            _of_victim(party, of, figures, sources.reasons.get(of, ""), "shared")
            for of, figures in sources.sources.items()
        ]
        if every:
            yield max(every, key=lambda it: (it.rank, it.share or 0.0))


def _of_victim(
    party: str, of: str, figures: ColumnFigures | SourceFigures | VictimFigures, reason: str, details: str
) -> Verdict:
    """The worse of exact bins and of explained variance, beside the other one; of networks they are one figure."""
    explained = None if isinstance(figures, VictimFigures) else figures.explained
    known = [it for it in (figures.compared, explained) if it is not None]
    reason = reason or "no column was at hand to compare with"
    verdict = judged(party, "columns", of, known, reason=reason, details=details)
    other = next((it for it in known if it.measure != verdict.measure), None)
    return verdict.model_copy(update={"other": other})


def _unread(holder: str, cases: Sequence[Case]) -> Iterator[Verdict]:
    """Of a label holder whose reading of columns was not audited: that it was not measured."""
    for case in cases:
        reason = f'record = "received" in the [[party]] of {holder}, or a [[victim]] in audit.toml, measures it'
        yield judged(holder, "columns", case.party.name, [], reason=reason, details="columns")
