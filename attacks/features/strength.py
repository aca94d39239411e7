"""Results of attacks on columns as one figure each, which limits, pictures and sentences go by."""

from __future__ import annotations

from typing import Literal

from attacks.features.results import Attribute, Reconstruction, Scale


def attribute_figure(column: Attribute, what: Scale | Literal["floor"] | None) -> float | None:
    """Accuracy of a class, or R² of a number, by embeddings or of the floor, which is 0 of a number.

    None where it is not scored, and for None, the stronger scale of a column that is not.
    """
    if what is None:
        return None
    if column.kind == "class":
        scores = getattr(column, what)
        return None if scores is None else float(scores.accuracy)
    if what == "floor":
        return None if column.raw_r2 is None else 0.0
    return column.raw_r2 if what == "raw" else column.standardised_r2


def record_strength(guess: Reconstruction, scale: Scale) -> float | None:
    """SSIM of images; of tables, and of images smaller than its window, the share of the floor's error that is removed.

    None where nothing is scored. Below 0 the mean auxiliary record is nearer.
    """
    scores, floor = getattr(guess, scale), guess.floor
    if scores is None or floor is None:
        return None
    if scores.ssim is not None:
        return float(scores.ssim)
    return float(1.0 - scores.mse / floor.mse) if floor.mse else float(not scores.mse)
