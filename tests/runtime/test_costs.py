"""Counts of a job that count in the process's metrics too, however they are added."""

from __future__ import annotations

from treetap.party.runtime.metrics import JobCounts, PartyMetrics


def test_every_way_of_adding_counts_in_the_metric() -> None:
    """By item and by update, into an empty counter and into one that has counts; two jobs add up."""
    metrics = PartyMetrics("bank")
    first, second = JobCounts(metrics.operations), JobCounts(metrics.operations)
    first.update({"additions": 3})
    first["additions"] += 4
    first.update({"additions": 1, "packings": 2})
    second.update({"additions": 5})
    assert (dict(first), dict(second)) == ({"additions": 8, "packings": 2}, {"additions": 5})
    counted = [
        metrics.registry.get_sample_value("treetap_ciphertext_operations_total", {"operation": name})
        for name in ("additions", "packings")
    ]
    assert counted == [13, 2]
