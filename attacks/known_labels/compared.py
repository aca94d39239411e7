"""Names of records by few known labels and the training beside those by own columns alone, record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import hypot, sqrt

import numpy as np

from attacks.known_labels.evidence import SignatureEvidence
from attacks.known_labels.names import Named
from attacks.verdict import Compared, FirstNamed, drawn_error, paired_error, unbalanced

_Attacks = Mapping[tuple[str, str], Named]
#: Kind of rows → its words in a verdict.
_TRAINED = {"nodes": "the nodes that it knows", "both": "nodes and own columns"}
#: Attack → its words in a verdict.
_ATTACKS = {"known-neighbours": "nearest neighbours", "known-regression": "a regression"}


def compared_names(evidence: SignatureEvidence) -> Iterator[Compared]:
    """The best attack by the training beside the best one without: by AUC on an unbalanced table, else by accuracy."""
    trained = {key: it for key, it in evidence.named.items() if key[1] in _TRAINED}
    if not trained:
        return
    alone = {key: it for key, it in evidence.named.items() if key[1] == "columns"}
    by_auc = unbalanced(np.bincount(evidence.truth).tolist())
    yield _by_auc(evidence, trained, alone) if by_auc else _by_accuracy(evidence, trained, alone)


def _by_auc(evidence: SignatureEvidence, trained: _Attacks, alone: _Attacks) -> Compared:
    attack, kind = max(trained, key=lambda key: trained[key].auc)
    best = trained[attack, kind]
    own = max(alone.values(), key=lambda it: it.auc, default=None)
    beaten = own is not None and own.auc > 0.5
    before = own if own is not None and beaten else None
    influences = [
        draw - (0.0 if before is None else before.influence[number]) for number, draw in enumerate(best.influence)
    ]
    differences = [auc - (0.5 if before is None else before.aucs[number]) for number, auc in enumerate(best.aucs)]
    over_records = sqrt(float((np.mean(influences, axis=0) ** 2).sum()))
    drawn = evidence.described()
    assert drawn is not None
    # among the first, too, a party can always go by its own columns
    earlier = max((float(np.mean(it.firsts)) for it in alone.values()), default=drawn.chance)
    first = FirstNamed(
        first=drawn.first,
        rarest=drawn.rarest,
        before=earlier,
        after=max(earlier, *(float(np.mean(it.firsts)) for it in trained.values())),
        chance=drawn.chance,
    )
    return Compared(
        measure="AUC",
        before=0.5 if before is None else before.auc,
        before_how="guessing" if before is None else "own columns",
        reached=best.auc,
        reached_how=f"{_ATTACKS[attack]} by {_TRAINED[kind]}",
        error=hypot(over_records, drawn_error(differences)),
        tries=len(trained),
        known=drawn.known,
        first=first,
        details="known",
    )


def _by_accuracy(evidence: SignatureEvidence, trained: _Attacks, alone: _Attacks) -> Compared:
    attack, kind = max(trained, key=lambda key: trained[key].accuracy)
    best, truth = trained[attack, kind], evidence.truth
    frequent = (truth == np.bincount(truth).argmax()).astype(np.float64)
    always = [np.where(np.isnan(draw), np.nan, frequent) for draw in best.right]
    before, how = always, "always naming the most frequent class"
    value = float(np.mean([np.nanmean(draw) for draw in always]))
    own = max(alone.values(), key=lambda it: it.accuracy, default=None)
    if own is not None and own.accuracy > value:
        before, how, value = list(own.right), "own columns", own.accuracy
    by_record = np.array([after - earlier for after, earlier in zip(best.right, before, strict=True)])
    named = by_record[:, ~np.isnan(by_record).all(axis=0)]
    drawn = evidence.described()
    assert drawn is not None
    return Compared(
        measure="accuracy",
        before=value,
        before_how=how,
        reached=best.accuracy,
        reached_how=f"{_ATTACKS[attack]} by {_TRAINED[kind]}",
        error=hypot(paired_error(np.nanmean(named, axis=0)), drawn_error(np.nanmean(by_record, axis=1).tolist())),
        tries=len(trained),
        known=drawn.known,
        details="known",
    )
