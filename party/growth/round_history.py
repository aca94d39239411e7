"""The metrics of a job of trees after each round, on disk line by line until the model is published with them."""

from __future__ import annotations

from collections.abc import Mapping

from party.growth.label_state import finite
from party.runtime.job_store import JobStore
from treetap.models.history import read_history
from treetap.models.store import HISTORY


def keep_round(store: JobStore, number: int, trees: int, metrics: Mapping[str, float]) -> None:
    """Store the metrics of round `number`, after which `trees` trees are stored; before the scores that include it."""
    store.lines(HISTORY).put({"round": number, "trees": trees, "metrics": finite(metrics)}, number)


def stored_rounds(store: JobStore, trees: int) -> list[dict[str, float | None]]:
    """The metrics of the rounds of the first `trees` trees, or of the published model.

    A round whose trees an interruption kept from being stored does not count.
    """
    if store.published:
        return read_history(store.model)
    return [dict(line["metrics"]) for line in store.lines(HISTORY).read() if line["trees"] <= trees]
