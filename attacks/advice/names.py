"""Names of defences and of their settings, the same in every report, picture and table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Defence of a frontier → its name, and what it does.
DEFENCES: Mapping[str, tuple[str, str]] = {
    "none": ("no defence", "The training as it is."),
    "id_lmid": (
        "ID-LMID",
        "Other parties are shown no set of records that says more than ξ nats about the label (1 nat = 1.44 bits): the "
        "smaller ξ, the stricter. What may not be shown the label holder splits alone, by its own columns. The bound "
        "is for each set, not for all together.",
    ),
    "reduced_leakage": ("Reduced-Leakage", "The label holder grows the first trees alone, from its own columns."),
    "label_dp": (
        "label DP",
        "The training uses labels of which some were changed by lot: no label makes anything that others see more than "
        "e^ε times as likely. The smaller ε, the stricter. More stages draw likelier labels.",
    ),
    "label_dp + refit": (
        "label DP + refit",
        "The training uses labels of which some were changed by lot: no label makes anything that others see more than "
        "e^ε times as likely; the smaller ε, the stricter. The label holder then computes the weights of leaves from "
        "the true labels and keeps them to itself.",
    ),
    "grafting": (
        "Grafting-LDP",
        "The training uses labels of which some were changed by lot (label differential privacy): no label makes "
        "anything that others see more than e^ε times as likely; the smaller ε, the stricter. The label holder then "
        "grows the parts of trees anew that noise has spoilt, from its own columns, and keeps them to itself.",
    ),
    "grafting + refit": (
        "Grafting-LDP + refit",
        "The training uses labels of which some were changed by lot (label differential privacy): no label makes "
        "anything that others see more than e^ε times as likely; the smaller ε, the stricter. The label holder then "
        "grows the parts of trees anew that noise has spoilt, computes the weights of the other leaves from the true "
        "labels, and keeps both to itself.",
    ),
    "min_cell_records": (
        "min_cell_records",
        "Each feature party merges bins in every node until no sum of a column in a tree is over fewer than m drawn "
        "records: the larger m, the stricter. It hides columns from the label holder, and no labels.",
    ),
    "dimip": (
        "DIMIP",
        "A term in the gradients that return lowers what the party's own model tells of the label: the larger λ, the "
        "stricter. What the log of gradients tells is lowered in part at best.",
    ),
    "noise": (
        "gradient noise",
        "Laplace noise on every number of a gradient that returns; its scale is of a batch.",
    ),
    "compression": ("gradient compression", "Of a batch's gradients the smallest numbers become 0."),
    "ppdl": ("PPDL", "Of a gradient's numbers the few that exceed a threshold return, with noise."),
    "levels": ("DiscreteSGD", "The numbers of gradients that return are rounded to few levels."),
    "job": ("settings of the job", "Parameters of the training, which every party knows."),
}
#: Key of a defence's settings → its symbol.
SYMBOLS = {"xi": "ξ", "epsilon": "ε", "min_cell_records": "m", "dimip": "λ"}


#: Values that a party's file has unasked, and a reader need not see.
USUAL = {"counts": "shown"}


def setting(settings: Mapping[str, Any]) -> str:
    """Settings for a reader: a table by party by its value alone."""
    shown = {key: max(value.values()) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return ", ".join(
        f"{SYMBOLS.get(key, key)} {_value(value)}" for key, value in shown.items() if USUAL.get(key) != value
    )


def swept(settings: Mapping[str, Any]) -> str:
    """The parameter by which a defence is stronger or weaker, with its symbol; empty without one."""
    key = next((key for key in ("xi", "epsilon", "trees", "min_cell_records") if key in settings), None)
    return "" if key is None else setting({key: settings[key]})


def named(defence: str, settings: Mapping[str, Any]) -> str:
    """A defence with its settings; settings of the job by themselves."""
    if defence == "job":
        return setting(settings)
    return ", ".join(part for part in (DEFENCES[defence][0], setting(settings)) if part)


def ranged(defence: str, several: Sequence[Mapping[str, Any]]) -> str:
    """A defence with one of these settings or, where they differ, from one end of its parameter to the other."""
    ends = sorted({swept(it) for it in several}, key=lambda it: float(it.split()[-1]) if it else 0.0)
    if len(ends) < 2 or defence == "job":
        return named(defence, several[0])
    return f"{DEFENCES[defence][0]}, {ends[0]} to {ends[-1].split()[-1]}"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def of_network(defences: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a network's defence, a key of `DEFENCES`, and its settings for a reader."""
    (name, value), *_ = defences.items()
    if name == "dimip":
        return name, setting({name: value})
    if name == "gradient":
        return value["kind"], setting({key: own for key, own in value.items() if key != "kind"})
    return name, setting(value)
