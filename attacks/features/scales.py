"""The two scales on which every attack is given embeddings: raw, and standardised by those of the auxiliary records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from attacks.features.results import Scale

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
