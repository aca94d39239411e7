"""Suggestions from measured frontiers: effects of each defence over the tables at hand, the best first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from attacks.advice.defence_lines import JOB, WRITTEN, lines_of, settings_of
from attacks.advice.frontiers_at_hand import form_of, shipped
from attacks.advice.pivodl_parameters import PARAMETERS
from attacks.advice.results import Advice, Effect, Source, Suggestion, Whose
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredPoint

#: The least share of what the training adds that is taken away by what helps; the share from which prices decide.
LEAST, MOST_OF_IT = 0.25, 0.5
#: The attack that needs no training.
OWN = "cl"


@dataclass
class _Measures:
    """A defence with its settings, and its effects on each table, by whose table it is."""

    defence: str
    settings: dict[str, Any]
    effects: dict[Whose, list[Effect]] = field(default_factory=lambda: defaultdict(list))


def advise(
    protocol: str, label_holder: str, feature_parties: Sequence[str], given: tuple[Whose, FrontierDocument] | None
) -> Advice:
    """The advice for a job. `given`: a frontier of this protocol and whose table it is of, beside the project's own."""
    frontiers: list[tuple[Whose, FrontierDocument]] = [("project", each) for each in shipped(protocol)]
    frontiers = ([] if given is None else [given]) + frontiers
    measures: dict[str, _Measures] = {}
    for whose, document in frontiers:
        for point, effect in _effects(whose, document):
            settings = settings_of(point.settings)
            key = json.dumps([point.defence, settings], sort_keys=True)
            measures.setdefault(key, _Measures(point.defence, settings)).effects[whose].append(effect)
    found = [_suggestion(each, label_holder, feature_parties) for each in measures.values()]
    found = [each.model_copy(update={"helps": _helps(each, found)}) for each in found]
    used = {(effect.whose, effect.table) for each in found for effect in each.effects}
    sources = [_source(*each) for each in frontiers]
    return Advice(
        sources=[each for each in sources if (each.whose, each.table) in used],
        suggestions=sorted(found, key=_rank),
        parameters=PARAMETERS if protocol == "pivodl" else [],
    )


def _effects(whose: Whose, document: FrontierDocument) -> list[tuple[MeasuredPoint, Effect]]:
    """The effect of each point that can be written, against the point without a defence; none without that point."""
    without = next((point for point in document.points if point.defence == "none"), None)
    form = form_of(document)
    if without is None or form is None:
        return []
    before, own = without.v_measure[form].mean, without.v_measure.get(OWN, Measured(mean=None)).mean
    found = []
    for point in document.points:
        left = point.v_measure[form]
        if point.defence not in (*WRITTEN, JOB) or before is None or own is None or left.mean is None:
            continue
        effect = Effect(
            table=document.table,
            whose=whose,
            v_without=before,
            v_left=left.mean,
            v_sd=left.sd,
            v_own=own,
            auc_without=without.auc.mean,
            auc=point.auc.mean,
            auc_sd=point.auc.sd,
        )
        found.append((point, effect))
    return found


def _suggestion(it: _Measures, label_holder: str, feature_parties: Sequence[str]) -> Suggestion:
    """Effects on this table where it was measured there, otherwise on all others."""
    effects = it.effects["this table"] or [*it.effects["given"], *it.effects["project"]]
    added = sum(each.v_without - each.v_own for each in effects)
    prices = [each.auc_without - each.auc for each in effects if each.auc_without is not None and each.auc is not None]
    return Suggestion(
        defence=it.defence,
        settings=it.settings,
        helps=False,
        taken=sum(each.v_without - each.v_reached for each in effects) / added if added > 0 else None,
        price=fmean(prices) if len(prices) == len(effects) else None,
        effects=effects,
        lines=lines_of(it.defence, it.settings, label_holder, feature_parties),
    )


def _helps(it: Suggestion, every: Sequence[Suggestion]) -> bool:
    """Whether enough is taken away, and nothing that does the same costs less.

    Settings of the job do what any defence does; repairs of a model do the same where they are of the same noise.
    """
    return it.taken is not None and it.taken >= LEAST and not any(_beats(other, it) for other in every)


def _beats(other: Suggestion, it: Suggestion) -> bool:
    """Whether the other takes as much away for less, as measured on tables of the same kind."""
    if other.taken is None or it.taken is None or other.price is None or it.price is None:
        return False
    replaces = it.defence == JOB if other.settings != it.settings else other.price < it.price
    if other.defence in (JOB, it.defence) or not replaces or _measured_here(other) != _measured_here(it):
        return False
    return other.taken >= it.taken and other.price <= it.price


def _measured_here(it: Suggestion) -> bool:
    return it.effects[0].whose == "this table"


def _rank(it: Suggestion) -> tuple[bool, bool, bool, float, float]:
    """What helps first, and of it what was measured on this table.

    Of these first what takes away most of the leak, the lowest price first; then the largest share.
    """
    taken, price = it.taken or 0.0, 1.0 if it.price is None else it.price
    cheap = it.helps and taken >= MOST_OF_IT
    return not it.helps, not _measured_here(it), not cheap, round(price, 3) if cheap else 0.0, -taken


def _source(whose: Whose, document: FrontierDocument) -> Source:
    return Source(
        table=document.table,
        whose=whose,
        digest=document.data_digest,
        records=document.records["train"],
        classes=document.classes,
        trees=document.job["n_estimators"],
        max_depth=document.job["max_depth"],
        seeds=len(document.seeds),
    )
