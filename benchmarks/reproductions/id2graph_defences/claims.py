"""Claims of the paper and of this project about the defences, checked on the means over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from frontiers import NAMES, WORST, Frontier, Point
from id2graph_sets import SETS

Rows = list[list[str]]
Holds = Callable[[Frontier], bool]
#: Two means are the same below this: they come from sums of floats.
_SAME = 1e-12
#: The largest ε for which a repair must be better than none.
SMALL = 1.0
#: Above CL by no more than this, an attack is as good as CL.
NEAR = 0.01
#: Losses of AUC that a practitioner may accept.
LOSSES = (0.01, 0.03, 0.1)
TITLES = {"id2graph": "ID2Graph", "uni": "UNI", "uni+cl": "UNI+CL", WORST: "CL or ID2Graph"}
REPAIRS = ("label_dp + refit", "grafting", "grafting + refit")


def dominates(point: Point, other: Point, attack: str) -> bool:
    """Neither a higher V-measure nor a lower AUC."""
    lower = point.v[attack].mean <= other.v[attack].mean + _SAME
    return lower and point.auc.mean >= other.auc.mean - _SAME


def dominated(better: Sequence[Point], worse: Sequence[Point], attack: str) -> int:
    """The number of points that some other point dominates."""
    return sum(any(dominates(point, other, attack) for point in better) for other in worse)


def dominance(every: Sequence[Frontier]) -> Rows:
    """For each setting: points of label DP that one of ID-LMID dominates, and the other way round."""
    rows = [
        ["model", "set", "V-measure of", "label DP", "label DP + refit", "grafting + refit", "ID-LMID, by label DP"]
    ]
    for it in every:
        for attack, title in (("id2graph", "ID2Graph"), (WORST, "the better of CL and ID2Graph")):
            mutual = it.of("id_lmid", "paper")
            shown = [(mutual, it.of(name)) for name in ("label_dp", "label_dp + refit", "grafting + refit")]
            shown.append((it.of("label_dp"), mutual))
            cells = [f"{dominated(better, worse, attack)} of {len(worse)}" for better, worse in shown]
            rows.append([it.model, SETS[it.set].title, title, *cells])
    return rows


def repairs(every: Sequence[Frontier]) -> Rows:
    """AUC of the four models of a training with label DP, at every ε."""
    rows = [["model", "set", "ε", *(NAMES[name] for name in ("label_dp", *REPAIRS)), "V-measure of all four", "CL"]]
    for it in every:
        for point in it.of("label_dp"):
            models = [point, *(it.at(name, point.value) for name in REPAIRS)]
            best = max(each.auc.mean for each in models)
            aucs = [f"**{each.auc}**" if each.auc.mean == best else str(each.auc) for each in models]
            v = [str(point.v[attack]) for attack in ("id2graph", "cl")]
            rows.append([it.model, SETS[it.set].title, f"{point.value:g}", *aucs, *v])
    return rows


def better_at_small(it: Frontier, name: str, than: str) -> bool:
    """True if a model has the higher AUC at every ε ≤ 1."""
    small = [point for point in it.of(than) if (point.value or 0) <= SMALL]
    return all(it.at(name, point.value).auc.mean > point.auc.mean for point in small)


def lowest(every: Sequence[Frontier]) -> Rows:
    """The lowest V-measure, CL's or ID2Graph's, that each defence reaches at a given loss of AUC, and its setting."""
    families = [("reduced_leakage", None), ("id_lmid", "paper"), *((name, None) for name in ("label_dp", *REPAIRS))]
    heads = [NAMES[defence] for defence, _ in families]
    rows = [["model", "set", "AUC may fall by", "no defence", "CL", *heads]]
    for it in every:
        plain = it.at("none")
        for loss in LOSSES:
            cells = []
            for defence, counts in families:
                enough = [point for point in it.of(defence, counts) if point.auc.mean >= plain.auc.mean - loss]
                best = min(enough, key=lambda point: (point.v[WORST].mean, -point.auc.mean), default=None)
                cells.append("–" if best is None else f"{best.v[WORST].mean:.3f} ({best.value:g})")
            reference = [f"{plain.v[attack].mean:.3f}" for attack in (WORST, "cl")]
            rows.append([it.model, SETS[it.set].title, f"{loss:g}", *reference, *cells])
    return rows


def verdicts(every: Sequence[Frontier], without: Sequence[Frontier]) -> Rows:
    """Every claim with the number of sets on which it holds."""
    claims: list[tuple[str, Sequence[Frontier], Holds]] = []
    for attack, title in TITLES.items():
        words = f"ID-LMID dominates label DP, by the V-measure of {title}"
        claims.append((words, every, partial(_all, defence="label_dp", attack=attack)))
    for name in ("label_dp + refit", "grafting + refit"):
        words = f"ID-LMID dominates {NAMES[name]}, by that of {TITLES[WORST]}"
        claims.append((words, every, partial(_all, defence=name, attack=WORST)))
    for name, than in (*((name, "label_dp") for name in REPAIRS), *((name, REPAIRS[0]) for name in REPAIRS[1:])):
        words = f"{NAMES[name]} has a higher AUC than {NAMES[than]} at every ε ≤ 1"
        claims.append((words, every, partial(better_at_small, name=name, than=than)))
    claims += [
        ("at ξ 0.1 the V-measure of ID2Graph is no higher than CL's + 0.01", every, _near_cl),
        ("Reduced-Leakage lowers the V-measure of ID2Graph by more than 0.01", every, _lower),
    ]
    for attack in ("id2graph", WORST):
        words = f"Figure 10: ID-LMID dominates label DP, by the V-measure of {TITLES[attack]}"
        claims.append((words, without, partial(_all, defence="label_dp", attack=attack)))
    words = "Figure 10: Grafting-LDP has a higher AUC than label DP at every ε ≤ 1"
    claims.append((words, without, partial(better_at_small, name="grafting", than="label_dp")))
    rows = [["claim", "forest", "boosting"]]
    for words, given, holds in claims:
        halves = [[it for it in given if it.model == model] for model in rows[0][1:]]
        rows.append([words, *(f"{sum(map(holds, some))} of {len(some)} sets" for some in halves)])
    for attack in ("id2graph", WORST):
        halves = [[it for it in every if it.model == model] for model in rows[0][1:]]
        words = f"points of label DP that ID-LMID dominates, by the V-measure of {TITLES[attack]}"
        rows.append([words, *(_points(some, "id_lmid", "label_dp", attack) for some in halves)])
        words = f"points of ID-LMID that label DP dominates, by that of {TITLES[attack]}"
        rows.append([words, *(_points(some, "label_dp", "id_lmid", attack) for some in halves)])
    for name, given in (("label_dp + refit", every), ("grafting + refit", every), ("label_dp", without)):
        halves = [[it for it in given if it.model == model] for model in rows[0][1:]]
        figure = "Figure 10: " if given is without else ""
        words = f"{figure}points of {NAMES[name]} that ID-LMID dominates, by that of {TITLES[WORST]}"
        rows.append([words, *(_points(some, "id_lmid", name, WORST) for some in halves)])
    return rows


def _points(some: Sequence[Frontier], better: str, worse: str, attack: str) -> str:
    """The number of a defence's points that a point of another dominates, of all."""
    found = total = 0
    for it in some:
        given, judged = (it.of(name, "paper" if name == "id_lmid" else None) for name in (better, worse))
        found, total = found + dominated(given, judged, attack), total + len(judged)
    return f"{found} of {total}"


def _all(it: Frontier, defence: str, attack: str) -> bool:
    points = it.of(defence)
    return dominated(it.of("id_lmid", "paper"), points, attack) == len(points)


def _near_cl(it: Frontier) -> bool:
    point = it.of("id_lmid", "paper")[0]
    return point.v["id2graph"].mean <= point.v["cl"].mean + NEAR


def _lower(it: Frontier) -> bool:
    return it.at("reduced_leakage", 1.0).v["id2graph"].mean < it.at("none").v["id2graph"].mean - NEAR
