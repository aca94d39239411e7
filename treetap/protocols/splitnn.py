"""Split networks (Sun et al. 2023): embeddings forward, gradients back; Party-wise Dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from treetap.neural.params import SplitnnParams
from treetap.protocols.exclusions import Feature
from treetap.protocols.messages import (
    MessageRow,
    Series,
    each_stage,
    label_holder_opens,
    label_holder_reports,
    planned_rounds,
    to_feature_parties,
    to_label_holder,
)
from treetap.protocols.own_priors import OwnPriors, columns_digest
from treetap.protocols.registry import Centrally, Floats, Needs, Tables, TrainingProtocol
from treetap.protocols.splitnn_prediction import NetworkSizes, embeddings_of_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from treetap.arrays import Ints
    from treetap.neural.defences import FeatureDefences, LabelDefences
    from treetap.tables.reading import Table
    from treetap.wire.v2 import setup_pb2


def predict_centrally(
    before: Tables,
    after: Tables,
    labels: npt.NDArray[Any],
    classes: int,
    params: SplitnnParams,
    defences: LabelDefences | None = None,
    of_columns: Mapping[str, FeatureDefences] | None = None,
) -> tuple[Floats, Floats]:
    """See `Centrally`: by one graph, with the draws of a reproducible job.

    `defences`: the label holder's; `of_columns`: those of feature parties, by name.
    """
    import numpy as np

    from treetap.neural.centralised import central_network
    from treetap.trees.loss import outcome_of

    network, scalers = central_network(before, labels, classes, params, defences, of_columns)
    network.train()
    inputs = {name: scalers[name].apply(table) for name, table in after if name in scalers}
    scores = network.scores(inputs, np.arange(len(after[0][1].ids), dtype=np.int64))
    return scores, outcome_of(params.objective, classes, scores)


def own_priors(table: Table, classes: int, party: str, params: SplitnnParams) -> OwnPriors:
    """By the label holder's own model, trained alone; its initial weights are the operating system's draws.

    Noisy labels serve networks of all sizes: see docs/adr/0135-label-dp-of-networks.md.
    """
    from treetap.neural.centralised import MODEL, OwnNetwork
    from treetap.neural.draws import Draws, new_key

    def priors(before: Ints, noisy: Ints, following: Ints) -> Floats:
        return OwnNetwork(table, classes, party, params, Draws(new_key())).of(following, before, noisy)

    return OwnPriors(f"{MODEL} {columns_digest(table)}", priors)


def _permissions(spec: setup_pb2.JobSpec) -> Sequence[str]:
    from treetap.protocols.job_spec import params_as  # it imports the registry, which names this module

    return ("reproducible",) if params_as(spec, SplitnnParams).reproducible else ()


def gradients_of_batch(sizes: NetworkSizes, series: Series) -> int:
    """The gradient in the receiver's embedding of each record of a batch."""
    return sizes.numbers(series.receiver, sizes.rows)


PROTOCOL = TrainingProtocol(
    field="splitnn",
    params=SplitnnParams,
    sends=(
        planned_rounds("fit_inputs"),
        MessageRow("embeddings", to_label_holder, each_stage, embeddings_of_rows, step="train_epoch"),
        MessageRow("embedding_gradients", to_feature_parties, each_stage, gradients_of_batch, step="train_epoch"),
        MessageRow("trained_epoch", label_holder_reports, step="train_epoch"),
    ),
    opens_sums=label_holder_opens,
    centrally=Centrally(predict_centrally),
    grows_trees=False,
    predicts=("splitnn",),
    permissions=_permissions,
    capabilities=frozenset({Feature.DIMIP, Feature.GRADIENT, Feature.LABEL_DP, Feature.SENSITIVITY, Feature.DP_SGD}),
    needs=Needs("torch", "neural"),
    own_priors=own_priors,
)
