"""Boosting (SecureBoost, Cheng et al. 2021): its parts that differ from the other training protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from treetap.protocols.dealing import DEALING
from treetap.protocols.exclusions import OF_GROWN_TREES, Feature
from treetap.protocols.growth import GROWTH, NOISED, ON_LATTICE, WORDS, by_key, ciphertexts, sets_permissions
from treetap.protocols.messages import MessageRow, each_round, label_holder_opens, to_feature_parties
from treetap.protocols.own_priors import by_own_trees
from treetap.protocols.registry import Centrally, Floats, Tables, TrainingProtocol
from treetap.trees.params import BoostingParams
from treetap.trees.withholding import NOTHING, Withholding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from treetap.trees.binning import BinnedTable
    from treetap.trees.boosting_rounds import BoostingRounds
    from treetap.trees.centralised import CentralModel
    from treetap.wire.v2 import setup_pb2


def train_centrally(
    tables: Tables,
    labels: npt.NDArray[Any],
    classes: int,
    params: BoostingParams,
    withholding: Withholding = NOTHING,
    weights: Floats | None = None,
    min_cell_records: Mapping[str, int] | None = None,
    rounds: BoostingRounds | None = None,
) -> CentralModel:
    from treetap.trees.centralised import train

    bins = _binned(tables, params, len(labels))
    given: dict[str, Any] = {"min_cell_records": min_cell_records, "rounds": rounds}
    return train(bins, labels, params, classes or None, withholding, weights, **given)


def predict_centrally(
    before: Tables,
    after: Tables,
    labels: npt.NDArray[Any],
    classes: int,
    params: BoostingParams,
    withholding: Withholding = NOTHING,
    weights: Floats | None = None,
    min_cell_records: Mapping[str, int] | None = None,
) -> tuple[Floats, Floats]:
    from treetap.trees.centralised import train

    bins = _binned(before, params)
    model = train(bins, labels, params, classes or None, withholding, weights, min_cell_records=min_cell_records)
    encoded = dict(bins)
    scores = model.predict([(name, encoded[name].encode(table.features)) for name, table in after])
    return scores, model.ensemble.outcome(scores)


def central_rounds(
    params: BoostingParams, classes: int, labels: npt.NDArray[Any], weights: Floats | None, evaluated: Any
) -> BoostingRounds:
    from treetap.trees.boosting_rounds import BoostingRounds

    return BoostingRounds(params, classes, labels, weights, evaluated)


def _binned(tables: Tables, params: BoostingParams, training: int | None = None) -> list[tuple[str, BinnedTable]]:
    from treetap.tables.binned import bin_columns

    return [(name, bin_columns(table, params.max_bin, params.one_hot_below, training)) for name, table in tables]


def _permissions(spec: setup_pb2.JobSpec) -> Sequence[str]:
    from treetap.protocols.job_spec import params_as  # it imports the registry, which names this module

    one_by_one = params_as(spec, BoostingParams).expansion.one_by_one
    return (*(("expansion_order",) if one_by_one else ()), *sets_permissions(spec))


PROTOCOL = TrainingProtocol(
    field="boosting",
    params=BoostingParams,
    sends=(
        *GROWTH,
        NOISED,
        *ON_LATTICE,
        *DEALING,
        WORDS,
        MessageRow("gradients", to_feature_parties, each_round, ciphertexts, step="begin_tree", when=by_key),
    ),
    opens_sums=label_holder_opens,
    centrally=Centrally(predict_centrally, train_centrally, central_rounds),
    sequential=True,
    permissions=_permissions,
    capabilities=OF_GROWN_TREES
    | {
        Feature.COLUMN_PRIVACY,
        Feature.LATTICE,
        Feature.WITHHELD,
        Feature.SHARED,
        Feature.BASE_MODEL,
        Feature.MONOTONE,
        *(Feature.WEIGHT, Feature.BASE_MARGIN, Feature.EXPOSURE),
        Feature.LEFT,
    },
    own_priors=by_own_trees,
)
