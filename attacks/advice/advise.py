"""Suggestions from measured frontiers: effects of each defence over the tables at hand, the best first."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, get_args

from attacks.advice.defence_lines import JOB, lines_of, settings_of
from attacks.advice.frontiers_at_hand import form_of, shipped
from attacks.advice.pivodl_parameters import PARAMETERS
from attacks.advice.results import Advice, Defence, Effect, Source, Suggestion, Whose
from treetap.privacy.frontiers import FrontierDocument, Measured

#: The least share of what the training adds that is taken away by what helps; the share from which prices decide.
LEAST, MOST_OF_IT = 0.25, 0.5
#: The least V-measure, a table, that the training adds if shares of it are to say something.
LEAK = 0.02
#: The attack that needs no training.
OWN = "cl"
_DEFENCES: Mapping[str, Defence] = {name: name for name in get_args(Defence)}


@dataclass(frozen=True)
class _Measures:
    """A defence with its settings, and its effects on every table where it was measured."""

    defence: Defence
    settings: dict[str, Any]
    effects: list[Effect]


def _on(effects: Sequence[Effect], tables: Collection[tuple[Whose, str]]) -> list[Effect]:
    """The effects on this table, if it is among the tables, otherwise those on all of them."""
    shared = [each for each in effects if (each.whose, each.table) in tables]
    return [each for each in shared if each.whose == "this table"] or shared


def _tables(effects: Sequence[Effect]) -> set[tuple[Whose, str]]:
    return {(each.whose, each.table) for each in effects}


def _figures(effects: Sequence[Effect]) -> tuple[float | None, float | None]:
    """The share of the training's gain that a setting takes away, over all tables, and the mean loss of AUC."""
    added = sum(each.v_without - each.v_own for each in effects)
    enough = added >= LEAK * max(1, len(effects))
    taken = sum(each.v_without - each.v_reached for each in effects) / added if enough else None
    prices = [each.auc_without - each.auc for each in effects if each.auc_without is not None and each.auc is not None]
    return taken, fmean(prices) if prices and len(prices) == len(effects) else None


def advise(
    protocol: str, label_holder: str, feature_parties: Sequence[str], given: tuple[Whose, FrontierDocument] | None
) -> Advice:
    """The advice for a job. `given`: a frontier of this protocol and whose table it is of, beside the project's own."""
    frontiers: list[tuple[Whose, FrontierDocument]] = [("project", each) for each in shipped(protocol)]
    frontiers = ([] if given is None else [given]) + frontiers
    measures: dict[str, _Measures] = {}
    for whose, document in frontiers:
        for defence, settings, effect in _effects(whose, document):
            key = json.dumps([defence, settings], sort_keys=True)
            measures.setdefault(key, _Measures(defence, settings, [])).effects.append(effect)
    every = list(measures.values())
    found = [_suggestion(each, every, label_holder, feature_parties) for each in every]
    used = {table for each in found for table in _tables(each.effects)}
    sources = [_source(*each) for each in frontiers]
    return Advice(
        sources=[each for each in sources if (each.whose, each.table) in used],
        suggestions=sorted(found, key=_rank),
        parameters=PARAMETERS if protocol == "pivodl" else [],
    )


def _effects(whose: Whose, document: FrontierDocument) -> list[tuple[Defence, dict[str, Any], Effect]]:
    """The effect of each point that can be written, against the point without a defence; none without that point."""
    without = next((point for point in document.points if point.defence == "none"), None)
    form = form_of(document)
    if without is None or form is None:
        return []
    before, own = without.v_measure[form].mean, without.v_measure.get(OWN, Measured(mean=None)).mean
    found = []
    for point in document.points:
        defence, left = _DEFENCES.get(point.defence), point.v_measure[form]
        if defence is None or before is None or own is None or left.mean is None:
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
        found.append((defence, settings_of(point.settings), effect))
    return found


def _suggestion(
    it: _Measures, every: Sequence[_Measures], label_holder: str, feature_parties: Sequence[str]
) -> Suggestion:
    """Effects on this table where it was measured there, otherwise on all others."""
    effects = _on(it.effects, _tables(it.effects))
    taken, price = _figures(effects)
    return Suggestion(
        defence=it.defence,
        settings=it.settings,
        helps=taken is not None and taken >= LEAST and not any(_beats(other, it) for other in every),
        taken=taken,
        price=price,
        effects=effects,
        lines=lines_of(it.defence, it.settings, label_holder, feature_parties),
    )


def _beats(other: _Measures, it: _Measures) -> bool:
    """Whether the other does the same and, on the tables of both, takes as much away for less.

    What was measured on this table is not beaten by figures of others. Any defence does what settings of the job do;
    repairs of a model do the same where they are of the same noise.
    """
    if other.defence in (JOB, it.defence) or (it.defence != JOB and other.settings != it.settings):
        return False
    tables = _tables(it.effects) & _tables(other.effects)
    if _measured_here(it.effects) and not _measured_here(_on(other.effects, tables)):
        return False
    taken, price = _figures(_on(it.effects, tables))
    theirs, cost = _figures(_on(other.effects, tables))
    if taken is None or price is None or theirs is None or cost is None:
        return False
    return theirs >= taken and (cost < price or (it.defence == JOB and cost <= price))


def _measured_here(effects: Sequence[Effect]) -> bool:
    return any(each.whose == "this table" for each in effects)


def _rank(it: Suggestion) -> tuple[bool, bool, bool, float, float]:
    """The order of suggestions: those that help first, and of these the ones measured on this table.

    Of these first what takes away most of the leak, the lowest price first; then the largest share. Prices within a
    hundredth are equal: seeds differ by as much.
    """
    taken, price = it.taken or 0.0, 1.0 if it.price is None else max(0.0, it.price)
    cheap = it.helps and taken >= MOST_OF_IT
    return not it.helps, not _measured_here(it.effects), not cheap, round(price, 2) if cheap else 0.0, -taken


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
