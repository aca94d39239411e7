"""The label holder's report on the model that it has published: its trees, those in use, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treetap.wire.v2 import setup_pb2, types_pb2


def published_model(manifest: Mapping[str, Any]) -> setup_pb2.PublishedModel:
    """The report on a model, from the label holder's manifest. A metric that is no finite number is left out."""
    trees, best_round = manifest["trees"], manifest["best_round"]
    metrics = manifest["training_metrics"].items()
    return setup_pb2.PublishedModel(
        trees=trees,
        used_trees=trees if best_round is None else (best_round + 1) * manifest["trees_per_round"],
        metrics=[types_pb2.NamedMetric(name=name, value=value) for name, value in metrics if value is not None],
    )
