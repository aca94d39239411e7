"""Suggestions from a measured frontier: of this table, or of the nearest one; effects of each defence there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from attacks.advice.advised_job import AdvisedJob
from attacks.advice.defence_lines import JOB, lines_of, settings_of
from attacks.advice.frontiers_at_hand import form_of, shipped
from attacks.advice.pivodl_parameters import parameters
from attacks.advice.results import Advice, Defence, Effect, Source, Suggestion, Whose, Withheld
from treetap.privacy.frontiers import FrontierDocument, Measured

#: The least share of what the training adds that is taken away by what helps; the share from which prices decide.
LEAST, MOST_OF_IT = 0.25, 0.5
#: The least V-measure that a measured training adds if shares of it are to say something.
LEAK = 0.02
#: A training that adds less to the V-measure of the own columns has little to lower.
LITTLE = 0.05
#: A table is like another one if its V-measure is at most so many times as large or as small.
NEAR = 2.0
#: The attack that needs no training.
OWN = "cl"
_DEFENCES: dict[str, Defence] = {name: name for name in get_args(Defence)}


@dataclass(frozen=True)
class _Measure:
    """A defence with its settings, its effect, and what follows from it."""

    defence: Defence
    settings: dict[str, Any]
    effect: Effect
    taken: float | None
    price: float | None


def advise(job: AdvisedJob, given: tuple[Whose, FrontierDocument] | None) -> Advice:
    """The advice for a job. `given`: a frontier of its protocol and whose table it is of, beside the project's own."""
    fields: dict[str, Any] = {"v_measure": job.v_measure, "own": job.own, "source": None, "withheld": None}
    fields |= {"unlike": None, "suggestions": [], "parameters": []}
    fields["defences"] = None if job.defences is None else [name for name, value in job.defences.items() if value]
    if job.protocol == "pivodl":
        return Advice(**fields | {"parameters": parameters(job.params)})
    sources = [pair for pair in _at_hand(job, given) if pair[0] is not None]
    source, withheld = _nearest(job, sources)
    if given is not None and (source is None or source[0].digest != given[1].data_digest):
        fields["unlike"] = None if withheld == "little to lower" else given[1].table
    if source is None:
        return Advice(**fields | {"withheld": withheld})
    return Advice(**fields | {"source": source[0], "suggestions": _suggestions(job, *source)})


Sourced = tuple[Source, FrontierDocument]


def _at_hand(job: AdvisedJob, given: tuple[Whose, FrontierDocument] | None) -> list[Sourced]:
    """The frontiers that say what defences take away; one of the very table is known by its digest."""
    frontiers: list[tuple[Whose, FrontierDocument]] = [] if given is None else [given]
    for document in shipped(job.protocol):
        frontiers.append(("this table" if document.data_digest == job.data_digest else "project", document))
    return [(source, document) for whose, document in frontiers if (source := _source(whose, document)) is not None]


def _source(whose: Whose, document: FrontierDocument) -> Source | None:
    """A frontier's table and its measures without a defence; None where it lacks them."""
    without = next((point for point in document.points if point.defence == "none"), None)
    form = form_of(document)
    if without is None or form is None:
        return None
    before, own = without.v_measure[form].mean, without.v_measure.get(OWN, Measured(mean=None)).mean
    if before is None or own is None:
        return None
    return Source(
        table=document.table,
        whose=whose,
        digest=document.data_digest,
        records=document.records["train"],
        classes=document.classes,
        trees=document.job["n_estimators"],
        max_depth=document.job["max_depth"],
        seeds=len(document.seeds),
        v_measure=before,
        own=own,
        auc=without.auc.mean,
    )


def _nearest(job: AdvisedJob, sources: Sequence[Sourced]) -> tuple[Sourced | None, Withheld | None]:
    """The frontier of this table, else the one of as many classes whose V-measure is nearest by its ratio."""
    if job.v_measure is not None and job.own is not None and job.v_measure - job.own < LITTLE:
        return None, "little to lower"
    if here := [source for source in sources if source[0].whose == "this table"]:
        return here[0], None
    if job.v_measure is None or job.classes is None:
        return None, "nothing scored"

    def ratio(source: Sourced) -> float:
        low, high = sorted((source[0].v_measure, job.v_measure or 0.0))
        return high / low if low > 0 else float("inf")

    like = [source for source in sources if source[0].classes == job.classes and ratio(source) <= NEAR]
    return (min(like, key=ratio), None) if like else (None, "no table is near")


def _suggestions(job: AdvisedJob, source: Source, document: FrontierDocument) -> list[Suggestion]:
    """Points of the frontier that are stricter than what the job has, those that help first."""
    every = _measures(source, document)
    suggested = [
        Suggestion(
            defence=it.defence,
            settings=it.settings,
            helps=it.taken is not None and it.taken >= LEAST and not any(_beats(other, it) for other in every),
            taken=it.taken,
            price=it.price,
            effect=it.effect,
            lines=lines_of(it.defence, written, job.label_holder),
        )
        for it in every
        if (written := job.stricter(it.defence, it.settings))
    ]
    return sorted(suggested, key=_rank)


def _measures(source: Source, document: FrontierDocument) -> list[_Measure]:
    """The effect of each point that can be written, against the point without a defence."""
    form, added, measures = form_of(document), source.v_measure - source.own, []
    assert form is not None  # otherwise it is no source
    for point in document.points:
        defence, left = _DEFENCES.get(point.defence), point.v_measure[form]
        if defence is None or left.mean is None:
            continue
        effect = Effect(v_measure=left.mean, v_sd=left.sd, auc=point.auc.mean, auc_sd=point.auc.sd)
        taken = (source.v_measure - max(left.mean, source.own)) / added if added >= LEAK else None
        price = None if source.auc is None or effect.auc is None else source.auc - effect.auc
        measures.append(_Measure(defence, settings_of(point.settings), effect, taken, price))
    return measures


def _beats(other: _Measure, it: _Measure) -> bool:
    """True if the other does the same and takes as much away for less.

    Any defence does what settings of the job do; repairs of a model do the same where they are of the same noise.
    """
    if other.defence in (JOB, it.defence) or (it.defence != JOB and other.settings != it.settings):
        return False
    if it.taken is None or it.price is None or other.taken is None or other.price is None:
        return False
    cheaper = other.price < it.price or (it.defence == JOB and other.price <= it.price)
    return other.taken >= it.taken and cheaper


def _rank(it: Suggestion) -> tuple[bool, bool, float, float]:
    """The order of suggestions: those that help first, and of these first what takes away most of the leak, the lowest
    price first; then the largest share. Prices within a hundredth are equal: seeds differ by as much.
    """
    taken, price = it.taken or 0.0, 1.0 if it.price is None else max(0.0, it.price)
    cheap = it.helps and taken >= MOST_OF_IT
    return not it.helps, not cheap, round(price, 2) if cheap else 0.0, -taken
