"""Boosting (SecureBoost, Cheng et al. 2021): its parts that differ from the other training protocols."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from treetap.protocols.emissions import GROWTH, Emission, label_holder_opens, to_feature_parties
from treetap.protocols.registry import DEFENCES, Floats, Tables, TrainingProtocol
from treetap.trees.params import BoostingParams


def predict_centrally(
    before: Tables, after: Tables, labels: npt.NDArray[Any], classes: int, params: BoostingParams
) -> tuple[Floats, Floats]:
    """See `TrainingProtocol`."""
    from treetap.trees.binning import bin_table
    from treetap.trees.centralised import train

    bins = {
        name: bin_table(table.features, table.columns, params.max_bin, may_be_constant=table.made)
        for name, table in before
    }
    model = train(list(bins.items()), labels, params, classes or None)
    scores = model.predict([(name, bins[name].encode(table.features)) for name, table in after])
    return scores, model.ensemble.outcome(scores)


PROTOCOL = TrainingProtocol(
    field="boosting",
    params=BoostingParams,
    sends=(*GROWTH, Emission("gradients", to_feature_parties)),
    opens_sums=label_holder_opens,
    trees_are_sequential=True,
    draws_for_audit=False,
    predict_centrally=predict_centrally,
    defences=DEFENCES,
)
