"""Names of records by few known labels and the training beside those by own columns alone, record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import hypot, sqrt
from typing import Any

import numpy as np

from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import Ints, Named
from treetap.attacks.verdict import MOST_FREQUENT, Compared, FirstNamed, drawn_error, paired_error, unbalanced

#: Kind of rows or points → its words in a verdict.
_TRAINED = {
    "nodes": "the nodes that it knows",
    "both": "nodes and own columns",
    "leaves": "the leaves that it knows",
    "splits": "its own splits",
    "splits-alike": "its own splits, all trees alike",
}
#: Attack → its words in a verdict.
_ATTACKS = {
    "known-neighbours": "nearest neighbours by",
    "known-regression": "a regression by",
    "first-component": "the first component of",
    "vote": "a vote of",
    "heaviest-cut": "the heaviest of",
}


def compared_names(evidence: SignatureEvidence) -> Iterator[Compared]:
    """The best attack by the nodes and own splits of trees beside the best one without; none where none could run."""
    trained = {
        ", ".join(filter(None, (f"{_ATTACKS[attack]} {_TRAINED[kind]}", it.told))): it
        for (attack, kind), it in evidence.named.items()
        if kind in _TRAINED
    }
    if (drawn := evidence.described()) is None or not trained:
        return
    alone = [it for (_, kind), it in evidence.named.items() if kind not in _TRAINED]
    # among the first, too, a party can always go by its own columns
    before = max((it.first for it in alone), default=drawn.chance)
    first = FirstNamed(
        first=drawn.first,
        rarest=drawn.rarest,
        before=before,
        after=max(before, *(it.first for it in trained.values())),
        chance=drawn.chance,
    )
    best = compared(trained, alone, evidence.truth, known=drawn.known, first=first, details="known")
    yield best.model_copy(update={"floor": _floor(evidence)})


def _floor(evidence: SignatureEvidence) -> str:
    """The sentence by which a reader of the figures knows that a larger attack reads more; empty where none does."""
    said = []
    if (some := len(evidence.places)) < (many := len(evidence.known.scored)):
        said.append(f"{some:,} of {many:,} records: most_records in [known_labels] takes more")
    if left := evidence.left_out["splits"]:
        said.append(f"own splits without the {left:,} lightest, which do not fit: a lower most_records fits more")
    return f"a floor, by {' and '.join(said)}" if said else ""


def compared(
    trained: Mapping[str, Named],
    alone: list[Named],
    truth: Ints,
    *,
    known: int,
    first: FirstNamed | None,
    details: str,
) -> Compared:
    """The best of several ways beside the best one without the training: on an unbalanced table by AUC, else accuracy.

    Args:
        trained: words for a way → what it named.
        alone: the same by own columns; what always names the most frequent class, or guesses, is beside it.
        truth: (n,) classes of the records that take part.
        known: labels that the attacker knows, in each draw.
        first: of an unbalanced table the records that are named first.
    """
    if unbalanced(np.bincount(truth).tolist()):
        return _by_auc(trained, alone, known=known, first=first, details=details)
    return _by_accuracy(trained, alone, truth, known=known, details=details)


def _by_auc(
    trained: Mapping[str, Named], alone: list[Named], *, known: int, first: FirstNamed | None, details: str
) -> Compared:
    how = max(trained, key=lambda way: trained[way].auc)
    best, own = trained[how], max(alone, key=lambda it: it.auc, default=None)
    before = own if own is not None and own.auc > 0.5 else None
    # a figure that no draw changes stands beside those of all draws
    influence = np.mean(best.influence, axis=0) - (0.0 if before is None else np.mean(before.influence, axis=0))
    differences = np.asarray(best.aucs) - (0.5 if before is None else np.asarray(before.aucs))
    drawn = drawn_error(differences.tolist())
    return Compared(
        measure="AUC",
        before=0.5 if before is None else before.auc,
        before_how="guessing" if before is None else "own columns",
        reached=best.auc,
        reached_how=how,
        error=hypot(sqrt(float((influence**2).sum())), drawn),
        tries=sum(it.tries for it in trained.values()),
        first=first,
        details=details,
        **_labels_known(best, before, known, drawn),
    )


def _by_accuracy(
    trained: Mapping[str, Named], alone: list[Named], truth: Ints, *, known: int, details: str
) -> Compared:
    naming = {way: it for way, it in trained.items() if it.right}
    way = max(naming, key=lambda way: naming[way].accuracy)
    best = naming[way]
    frequent = (truth == np.bincount(truth).argmax()).astype(np.float64)
    before, how = np.array([np.where(np.isnan(draw), np.nan, frequent) for draw in best.right]), MOST_FREQUENT
    value = float(np.mean([np.nanmean(draw) for draw in before]))
    own = max((it for it in alone if it.right), key=lambda it: it.accuracy, default=None)
    if own is not None and own.accuracy > value:
        before, how, value = np.array(own.right), "own columns", own.accuracy
    else:
        own = None
    by_record = np.array(best.right) - before
    named = by_record[:, ~np.isnan(by_record).all(axis=0)]
    drawn = drawn_error(np.nanmean(by_record, axis=1).tolist())
    return Compared(
        measure="accuracy",
        before=value,
        before_how=how,
        reached=best.accuracy,
        reached_how=way,
        error=hypot(paired_error(np.nanmean(named, axis=0)), drawn),
        tries=sum(it.tries for it in naming.values()),
        details=details,
        **_labels_known(best, own, known, drawn),
    )


def _labels_known(best: Named, before: Named | None, known: int, drawn: float) -> dict[str, Any]:
    """The labels that the attacker knows, and the error by their draws; nothing where neither guess needs one."""
    if not best.known and (before is None or not before.known):
        return {}
    return {"known": known, "drawn": drawn or None}
