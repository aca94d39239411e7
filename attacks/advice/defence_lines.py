"""Where a defence is written: its lines in the label holder's file and policy, or in the job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from treetap.attacks.advice.names import USUAL
from treetap.attacks.advice.results import Lines
from treetap.names import did_you_mean

#: Defence of a frontier → its table under [defences], and the switches beside it.
WRITTEN: Mapping[str, tuple[str, Sequence[str]]] = {
    "id_lmid": ("id_lmid", ()),
    "reduced_leakage": ("reduced_leakage", ()),
    "label_dp": ("label_dp", ()),
    "label_dp + refit": ("label_dp", ("refit",)),
    "grafting": ("label_dp", ("grafting",)),
    "grafting + refit": ("label_dp", ("grafting", "refit")),
}
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
    """The lines of parameters in the job file."""
    return Lines(file="job file", lines=["[job]", *(f"{key} = {toml(value)}" for key, value in settings.items())])


def toml(value: Any) -> str:
    """A value as TOML has it in a line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)
