"""Averaged regression trees of winsorised labels: labels beyond two quantiles count as the quantiles."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from treetap.arrays import Ints
from treetap.protocols.growth import GROWTH, ciphertexts
from treetap.protocols.messages import MessageRow, label_holder_opens, once, to_feature_parties
from treetap.protocols.registry import Centrally, Floats, Tables, TrainingProtocol
from treetap.trees import sampling
from treetap.trees.job_params import Range, out_of_range
from treetap.trees.params import COMMON, ForestParams, TreeParams


@dataclass(frozen=True)
class WinsorisedParams(TreeParams):
    """Parameters of a job; `trim` is the share of the labels, at either end, that the quantile there replaces."""

    protocol: ClassVar[str] = "winsorised"
    trim: float = 0.05

    @property
    def objective(self) -> str:
        """See `TreeParams`."""
        return "squared_error"

    @property
    def draws_records(self) -> bool:
        """See `TreeParams`."""
        return self.subsample < 1

    def outputs(self, classes: int) -> int:  # noqa: ARG002 - labels are numbers
        """See `TreeParams`: the mean."""
        return 1

    def drawn(self, tree: int, records: int) -> Ints:
        """See `TreeParams`."""
        return sampling.drawn(self.seed, tree, records, self.subsample, bootstrap=False)

    def faults(self) -> list[str]:
        """See `TreeParams`."""
        return out_of_range(self, {**COMMON, "trim": Range(0, 0.5, open_high=True)}) + self.common_faults()

    def winsorised(self, labels: npt.NDArray[Any]) -> Floats:
        """Labels (N,) between their quantiles `trim` and 1 - `trim`."""
        lowest, highest = np.quantile(labels, [self.trim, 1 - self.trim])
        found: Floats = np.clip(labels, lowest, highest)
        return found

    def of_forest(self) -> ForestParams:
        """The forest that is grown on these labels."""
        shared = {field.name: getattr(self, field.name) for field in fields(TreeParams)}
        return ForestParams(**shared, criterion="squared_error")


def predict_centrally(
    before: Tables, after: Tables, labels: npt.NDArray[Any], classes: int, params: WinsorisedParams
) -> tuple[Floats, Floats]:
    """See `TrainingProtocol`."""
    from treetap.trees.centralised import train_forest

    blocks = [(name, table.features) for name, table in before]
    forest = train_forest(blocks, params.winsorised(labels), params.of_forest(), classes)
    scores = forest.predict([(name, table.features) for name, table in after])
    return scores, forest.ensemble.outcome(scores)


PROTOCOL = TrainingProtocol(
    field="winsorised",
    params=WinsorisedParams,
    sends=(
        *GROWTH,
        MessageRow("encrypted_targets", to_feature_parties, once, ciphertexts, step="share_targets"),
    ),
    opens_sums=label_holder_opens,
    centrally=Centrally(predict_centrally),
    drawn=True,
)
