"""The evidence of a label holder on one feature party's columns: embeddings, and the columns of auxiliary records.

Every attack is given embeddings on two scales: raw, and standardised by those of the auxiliary records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from treetap.attacks.features.schema import FeatureSettings, Scale
from treetap.errors import BadInput
from treetap.neural.params import Bottom
from treetap.tables.reading import Table

Embeddings = npt.NDArray[np.float32]
SCALES: tuple[Scale, Scale] = ("raw", "standardised")
#: A deviation below this share of the mean is rounding.
_ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Scaling:
    """The change (e − mean) / deviation of each coordinate of an embedding, both (width,) float64."""

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]

    @classmethod
    def of(cls, scale: Scale, known: Embeddings) -> Scaling:
        """The scaling by embeddings (n, width) of auxiliary records: of `raw` none.

        A coordinate that is constant, or varies by no more than rounding, has deviation 1.
        """
        width = known.shape[1]
        if scale == "raw":
            return cls(np.zeros(width), np.ones(width))
        values = known.astype(np.float64)
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        constant = deviation <= _ROUNDING * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, deviation))

    def apply(self, embeddings: Embeddings) -> torch.Tensor:
        """Embeddings (n, width) on this scale, as float32."""
        return torch.from_numpy(((embeddings - self.mean) / self.deviation).astype(np.float32))

    def of_tensor(self, embeddings: torch.Tensor) -> torch.Tensor:
        """The same of a tensor in a graph."""
        mean, deviation = (torch.from_numpy(part.astype(np.float32)) for part in (self.mean, self.deviation))
        return (embeddings - mean) / deviation


@dataclass(frozen=True)
class FeatureEvidence:
    """All that attacks on the columns of one feature party use.

    Attributes:
        party: the feature party.
        bottom: the settings of its own model, which every party reads in the job.
        auxiliary: the auxiliary records with the columns that the label holder knows of them.
        known: (a, width) their embeddings, row by row.
        victims: (v) ids of the records whose columns are guessed.
        embeddings: (v, width) their embeddings, row by row.
        attributes: the columns that are guessed one by one; None: all that are no images.

    Raises:
        BadInput: on construction; auxiliary records are among the victims, there are none of either, an attribute is
            no column of theirs, or embeddings are not of the same records or not finite.
    """

    party: str
    bottom: Bottom
    auxiliary: Table = field(repr=False)
    known: Embeddings = field(repr=False)
    victims: Sequence[str] = field(repr=False)
    embeddings: Embeddings = field(repr=False)
    settings: FeatureSettings
    attributes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if both := sorted(set(self.auxiliary.ids).intersection(self.victims)):
            raise BadInput(
                f"{self.auxiliary.path}: {len(both)} records are among the victims, such as {both[0]!r}: an attack "
                "that is given what it guesses measures nothing; leave them out of one of the two"
            )
        for what, count, values in (
            ("auxiliary records", len(self.auxiliary.ids), self.known),
            ("victims", len(self.victims), self.embeddings),
        ):
            if not count:
                raise BadInput(
                    f"{self.auxiliary.path}: there are no {what} among the records with embeddings of {self.party}"
                )
            if values.shape != (count, self.bottom.width):
                raise BadInput(
                    f"{self.party}: embeddings of shape {values.shape} for {count} {what} and width {self.bottom.width}"
                )
            if not np.isfinite(values).all():
                raise BadInput(f"{self.party}: embeddings of {what} are not finite, which no attack can use")
        # images are guessed as whole records alone
        have = [name for name in self.auxiliary.sources if name not in self.auxiliary.tensors]
        if strangers := [name for name in self.attributes or () if name not in have]:
            raise BadInput(
                f"{self.auxiliary.path}: has no column {strangers[0]!r} to guess as an attribute; "
                + (f"it has: {', '.join(have)}" if have else "it has none but images: leave attributes out")
            )
