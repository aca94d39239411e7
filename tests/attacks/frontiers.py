"""Frontiers made by hand, for advice on them."""

from __future__ import annotations

from typing import Any

from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredCells, MeasuredPoint

DIGEST = "5e" * 32


def point(
    defence: str,
    settings: dict[str, Any],
    auc: float | None,
    v_measure: float,
    own: float = 0.2,
    read: float | None = None,
) -> MeasuredPoint:
    """A point of two seeds, by the quotient form of ID2Graph."""
    figures = {"id2graph-quotient": Measured(mean=v_measure, sd=0.01), "cl": Measured(mean=own, sd=0.0)}
    return MeasuredPoint(
        defence=defence,
        settings=settings,
        auc=Measured(mean=auc, sd=0.01),
        accuracy=Measured(mean=0.8),
        v_measure=figures,
        parties={},
        cells=None if read is None else cells(read),
        cells_of={},
        seeds=[0, 1],
    )


def cells(read: float) -> MeasuredCells:
    """Cells read, of which left sets alone place 0.1."""
    return MeasuredCells(read=Measured(mean=read, sd=0.02), left_sets=Measured(mean=0.1), given=Measured(mean=0.9))


def frontier(
    *points: MeasuredPoint, protocol: str = "boosting", table: str = "bank.csv", read: float | None = None
) -> FrontierDocument:
    """A document with these points and, first, that without a defence: AUC 0.9, V-measure 0.6."""
    return FrontierDocument(
        version=2,
        table=table,
        data_digest=DIGEST,
        protocol=protocol,
        trainer="centralised",
        job={"n_estimators": 5, "max_depth": 4},
        classes=2,
        records={"train": 800, "test": 200},
        seeds=[0, 1],
        attacks=["id2graph-quotient", "cl"],
        says=[],
        points=[point("none", {}, 0.9, 0.6, read=read), *points],
    )
