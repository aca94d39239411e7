"""The attacks' scores, by number of trees and against the party's own columns (CL)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from treetap.attacks.document import AttackName, Document, Party
from treetap.attacks.id2graph.schema import AttackResult
from treetap.attacks.report.glossary import ATTACKS, count, score, seconds
from treetap.pages.pictures import Lines, Table, lines, thinned


class ScoreRow(NamedTuple):
    """All results of one attack on one party."""

    party: str
    label: str
    style: str
    figures: list[str]
    best: bool
    parameters: str


SCORE_HEADS = (
    *("V-measure", "after trees", "homogeneity", "completeness", "ARI", "NMI", "accuracy"),
    *("named by sizes", "groups", "clusters", "time"),
)


def best(party: Party) -> tuple[AttackName, AttackResult] | None:
    """The attack with the highest V-measure after any number of trees, except CL; None without scores."""
    scored = [(name, it) for name, it in party.attacks.items() if name != "cl" and it.v_measure is not None]
    return max(scored, key=lambda pair: pair[1].v_measure or 0.0, default=None)


def ceiling(document: Document) -> float:
    """The top of all V-measure axes: the same for all parties, so that pictures are comparable."""
    values = [
        value
        for party in document.parties.values()
        for attack in party.attacks.values()
        for value in [attack.v_measure, *(attack.by_tree or [])]
        if value is not None
    ]
    return next((top for top in (0.25, 0.5) if max(values, default=1.0) <= top * 0.98), 1.0)


def curves(document: Document, party: Party, top: float) -> Lines | None:
    """V-measure against the number of trees; None if no attack of this party is scored."""
    series = {name: _series(name, it, document.trees) for name, it in party.attacks.items()}
    series = {name: values for name, values in series.items() if any(value is not None for value in values)}
    if not series:
        return None
    rows = [
        [str(k + 1), *(score(values[k] if k < len(values) else None) for values in series.values())]
        for k in thinned(max(map(len, series.values())))
    ]
    table = Table(["trees", *(ATTACKS[name].label for name in series)], rows)
    looks = {(ATTACKS[name].brief, ATTACKS[name].style): values for name, values in series.items()}
    return lines(looks, table, ("trees used", "V-measure"), top=top)


def score_rows(document: Document) -> list[ScoreRow]:
    """The rows of every attack on every party."""
    rows = []
    for name, party in document.parties.items():
        top = best(party)
        for attack, it in party.attacks.items():
            rows.append(
                ScoreRow(
                    name,
                    ATTACKS[attack].label,
                    ATTACKS[attack].style,
                    figures(it),
                    top is not None and top[0] == attack,
                    ", ".join(f"{key} {_written(value)}" for key, value in it.parameters.items()),
                )
            )
    return rows


def figures(it: AttackResult) -> list[str]:
    """An attack's figures in the order of `SCORE_HEADS`."""
    scores = (it.homogeneity, it.completeness, it.ari, it.nmi, it.accuracy)
    sizes = (score(it.named_accuracy), count(it.groups), count(it.clusters), seconds(it.seconds))
    return [score(it.v_measure), count(it.after_trees), *map(score, scores), *sizes]


def _series(name: AttackName, it: AttackResult, trees: int) -> Sequence[float | None]:
    """V-measure by number of trees: CL uses none and is constant; without `by_tree` the last value alone."""
    if name == "cl":
        return [it.v_measure] * max(1, trees)
    return it.by_tree or [*[None] * (trees - 1), it.v_measure]


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
