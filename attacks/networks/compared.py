"""Labels that follow from gradients and few known labels, beside what own columns tell with the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from attacks.known_labels.compared import compared
from attacks.known_labels.evidence import standardised
from attacks.known_labels.names import Named, named_by
from attacks.known_labels.naming import regressed
from attacks.scores import UNKNOWN
from attacks.verdict import Compared

if TYPE_CHECKING:
    from attacks.networks.evidence import Evidence

Ints = npt.NDArray[np.int64]


def compared_gradients(evidence: Evidence, columns: Any) -> Iterator[Compared]:
    """The comparison on the training records whose label is at hand; none without labels or gradients.

    Args:
        columns: (N, d) the party's own, NaN where missing; None where they are not at hand.
    """
    known, truth = evidence.known, evidence.known.truth
    drawn, alone = list[tuple[Ints, Any]](), list[tuple[Ints, Any]]()
    own = standardised(columns)
    for places, (records, labels) in zip(evidence.draws, evidence.inferred, strict=False):
        scored = ~np.isin(records, places) & (truth[records] != UNKNOWN)
        named, chances = records[scored], np.zeros((int(scored.sum()), len(known.classes)))
        chances[np.arange(len(named)), labels[scored]] = 1.0
        drawn.append((named, chances))
        if own is not None:
            classes, likely = regressed(own[places], own[named], truth[places])
            chances = np.zeros_like(chances)
            chances[:, classes] = likely
            alone.append((named, chances))
    if not any(len(named) for named, _ in drawn):
        return
    taking_part = np.unique(np.concatenate([named for named, _ in drawn]))
    if len(np.unique(truth[taking_part])) < 2:
        return

    def named(pairs: list[tuple[Ints, Any]]) -> Named:
        within = [(np.searchsorted(taking_part, rows), chances) for rows, chances in pairs]
        return named_by(within, truth[taking_part], 0, 1)

    yield compared(
        {"gradients": named(drawn)},
        [named(alone)] if alone else [],
        truth[taking_part],
        known=len(evidence.draws[0]),
        first=None,
        details="network",
    )
