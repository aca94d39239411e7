"""Names of defences and of their settings, the same everywhere, and the lines of files where a defence is written.

And the advice in the audit document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from treetap.attacks.schema import Findings
from treetap.errors import did_you_mean
from treetap.trees.params import ADDITIVE

#: Table of a frontier: the audited one, by the digest of its content; another one, whose frontier the audit was given;
#: a public one, which the project measured.
Whose = Literal["this table", "given", "project"]
#: What is suggested: defences by the names of a frontier's points, and settings of the job.
Defence = Literal[
    "id_lmid",
    "reduced_leakage",
    "label_dp",
    "label_dp + refit",
    "grafting",
    "grafting + refit",
    "min_cell_records",
    "job",
]

#: Reasons to suggest nothing.
Withheld = Literal["little to lower", "nothing scored", "no table is near"]


class ReadCells(Findings):
    """Cells of a feature party that the label holder placed, a share: `read` by itself, `left_sets` alone (a floor).

    `explained`: the variance of places in columns of numbers that it explained (R²), null without such a column.
    """

    read: float
    left_sets: float
    explained: float | None = None


#: How labels are guessed: groups that are matched to classes, or ranked by few known labels where a class is rare.
Measure = Literal["accuracy", "AUC"]


class Guessed(Findings):
    """The share of labels, or the AUC, that a party guesses without the training and with it."""

    before: float
    after: float

    @property
    def share(self) -> float:
        """The gain as a share of what was left to guess; 0 where nothing was left."""
        return (self.after - self.before) / (1 - self.before) if self.before < 1 else 0.0


class Source(Findings):
    """The frontier that the figures are from: `table` by its file's name, `records` that were trained on.

    Without a defence: `guessed` of the labels by the `measure`, `auc` of held-out records, null where undefined;
    `cells`: see `ReadCells`, null where not measured. `alone`: the AUC of the label holder without a federation.
    """

    table: str
    whose: Whose
    digest: str
    records: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=2)]
    trees: Annotated[int, Field(ge=1)]
    max_depth: Annotated[int, Field(ge=1)]
    seeds: Annotated[int, Field(ge=1)]
    measure: Measure
    guessed: Guessed
    auc: float | None
    alone: float | None
    cells: ReadCells | None


class Effect(Findings):
    """The measures with one defence on the table of the source: means over the seeds, `_sd` their standard deviation.

    `guessed`: of the labels with the training; `auc`: of held-out records, null where undefined; `cells`: null where
    not measured.
    """

    guessed: float
    guessed_sd: float | None
    auc: float | None
    auc_sd: float | None
    cells: ReadCells | None


class Lines(Findings):
    """Lines to write into a file."""

    file: str
    lines: list[str]


class Suggestion(Findings):
    """A defence with its settings, or settings of the job (`defence` "job"), and what it does on the source's table.

    `taken`: the share that it takes away of what the training adds to what can be guessed without it, at most 1; null
    where the training adds next to nothing.
    `taken_cells`: the share that it takes away of the cells read beyond the floor of left sets without a defence, below
    0 where more is read; null where not measured. `price`: AUC lost. `helps`: enough is taken away in one of the two
    directions, and nothing that does the same costs less.
    """

    defence: Defence
    settings: dict[str, Any]
    helps: bool
    taken: float | None
    taken_cells: float | None
    price: float | None
    effect: Effect
    lines: list[Lines]


class Parameter(Findings):
    """A parameter of a protocol that has none of the defences: what it lowers, what was measured, and `on` what."""

    name: str
    tells: str
    on: str = ""
    lines: list[Lines]


class NetworkSuggestion(Findings):
    """A defence of a split network: see `treetap.attacks.advice.networks.NetworkPoint`.

    `taken_log`, `taken_model`: the shares that it takes away of what the party's log and its completed model tell above
    what needs no training, null where they told next to nothing. `kept`: the share of the gain over the label holder
    alone that it keeps, null where there was none. `helps`: enough is taken away in one of the two, some of the gain is
    left, and nothing that takes as much keeps more.
    """

    defences: dict[str, Any]
    helps: bool
    log: float
    model: float
    accuracy: float
    taken_log: float | None
    taken_model: float | None
    kept: float | None
    lines: list[Lines]


class NetworkAdvice(Findings):
    """The measured table that is nearest to a split network: see `treetap.attacks.advice.networks.NetworkTable`.

    `log`, `model`, `accuracy`: without a defence.
    """

    table: str
    classes: int
    records: int
    known: int
    log: float
    model: float
    untrained: float
    accuracy: float
    alone: float
    suggestions: list[NetworkSuggestion]


class Advice(Findings):
    """Suggestions by the frontier of this table or of the nearest one, and what the job has is left out.

    `guessed`: of the audited party that the training tells most, by the measure of the source; null without scores.
    `source`: null where nothing is suggested by a frontier, for the reason in `withheld`; null also of a protocol with
    `parameters` of its own, and of a split network, which has `network`. `unlike`: the table of a frontier that the
    audit was given and that is neither of this table nor like it. `defences`: those that the label holder has; null
    where the audit is not told.
    """

    guessed: Guessed | None
    source: Source | None
    withheld: Withheld | None
    unlike: str | None
    defences: list[str] | None
    suggestions: list[Suggestion]
    parameters: list[Parameter]
    network: NetworkAdvice | None = None


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
#: Defence, or parameter of PIVODL → what to do, for a reader of the verdict.
PLAIN: Mapping[str, str] = {
    "id_lmid": "show others no group of records that tells much of their labels",
    "reduced_leakage": "grow the first trees alone",
    "label_dp": "train on labels of which chance changes some",
    "label_dp + refit": "train on labels of which chance changes some, and repair the leaves",
    "grafting": "train on labels of which chance changes some, and repair the trees",
    "grafting + refit": "train on labels of which chance changes some, and repair trees and leaves",
    "min_cell_records": "no sums over few records",
    "job": "other settings of the job",
    "dimip": "train the network to say less of labels",
    "noise": "noise on what the label holder returns",
    "compression": "return the largest numbers alone",
    "ppdl": "return few numbers, with noise",
    "levels": "round what the label holder returns",
    "gain_comparison": "keep gains secret",
    "instance_threshold": "no sums over few labels",
}


def plainly(name: str) -> str:
    """What to do, with the defence's name where it has one; of other parameters of PIVODL the noise that they make."""
    words, own = PLAIN.get(name, "noise on the weights of leaves"), DEFENCES.get(name, (name,))[0]
    return words if name in (own, JOB) else f"{words} ({own})"


#: Key of a defence's settings → its symbol.
SYMBOLS = {"xi": "ξ", "epsilon": "ε", "min_cell_records": "m", "dimip": "λ"}


#: Values that a party's file has unasked, and a reader need not see.
USUAL = {"counts": "shown"}


def setting(settings: Mapping[str, Any]) -> str:
    """Settings for a reader: a table by party by its value alone."""
    shown = {key: max(value.values()) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return ", ".join(
        f"{SYMBOLS.get(key, key)} {value:{'g' if isinstance(value, float) else ''}}"
        for key, value in shown.items()
        if USUAL.get(key) != value
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


def of_network(defences: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a network's defence, a key of `DEFENCES`, and its settings for a reader."""
    (name, value), *_ = defences.items()
    if name == "dimip":
        return name, setting({name: value})
    if name == "gradient":
        return value["kind"], setting({key: own for key, own in value.items() if key != "kind"})
    return name, setting(value)


#: Defence of a frontier → its table under [defences], and the switches beside it.
WRITTEN: Mapping[str, tuple[str, Sequence[str]]] = {
    "id_lmid": ("id_lmid", ()),
    "reduced_leakage": ("reduced_leakage", ()),
    "label_dp": ("label_dp", ()),
    "label_dp + refit": ("label_dp", ("refit",)),
    "grafting": ("label_dp", ("grafting",)),
    "grafting + refit": ("label_dp", ("grafting", "refit")),
}


# Where a defence is written: its lines in the label holder's file and policy, or in the job.

#: Table of [defences] → the key that says how strict it is, and whether the smaller value is the stricter.
STRICTNESS = {"id_lmid": ("xi", True), "label_dp": ("epsilon", True), "reduced_leakage": ("trees", False)}
#: Tables of [defences] that networks have alone.
OF_NETWORKS = ("dimip", "gradient")
#: Two tables or switches of [defences] that a party's file may not have together.
APART = ("id_lmid", "grafting")
#: Points of a frontier that are a defence of feature parties' columns, in files of their own.
CELLS: Final = "min_cell_records"
#: Points of a frontier that are settings of the job.
JOB: Final = "job"


def strictness(defence: str, settings: Mapping[str, Any]) -> float:
    """A number that is the larger, the stricter a setting is beside others of its defence; 0 of settings of the job."""
    if defence == CELLS:
        return float(settings[CELLS])
    if defence not in WRITTEN:
        return 0.0
    key, smaller = STRICTNESS[WRITTEN[defence][0]]
    return -float(settings[key]) if smaller else float(settings[key])


def check_written(defences: Mapping[str, Any]) -> None:
    """Check a label holder's table [defences]; ValueError naming what no defence has."""
    switches = {switch for _, switches in WRITTEN.values() for switch in switches}
    for name, value in defences.items():
        if name in OF_NETWORKS:
            if not isinstance(value, Mapping):
                raise ValueError(f"{name} must be a table, as the label holder's file has it")
            continue
        key, _ = STRICTNESS.get(name, ("", False))
        if not key and name not in switches:
            known = [*STRICTNESS, *sorted(switches), *OF_NETWORKS]
            raise ValueError(f"unknown defence {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")
        # a table of settings needs the one by which it is stricter or looser than another; a switch is on or off
        if key and not (isinstance(value, Mapping) and isinstance(value.get(key), int | float)):
            raise ValueError(f"{name} must be a table with {key}, as the label holder's file has it")
        if not key and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false")


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a point that differ from what a party's file has unasked."""
    return {key: value for key, value in given.items() if USUAL.get(key) != value}


def lines_of(
    defence: str, settings: Mapping[str, Any], label_holder: str, feature_parties: Sequence[str]
) -> list[Lines]:
    """The lines of a defence in the party's file and in its policy, or those of the job."""
    if defence == CELLS:
        own = ["[defences]", f"{CELLS} = {settings[CELLS]}"]
        return [Lines(file=f"party file of {name}", lines=own) for name in feature_parties]
    if defence == JOB:
        return [job_lines(settings)]
    name, switches = WRITTEN[defence]
    own = ["[defences]", f"{name} = {toml(settings)}", *(f"{switch} = true" for switch in switches)]
    return [Lines(file=f"party file of {label_holder}", lines=own), *policy_lines(name, settings, label_holder)]


def policy_lines(name: str, settings: Mapping[str, Any], label_holder: str) -> list[Lines]:
    """The lines of the label holder's policy that refuses or stops a job without a table of [defences]; mostly none."""
    lines = {"id_lmid": ("max_leakage", "xi"), "label_dp": ("label_budget", "epsilon")}
    if name not in lines:
        return []
    line, key = lines[name]
    return [Lines(file=f"policy of {label_holder}", lines=["[labels]", f"{line} = {toml(settings[key])}"])]


def job_lines(settings: Mapping[str, Any]) -> Lines:
    """The lines of parameters in the job file; beside the additive form the depth that it decides."""
    settings = {**settings, "max_depth": 1} if settings.get("model") == ADDITIVE else settings
    return Lines(file="job file", lines=["[job]", *(f"{key} = {toml(value)}" for key, value in settings.items())])


def toml(value: Any) -> str:
    """A value as TOML has it in a line; JSON's strings and finite numbers are TOML's too."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def toml_key(name: str) -> str:
    """A key as TOML has it."""
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)
