"""The section "What lowers this": suggestions by defence, the best first, and settings that do not help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from attacks.advice.results import Advice, Defence, Effect, Lines, Parameter, Source, Suggestion, Whose
from attacks.document import Document
from attacks.report.glossary import DEFENCES, SYMBOLS, count, score

#: Heads of the figures of a suggestion, and of those of each table.
HEADS = ("V-measure", "taken away", "price in AUC")
TABLE_HEADS = ("setting", "table", "V-measure without", "with", "own columns alone", "AUC without", "with")


class Row(NamedTuple):
    """A suggestion: its setting, its figures under `HEADS`, the number of tables that they are from, its lines."""

    setting: str
    figures: list[str]
    tables: str
    lines: list[Lines]


class Measures(NamedTuple):
    """All suggestions of a defence, and their figures on each table under `TABLE_HEADS`."""

    name: str
    meaning: str
    rows: list[Row]
    by_table: list[list[str]]


@dataclass(frozen=True)
class Advised:
    """The section's content. `basis`: sentences on where the figures are from. `useless`: rows that name a defence."""

    basis: list[str]
    measures: list[Measures]
    useless: list[Row]
    useless_by_table: list[list[str]]
    parameters: list[Parameter]


def advised(document: Document) -> Advised | None:
    """The section of a document; None where it has no advice."""
    if document.advice is None:
        return None
    helping = [it for it in document.advice.suggestions if it.helps]
    others = [it for it in document.advice.suggestions if not it.helps]
    return Advised(
        basis=basis(document.advice, document.protocol),
        measures=[_measures(name, helping) for name in dict.fromkeys(it.defence for it in helping)],
        useless=[_row(it, _named(it)) for it in others if not _dearer(it, document.advice.suggestions)],
        useless_by_table=[row for it in others for row in _by_table(it, _named(it))],
        parameters=document.advice.parameters,
    )


def _dearer(it: Suggestion, every: Sequence[Suggestion]) -> bool:
    """Whether it is one of several repairs of the same noise, and not the one that costs least: the table by table has
    it."""
    if it.defence == "job":
        return False
    same = [other for other in every if other.settings == it.settings]
    return it is not min(same, key=lambda other: 1.0 if other.price is None else other.price)


def basis(advice: Advice, protocol: str) -> list[str]:
    """Where the figures are from."""
    if advice.parameters:
        return [
            f"None of the defences of protocols with one label holder exists in {protocol}, and none of its parameters "
            "withholds sets of records: nothing here lowers what attacks by groups find. These of its own parameters "
            "lower what leaf weights and gains tell."
        ]
    kinds: dict[Whose, list[Source]] = {}
    for each in advice.sources:
        kinds.setdefault(each.whose, []).append(each)
    said = []
    if own := kinds.get("this table"):
        said.append(f"Measured by treetap frontier on this very table: {_sources(own)}.")
    if given := kinds.get("given"):
        said.append(
            f"The frontier that the audit was given is of another table than this one, as far as their digests tell: "
            f"{_sources(given)}. Its figures count among those of other tables."
        )
    if public := kinds.get("project"):
        first = "What was not measured there is" if own else "Not measured on this table, but"
        said.append(
            f"{first} from public tables that the project has measured: {_sources(public)}. Your own table may differ: "
            "treetap frontier measures it, and treetap audit --frontier uses that."
        )
    return said or ["No frontier of this protocol is at hand: treetap frontier measures one."]


def best_lines(document: Document, most: int = 3) -> list[str]:
    """The best suggestions in a line each, for a terminal."""
    if document.advice is None:
        return []
    lines = [f"{it.name} ({_written(it.lines)}): {it.tells}" for it in document.advice.parameters[:most]]
    for it in [it for it in document.advice.suggestions if it.helps][:most]:
        row = _row(it, _named(it))
        v, taken, price = row.figures
        lines.append(
            f"{row.setting} ({_written(it.lines[:1])}): V-measure {v}, {taken} of what the training adds taken away, "
            f"{'no' if price == 'none' else price} AUC lost; measured on {row.tables}"
        )
    return lines


def _measures(name: Defence, helping: Sequence[Suggestion]) -> Measures:
    of_it = [it for it in helping if it.defence == name]
    rows = [_row(it, setting(it.settings)) for it in of_it]
    return Measures(*DEFENCES[name], rows, [row for it in of_it for row in _by_table(it, setting(it.settings))])


def _row(it: Suggestion, named: str) -> Row:
    before, left = (fmean(values) for values in zip(*((e.v_without, e.v_reached) for e in it.effects), strict=True))
    taken = "–" if it.taken is None else "nothing" if it.taken <= 0 else f"{100 * it.taken:.0f} %"
    price = "–" if it.price is None else "none" if round(it.price, 3) <= 0 else score(it.price)
    return Row(named, [f"{score(before)} → {score(left)}", taken, price], _tables(it.effects), it.lines)


def _tables(effects: Sequence[Effect]) -> str:
    if effects[0].whose == "this table":
        return "this table"
    return _title(effects[0].table) if len(effects) == 1 else f"{count(len(effects))} other tables"


def _by_table(it: Suggestion, named: str) -> list[list[str]]:
    return [
        [
            *(named, _title(each.table), score(each.v_without)),
            *(_with_sd(each.v_left, each.v_sd), score(each.v_own)),
            *(score(each.auc_without), _with_sd(each.auc, each.auc_sd)),
        ]
        for each in it.effects
    ]


def _title(table: str) -> str:
    """A table by its file's name without the ending."""
    return table.removesuffix(".parquet").removesuffix(".csv")


def _with_sd(mean: float | None, sd: float | None) -> str:
    return score(mean) if sd is None else f"{score(mean)} ± {score(sd)}"


def _named(it: Suggestion) -> str:
    """The defence and its setting."""
    return setting(it.settings) if it.defence == "job" else f"{DEFENCES[it.defence][0]}, {setting(it.settings)}"


def setting(settings: Mapping[str, Any]) -> str:
    """Settings for a reader: a table by party by its value alone."""
    shown = {key: max(value.values()) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return ", ".join(f"{SYMBOLS.get(key, key)} {value}" for key, value in shown.items())


def _sources(sources: Iterable[Source]) -> str:
    how: dict[str, list[str]] = {}
    for it in sources:
        seeds = "1 seed" if it.seeds == 1 else f"{count(it.seeds)} seeds"
        said = f"with {count(it.trees)} trees to depth {it.max_depth} and {seeds}"
        how.setdefault(said, []).append(
            f"{_title(it.table)} ({count(it.records)} records, {count(it.classes)} classes)"
        )
    return "; ".join(f"{', '.join(tables)} {said}" for said, tables in how.items())


def _written(lines: Iterable[Lines]) -> str:
    return "; ".join(f"{it.file}: {' '.join(it.lines)}" for it in lines)
