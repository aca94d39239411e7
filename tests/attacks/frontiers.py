"""Frontiers made by hand, for advice on them."""

from __future__ import annotations

from typing import Any

from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredPoint

DIGEST = "5e" * 32


def point(
    defence: str, settings: dict[str, Any], auc: float | None, v_measure: float, own: float = 0.2
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
        seeds=[0, 1],
    )


def frontier(*points: MeasuredPoint, protocol: str = "boosting", table: str = "bank.csv") -> FrontierDocument:
    """A document with these points and, first, that without a defence: AUC 0.9, V-measure 0.6."""
    return FrontierDocument(
        version=1,
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
        points=[point("none", {}, 0.9, 0.6), *points],
    )
