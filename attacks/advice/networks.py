"""Advice for split networks: what each measured defence takes from the log and from the own model of a feature party.

Figures are of `python benchmarks/measured_networks.py`, by the results of the reproduction in
`benchmarks/reproductions/splitnn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from pydantic import Field

from treetap.attacks.advice.names import Lines, NetworkAdvice, NetworkSuggestion, policy_lines, toml
from treetap.attacks.schema import Findings

#: Stands for every feature party in measured settings.
PARTY: Final = "PARTY"
#: The least that is told above the floor if shares of it are to say something.
LEAK = 0.02
#: The least share of what the log or the model tells that what helps takes away; the share from which the gain decides.
LEAST, MOST_OF_IT = 0.25, 0.5


class NetworkPoint(Findings):
    """A training: `defences` as in the label holder's file, `PARTY` for each feature party; none without a defence.

    `accuracy`: of held-out records. `log`: the share of the training labels that follows from the party's log and few
    known ones. `model`: the accuracy of the party's own model, completed by as many.
    """

    defences: dict[str, Any]
    accuracy: float
    log: float
    model: float


class NetworkTable(Findings):
    """A measured table: `known` labels, `majority`: the share of the largest class, `untrained`: as `model` of a bottom
    that no training has had, `alone`: the accuracy of the label holder alone. The first point is without a defence.
    """

    table: str
    classes: int = Field(ge=2)
    records: int = Field(ge=1)
    known: int = Field(ge=1)
    majority: float
    untrained: float
    alone: float
    points: list[NetworkPoint]

    @property
    def share(self) -> float:
        """The information in the log without a defence, as a share of what was left to guess."""
        return (self.points[0].log - self.majority) / (1 - self.majority)


def tables() -> list[NetworkTable]:
    """The measured tables."""
    folder = resources.files("treetap.attacks.advice") / "networks"
    files = sorted((it for it in folder.iterdir() if it.name.endswith(".json")), key=lambda it: it.name)
    return [NetworkTable.model_validate_json(it.read_bytes()) for it in files]


def of_network(
    table: NetworkTable, label_holder: str, feature_parties: Sequence[str], has: Mapping[str, Any] | None
) -> NetworkAdvice:
    """The advice by a table. `has`: the label holder's table [defences], of which no key is suggested again."""
    without = table.points[0]
    gain = without.accuracy - table.alone
    made = []
    for point in table.points[1:]:
        if has and point.defences.keys() & has.keys():
            continue
        log = _taken(without.log, point.log, table.majority)
        model = _taken(without.model, point.model, table.untrained)
        kept = (point.accuracy - table.alone) / gain if gain > 0 else None
        lines = _lines(point.defences, label_holder, feature_parties)
        made.append(
            NetworkSuggestion(
                defences=point.defences,
                helps=False,
                log=point.log,
                model=point.model,
                accuracy=point.accuracy,
                taken_log=log,
                taken_model=model,
                kept=kept,
                lines=lines,
            )
        )
    # what takes enough away, and leaves something of the gain, helps where none takes as much and leaves more
    enough = [_most(it) >= LEAST and it.kept is not None and it.kept > 0 for it in made]
    judged = [
        it.model_copy(update={"helps": helps and not any(_beats(other, it) for other in made)})
        for it, helps in zip(made, enough, strict=True)
    ]
    return NetworkAdvice(
        table=table.table,
        classes=table.classes,
        records=table.records,
        known=table.known,
        log=without.log,
        model=without.model,
        untrained=table.untrained,
        accuracy=without.accuracy,
        alone=table.alone,
        suggestions=sorted(judged, key=_rank),
    )


def _taken(before: float, left: float, floor: float) -> float | None:
    """The share of what is told above the floor that is taken away; None where next to nothing was."""
    return min(1.0, (before - left) / (before - floor)) if before - floor >= LEAK else None


def _most(it: NetworkSuggestion) -> float:
    return max(it.taken_log or 0.0, it.taken_model or 0.0)


def _beats(other: NetworkSuggestion, it: NetworkSuggestion) -> bool:
    """True if the other takes away at least as much in both and keeps more."""
    mine = (it.taken_log or 0.0, it.taken_model or 0.0)
    its = (other.taken_log or 0.0, other.taken_model or 0.0)
    return its[0] >= mine[0] and its[1] >= mine[1] and (other.kept or 0.0) > (it.kept or 0.0)


def _rank(it: NetworkSuggestion) -> tuple[bool, bool, float]:
    """What helps first; of it what takes half away, by the gain that it keeps; then by what is taken away."""
    cheap = it.helps and _most(it) >= MOST_OF_IT
    return not it.helps, not cheap, -(it.kept or 0.0) if cheap else -_most(it)


def _lines(defences: Mapping[str, Any], label_holder: str, feature_parties: Sequence[str]) -> list[Lines]:
    """The lines of the label holder's file, and of its policy."""
    own = ["[defences]"]
    for name, value in defences.items():
        if name == "dimip":
            own.append(f"{name} = {toml(dict.fromkeys(feature_parties, value[PARTY]))}")
        else:
            own.append(f"{name} = {toml(value)}")
    policies = [it for name, value in defences.items() for it in policy_lines(name, value, label_holder)]
    return [Lines(file=f"party file of {label_holder}", lines=own), *policies]
