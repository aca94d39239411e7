"""The document of a frontier: its points, summed up over the seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from treetap.commands.frontier.frontier_file import FrontierFile, Plan
from treetap.commands.frontier.stored import TrainingResult
from treetap.privacy.frontiers import VERSION, FrontierDocument, Measured, MeasuredPoint

LARGEST = "V-measures are those of the feature party where they are largest, in each seed."
CENTRALISED = (
    "Models were trained on the joined table, without sockets and encryption: they are the trees that a federation "
    "finds, and views and attacks are those of its feature parties."
)
NOISY = (
    "Each training with label_dp drew its own noisy labels and charged them to a ledger of its own, which is gone with "
    "its folder: no party's ledger has them. Whoever publishes several of these models spends the sum of their ε."
)
REPAIRED = (
    "label_dp, label_dp + refit, grafting and grafting + refit are one training each: feature parties saw the same, "
    "hence their V-measures are equal."
)


def document(
    experiment: FrontierFile, digest: str, attacks: Sequence[str], found: dict[Plan, list[TrainingResult]]
) -> FrontierDocument:
    """The points of all plans. `found`: plan → a result for each seed, in the order of the seeds."""
    first = next(iter(found.values()))[0]
    says = [LARGEST] if len(first.v_measure) > 1 else []
    says += [CENTRALISED] if experiment.frontier.trainer == "centralised" else []
    says += [NOISY] if experiment.frontier.label_dp else []
    says += [REPAIRED] if experiment.frontier.grafting else []
    return FrontierDocument(
        version=VERSION,
        table=Path(experiment.data.title).name,
        data_digest=digest,
        protocol=experiment.job.protocol,
        trainer=experiment.frontier.trainer,
        job=experiment.job.params().to_dict(),
        classes=first.classes,
        records=first.records,
        seeds=experiment.data.seeds,
        attacks=list(attacks),
        says=says,
        points=[
            _point(plan, name, results, attacks, experiment.data.seeds)
            for plan, results in found.items()
            for name in plan.points
        ],
    )


def _point(
    plan: Plan, name: str, results: Sequence[TrainingResult], attacks: Sequence[str], seeds: list[int]
) -> MeasuredPoint:
    parties = {
        party: {attack: measured(result.v_measure[party][attack] for result in results) for attack in attacks}
        for party in results[0].v_measure
    }
    return MeasuredPoint(
        defence=name,
        settings=plan.settings,
        auc=measured(result.test[name]["auc"] for result in results),
        accuracy=measured(result.test[name]["accuracy"] for result in results),
        v_measure={
            attack: measured(max(party[attack] for party in result.v_measure.values()) for result in results)
            for attack in attacks
        },
        parties=parties,
        seeds=seeds,
    )


def measured(values: Iterable[float | None]) -> Measured:
    """Mean and standard deviation of a sample; undefined if a value is."""
    known = list(values)
    numbers = [value for value in known if value is not None]
    if len(numbers) < len(known):
        return Measured(mean=None)
    return Measured(mean=statistics.fmean(numbers), sd=statistics.stdev(numbers) if len(numbers) > 1 else None)
