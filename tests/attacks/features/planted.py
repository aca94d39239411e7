"""Planted evidence: tables of auxiliary records and victims, and embeddings that a known bottom makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from treetap.attacks.features.evidence import FeatureEvidence, RealBottom, RecordSpace
from treetap.attacks.features.findings import findings
from treetap.attacks.networks.schema import FeatureSettings, VictimFigures
from treetap.attacks.registry import Needs, row, rows
from treetap.neural.architectures import bottom_to_load
from treetap.neural.params import Bottom
from treetap.tables.categories import Category, one_hot_names
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

Embeddings = npt.NDArray[np.float32]
Columns = Mapping[str, npt.NDArray[Any]]
PARTY = "feature-b"
#: Few victims and steps.
QUICK = FeatureSettings(matched=6, match_steps=150, pictures=2)


def table_of(columns: Columns, *, name: str = "auxiliary", first: int = 0, encode: str = "one-hot") -> Table:
    """A table of columns: (n,) numbers, or texts with None where missing; (n, ...) uint8 images."""
    count = len(next(iter(columns.values())))
    names: list[str] = []
    blocks = [np.empty((count, 0))]
    categories, tensors = {}, {}
    for column, cells in columns.items():
        if cells.ndim > 1:
            tensors[column] = cells
        elif cells.dtype == object:
            values = sorted({text for text in cells if text is not None})
            features = one_hot_names(column, values) if encode == "one-hot" else [column]
            categories[column] = Category(encode, values, features)
            names += features
            blocks.append(categories[column].numbers(cells.tolist()))
        else:
            names.append(column)
            blocks.append(cells.astype(np.float64)[:, None])
    return Table(
        path=Path(f"{name}.parquet"),
        ids=Ids.of(f"r{first + number:06d}" for number in range(count)),
        columns=names,
        values=Held(np.hstack(blocks)),
        label=None,
        rows=np.arange(count),
        sources=list(columns),
        categories=categories,
        tensors=tensors,
    )


@dataclass(frozen=True)
class Planted:
    """Evidence on planted embeddings, and the victims' columns."""

    evidence: FeatureEvidence
    truth: Table

    def changed(self, change: Callable[[Embeddings], Embeddings]) -> Planted:
        """The same with other embeddings."""
        given = self.evidence
        return Planted(replace(given, known=change(given.known), embeddings=change(given.embeddings)), self.truth)

    def figures(self, *only: str, real: RealBottom | None = None) -> VictimFigures:
        """The findings of some attacks as the document has them."""
        return figures(self.evidence, self.truth, real, only)


def figures(evidence: FeatureEvidence, truth: Table | None, real: Any, only: Any) -> VictimFigures:
    """The findings as the document has them."""
    found = findings(evidence, truth, real, {name: row(name).run for name in only or rows(Needs.EMBEDDINGS)})
    return VictimFigures(**found, source="training", job="job", epoch=1)


def planted(
    columns: Columns,
    embeddings: npt.NDArray[Any],
    known: int,
    settings: FeatureSettings = QUICK,
    *,
    bottom: Bottom | None = None,
    encode: str = "one-hot",
) -> Planted:
    """Evidence on records with these embeddings (n, width), of which the first `known` are auxiliary ones."""
    auxiliary = table_of({name: cells[:known] for name, cells in columns.items()}, encode=encode)
    truth = table_of({name: cells[known:] for name, cells in columns.items()}, name="truth", first=known)
    held = embeddings.astype(np.float32)
    settings_of_bottom = bottom or Bottom(width=held.shape[1])
    evidence = FeatureEvidence(
        PARTY, settings_of_bottom, auxiliary, held[:known], truth.ids, held[known:], settings, None
    )
    return Planted(evidence, truth)


def turned(width: int) -> npt.NDArray[np.float64]:
    """An orthogonal matrix (width, width)."""
    found: npt.NDArray[np.float64] = np.linalg.qr(np.random.default_rng(1).normal(size=(width, width)))[0]
    return found


def linear(columns: Columns, known: int, settings: FeatureSettings = QUICK) -> tuple[Planted, RealBottom]:
    """Records whose embedding is an orthogonal transform of their standardised inputs, and the bottom that made it."""
    own = table_of(columns)
    space = RecordSpace.of(own)
    width = space.inputs.shape.numbers
    bottom = bottom_to_load(Bottom(width=width), space.scaler.shape)
    with torch.no_grad():
        for name, weight in bottom.named_parameters():
            weight.copy_(torch.zeros(width) if name.endswith("bias") else torch.from_numpy(turned(width)))
        embeddings = bottom(space.inputs.batch(np.arange(len(own.ids)))).numpy()
    return planted(columns, embeddings, known, settings), RealBottom(bottom, space.scaler, own.categories)
