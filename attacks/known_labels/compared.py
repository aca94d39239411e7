"""Names of records by few known labels and the training beside those by own columns alone, record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import hypot, sqrt

import numpy as np

from attacks.known_labels.evidence import SignatureEvidence
from attacks.known_labels.names import Ints, Named
from attacks.verdict import MOST_FREQUENT, Compared, FirstNamed, drawn_error, paired_error, unbalanced

#: Kind of rows → its words in a verdict.
_TRAINED = {"nodes": "the nodes that it knows", "both": "nodes and own columns"}
#: Attack → its words in a verdict.
_ATTACKS = {"known-neighbours": "nearest neighbours", "known-regression": "a regression"}


def compared_names(evidence: SignatureEvidence) -> Iterator[Compared]:
    """The best attack by the nodes of trees beside the best one without; none where no attack could run."""
    trained = {
        f"{_ATTACKS[attack]} by {_TRAINED[kind]}": it
        for (attack, kind), it in evidence.named.items()
        if kind in _TRAINED
    }
    if (drawn := evidence.described()) is None or not trained:
        return
    alone = [it for (_, kind), it in evidence.named.items() if kind == "columns"]
    # among the first, too, a party can always go by its own columns
    before = max((it.first for it in alone), default=drawn.chance)
    first = FirstNamed(
        first=drawn.first,
        rarest=drawn.rarest,
        before=before,
        after=max(before, *(it.first for it in trained.values())),
        chance=drawn.chance,
    )
    yield compared(trained, alone, evidence.truth, known=drawn.known, first=first, details="known")


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
    own = max(alone, key=lambda it: it.auc, default=None)
    before = own if own is not None and own.auc > 0.5 else None
    influences = [
        draw - (0.0 if before is None else before.influence[number])
        for number, draw in enumerate(trained[how].influence)
    ]
    differences = [
        value - (0.5 if before is None else before.aucs[number]) for number, value in enumerate(trained[how].aucs)
    ]
    over_records, drawn = sqrt(float((np.mean(influences, axis=0) ** 2).sum())), drawn_error(differences)
    return Compared(
        measure="AUC",
        before=0.5 if before is None else before.auc,
        before_how="guessing" if before is None else "own columns",
        reached=trained[how].auc,
        reached_how=how,
        error=hypot(over_records, drawn),
        tries=len(trained),
        known=known,
        drawn=drawn,
        first=first,
        details=details,
    )


def _by_accuracy(
    trained: Mapping[str, Named], alone: list[Named], truth: Ints, *, known: int, details: str
) -> Compared:
    way = max(trained, key=lambda way: trained[way].accuracy)
    best = trained[way]
    frequent = (truth == np.bincount(truth).argmax()).astype(np.float64)
    before, how = [np.where(np.isnan(draw), np.nan, frequent) for draw in best.right], MOST_FREQUENT
    value = float(np.mean([np.nanmean(draw) for draw in before]))
    own = max(alone, key=lambda it: it.accuracy, default=None)
    if own is not None and own.accuracy > value:
        before, how, value = list(own.right), "own columns", own.accuracy
    by_record = np.array([after - earlier for after, earlier in zip(best.right, before, strict=True)])
    named = by_record[:, ~np.isnan(by_record).all(axis=0)]
    drawn = drawn_error(np.nanmean(by_record, axis=1).tolist())
    return Compared(
        measure="accuracy",
        before=value,
        before_how=how,
        reached=best.accuracy,
        reached_how=way,
        error=hypot(paired_error(np.nanmean(named, axis=0)), drawn),
        tries=len(trained),
        known=known,
        drawn=drawn,
        details=details,
    )
