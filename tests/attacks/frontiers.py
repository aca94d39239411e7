"""Frontiers made by hand, for advice on them."""

from __future__ import annotations

from typing import Any

from treetap.privacy.frontiers import (
    FrontierDocument,
    Measured,
    MeasuredAlone,
    MeasuredCells,
    MeasuredPoint,
    Recommended,
)

DIGEST = "5e" * 32


#: What can be guessed without the training, and the AUC of the label holder alone.
BEFORE, ALONE = 0.2, 0.7


def point(
    defence: str,
    settings: dict[str, Any],
    auc: float | None,
    guessed: float,
    before: float = BEFORE,
    read: float | None = None,
) -> MeasuredPoint:
    """A point of two seeds: `guessed` of the labels with the training, `before` without it."""
    return MeasuredPoint(
        defence=defence,
        settings=settings,
        auc=Measured(mean=auc, sd=0.01),
        accuracy=Measured(mean=0.8),
        v_measure={"id2graph-quotient": Measured(mean=guessed, sd=0.01), "cl": Measured(mean=before, sd=0.0)},
        parties={"telco": {}, "shop": {}},
        added=Measured(mean=max(0.0, guessed - before), sd=0.01),
        gain=Measured(mean=None if auc is None else auc - ALONE, sd=0.01),
        cells=None if read is None else cells(read),
        cells_of={},
        seeds=[0, 1],
    )


def cells(read: float) -> MeasuredCells:
    """Cells read, of which left sets alone place 0.1; of the variance of numbers the share is 0.9 whatever is read."""
    shares = {"left_sets": Measured(mean=0.1), "given": Measured(mean=0.9), "explained": Measured(mean=0.9, sd=0.01)}
    return MeasuredCells(read=Measured(mean=read, sd=0.02), **shares)


def frontier(
    *points: MeasuredPoint, protocol: str = "boosting", table: str = "bank.csv", read: float | None = None
) -> FrontierDocument:
    """A document with these points and, first, that without a defence: AUC 0.9, 0.6 of the labels guessed."""
    return FrontierDocument(
        version=4,
        table=table,
        data_digest=DIGEST,
        protocol=protocol,
        label_holder="bank",
        trainer="centralised",
        job={"n_estimators": 5, "max_depth": 4},
        classes=2,
        records={"train": 800, "test": 200},
        seeds=[0, 1],
        attacks=["id2graph-quotient", "cl"],
        measure="accuracy",
        before=Measured(mean=BEFORE),
        says=[],
        points=[point("none", {}, 0.9, 0.6, read=read), *points],
        alone=MeasuredAlone(auc=Measured(mean=ALONE, sd=0.01), accuracy=Measured(mean=0.7)),
        recommended=Recommended(point=None, says="Nothing is recommended."),
    )
