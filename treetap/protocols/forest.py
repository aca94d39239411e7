"""Random forests: its parts that differ from the other training protocols."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from treetap.protocols.dealing import DEALING
from treetap.protocols.exclusions import OF_GROWN_TREES, Feature
from treetap.protocols.growth import GROWTH, NOISED, ON_LATTICE, WORDS, by_key, ciphertexts, sets_permissions
from treetap.protocols.messages import MessageRow, label_holder_opens, once, to_feature_parties
from treetap.protocols.own_priors import by_own_trees
from treetap.protocols.registry import Centrally, Floats, Tables, TrainingProtocol
from treetap.trees.params import ForestParams
from treetap.trees.withholding import NOTHING, Withholding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treetap.trees.boosting_rounds import ForestRounds
    from treetap.trees.centralised import CentralForest


#: Fewest records of which the centralised training has metrics out of bag: the least that a policy can ask for.
LEAST_OUT_OF_BAG = 2


def train_centrally(
    tables: Tables,
    labels: npt.NDArray[Any],
    classes: int,
    params: ForestParams,
    withholding: Withholding = NOTHING,
    min_cell_records: Mapping[str, int] | None = None,
    rounds: ForestRounds | None = None,
) -> CentralForest:
    from treetap.tables.binned import bin_columns
    from treetap.trees.centralised import train_forest

    binned = [(name, bin_columns(table, params.max_bin, params.one_hot_below, len(labels))) for name, table in tables]
    raw = [(name, table.features) for name, table in tables]
    return train_forest(raw, labels, params, classes, binned, withholding, min_cell_records, rounds)


def central_rounds(
    params: ForestParams, classes: int, labels: npt.NDArray[Any], _weights: None, evaluated: Any
) -> ForestRounds:
    from treetap.trees.boosting_rounds import ForestRounds

    further = None if evaluated is None else evaluated[0]
    return ForestRounds(params, classes, labels, further, LEAST_OUT_OF_BAG)


def predict_centrally(
    before: Tables,
    after: Tables,
    labels: npt.NDArray[Any],
    classes: int,
    params: ForestParams,
    withholding: Withholding = NOTHING,
    min_cell_records: Mapping[str, int] | None = None,
) -> tuple[Floats, Floats]:
    forest = train_centrally(before, labels, classes, params, withholding, min_cell_records)
    scores = forest.predict([(name, table.features) for name, table in after])
    return scores, forest.ensemble.outcome(scores)


PROTOCOL = TrainingProtocol(
    field="forest",
    params=ForestParams,
    sends=(
        *GROWTH,
        NOISED,
        *ON_LATTICE,
        *DEALING,
        replace(WORDS, also=("share_labels", *WORDS.also)),
        MessageRow("encrypted_labels", to_feature_parties, once, ciphertexts, step="share_labels", when=by_key),
    ),
    opens_sums=label_holder_opens,
    centrally=Centrally(predict_centrally, train_centrally, central_rounds),
    drawn=True,
    permissions=sets_permissions,
    capabilities=OF_GROWN_TREES
    | {Feature.COLUMN_PRIVACY, Feature.LATTICE, Feature.WITHHELD, Feature.SHARED, Feature.LEFT},
    own_priors=by_own_trees,
)
