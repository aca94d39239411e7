"""The result of one training of a frontier, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping

from treetap.strict import Strict

#: The measures of the held-out rows that a frontier has.
MEASURES = ("auc", "accuracy")


class TrainingResult(Strict):
    """The results of a training.

    `test`: point → measures of the held-out rows; None: undefined. `v_measure`: feature party → attack.
    `local_subtrees`, `hidden_nodes`: what the label holder grew alone. `ciphertexts`: sent, by kind; none of a
    centralised training. `records`: `train` and `test`. `seconds`: wall time, attacks included.
    """

    test: dict[str, dict[str, float | None]]
    v_measure: dict[str, dict[str, float]]
    classes: int
    local_subtrees: int
    hidden_nodes: int
    ciphertexts: dict[str, int]
    records: dict[str, int]
    seconds: float


def kept(measured: Mapping[str, float | None]) -> dict[str, float | None]:
    """Those of all measures that a frontier has; an undefined AUC is None."""
    return {name: value if (value := measured[name]) == value else None for name in MEASURES}
