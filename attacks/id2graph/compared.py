"""Groups of records with the training beside what needs none of it, record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.attacks.id2graph.schema import AttackResult
from treetap.attacks.scores import majority
from treetap.attacks.verdict import MOST_FREQUENT, Compared, paired_error

Bools = npt.NDArray[np.bool_]


class Grouped(NamedTuple):
    """The records (N,) that an attack names right after the number of trees where most are; `label`: its name."""

    right: Bools
    trees: int | None
    label: str


def compared_groups(
    truth: npt.NDArray[np.int64], attacks: Mapping[str, Grouped], results: Mapping[str, AttackResult]
) -> Iterator[Compared]:
    """The attack of the largest accuracy beside own columns (CL) or the most frequent class; none without an attack.

    Args:
        truth: (N,) numbers of classes.
    """
    trained = {name: it for name, it in attacks.items() if name != "cl"}
    if not trained:
        return
    before, how = truth == np.bincount(truth).argmax(), MOST_FREQUENT
    if (own := attacks.get("cl")) is not None and own.right.mean() > majority(truth):
        before, how = own.right, "own columns"
    best = max(trained, key=lambda name: trained[name].right.mean())
    after = "" if (trees := trained[best].trees) is None else f" after {trees} trees"
    yield Compared(
        measure="accuracy",
        before=float(before.mean()),
        before_how=how,
        reached=float(trained[best].right.mean()),
        reached_how=f"{trained[best].label}{after}",
        error=paired_error(trained[best].right.astype(np.int64) - before),
        tries=max(1, sum(_steps(results[name]) for name in trained)),
        details="attacks",
    )


def _steps(result: AttackResult) -> int:
    """The numbers of trees after which an attack was scored."""
    return len([value for value in result.accuracy_by_tree or [] if value is not None]) or 1
