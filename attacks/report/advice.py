"""The section "What lowers this": suggestions by defence as they were measured, and settings that do not help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treetap.attacks.advice.names import DEFENCES, named, of_network, setting
from treetap.attacks.advice.results import (
    Advice,
    Guessed,
    Lines,
    Measure,
    NetworkAdvice,
    NetworkSuggestion,
    Parameter,
    Source,
    Suggestion,
)
from treetap.attacks.document import Document
from treetap.attacks.report.glossary import ADVICE_TERMS, count, score, share, title

#: How labels are guessed.
_MEASURES: Mapping[Measure, str] = {
    "accuracy": "the share of right ones",
    "AUC": "AUC of a ranking with 40 known labels",
}
#: Heads of the figures of a suggestion.
HEADS = ("labels guessed", "taken away", "cells read", "variance explained", "price in AUC")

#: Heads of the figures of a suggestion for a split network, and their meaning.
NETWORK_HEADS = ("labels by the log", "labels by the own model", "accuracy", "gain kept")
NETWORK_TERMS = {
    "Labels by the log": "the share of the labels of the training that a feature party names by its log of gradients "
    "and few known labels, without the defence → with it.",
    "Labels by the own model": "the accuracy of the party's own published model, completed by as many labels; less "
    "than an untrained one has cannot be taken away.",
    "Gain kept": "of what the network of all parties has above the label holder alone. Count it, and not the accuracy: "
    "at 0 % the label holder had better train alone.",
}


class Row(NamedTuple):
    """A suggestion: its setting, its figures under `HEADS`, its lines."""

    setting: str
    figures: list[str]
    lines: list[Lines]


@dataclass(frozen=True)
class Advised:
    """The section's content. `basis`: sentences on where the figures are from. `heads`, `terms`: of the figures.
    `useless`: rows that name a defence.

    `where`: the table that was measured. `measures`: name and meaning of each defence that helps, and its suggestions.
    """

    basis: list[str]
    heads: tuple[str, ...]
    terms: dict[str, str]
    where: str
    measures: list[tuple[str, str, list[Row]]]
    useless: list[Row]
    parameters: list[Parameter]


def advised(document: Document) -> Advised | None:
    """The section of a document; None where it has no advice."""
    advice = document.advice
    if advice is None:
        return None
    if advice.network is not None:
        return _of_network(advice, advice.network)
    helping = [it for it in advice.suggestions if it.helps]
    others = [it for it in advice.suggestions if not it.helps]
    source = advice.source

    # what helps stands below its defence; what does not names it, in one table
    def rows(some: Sequence[Suggestion], *, with_name: bool) -> list[Row]:
        return [
            _row(it, source, named(it.defence, it.settings) if with_name else setting(it.settings))
            for it in some
            if source is not None
        ]

    return Advised(
        basis=basis(advice, document.protocol),
        heads=HEADS,
        terms=ADVICE_TERMS,
        where="" if source is None else _where(source),
        measures=[
            (*DEFENCES[name], rows([it for it in helping if it.defence == name], with_name=False))
            for name in dict.fromkeys(it.defence for it in helping)
        ],
        useless=rows([it for it in others if not _dearer(it, advice.suggestions)], with_name=True),
        parameters=advice.parameters,
    )


def _of_network(advice: Advice, network: NetworkAdvice) -> Advised:
    """The section of a split network."""
    rows = [(*of_network(it.defences), it) for it in network.suggestions]
    helping = list(dict.fromkeys(kind for kind, _, it in rows if it.helps))
    return Advised(
        basis=basis(advice, "splitnn"),
        heads=NETWORK_HEADS,
        terms=NETWORK_TERMS,
        where=f"measured elsewhere, on {title(network.table)}",
        measures=[
            (*DEFENCES[name], [_network_row(it, text, network) for kind, text, it in rows if it.helps and kind == name])
            for name in helping
        ],
        useless=[_network_row(it, f"{DEFENCES[kind][0]}, {text}", network) for kind, text, it in rows if not it.helps],
        parameters=[],
    )


def _network_row(it: NetworkSuggestion, name: str, network: NetworkAdvice) -> Row:
    """The figures under `NETWORK_HEADS`."""

    def fell(before: float, left: float, taken: float | None) -> str:
        less = "" if taken is None else f" ({'nothing' if taken <= 0 else f'{100 * taken:.0f} %'} taken away)"
        return f"{share(before, 1)} → {share(left, 1)}{less}"

    kept = "–" if it.kept is None else f"{100 * max(0.0, it.kept):.0f} %"
    figures = [
        fell(network.log, it.log, it.taken_log),
        fell(network.model, it.model, it.taken_model),
        f"{share(network.accuracy, 1)} → {share(it.accuracy, 1)}",
        kept,
    ]
    return Row(name, figures, it.lines)


def _dearer(it: Suggestion, every: Sequence[Suggestion]) -> bool:
    """True if it is one of several repairs of the same noise, and not the one that costs least."""
    if it.defence == "job":
        return False
    same = [other for other in every if other.settings == it.settings]
    return it is not min(same, key=lambda other: 1.0 if other.price is None else other.price)


def basis(advice: Advice, protocol: str) -> list[str]:
    """The origin of the figures, or the reason why there are none."""
    if protocol == "pivodl":
        own = "These of its own parameters lower what leaf weights and gains tell."
        if not advice.parameters:
            own = (
                "Of what leaf weights and gains tell, this job's parameters leave no more than the strictest measured."
            )
        return [
            f"None of the defences of protocols with one label holder exists in {protocol}, and none of its parameters "
            f"withholds sets of records: nothing here lowers what attacks by groups find. {own}"
        ]
    return [*_sources(advice), *_left_out(advice)]


def _sources(advice: Advice) -> Iterator[str]:
    if (network := advice.network) is not None:
        here = "" if advice.guessed is None else f"; here {_guessed(advice.guessed)}"
        yield (
            f"Measured elsewhere, on {title(network.table)} ({count(network.records)} records, "
            f"{count(network.classes)} classes): {share(network.log, 1)} of the labels follow from the log and "
            f"{count(network.known)} known ones{here}. Of the tables at hand with as many classes its log tells most "
            "nearly as much. Effects may differ here, and scales of gradients belong to a batch: measure yours by an "
            "experiment with [audit] and compare = true."
        )
        if not any(it.helps for it in network.suggestions):
            yield "None of what was measured there, beside what this job has, both helps and leaves some of the gain."
        return
    source, measure = advice.source, "treetap frontier measures yours, and treetap audit --frontier advises by it."
    if advice.withheld == "little to lower":
        yield (
            "There is little to lower here: with the training these attacks guess hardly more of the labels than "
            "without it, so no defence is suggested. What a label holder reads in columns is another direction."
        )
    elif advice.withheld == "nothing scored":
        yield f"Nothing is scored, so no measured table can be said to be like this one: {measure}"
    elif source is None:
        yield (
            "No table that was measured is like this one, with as many classes and a training that tells between half "
            f"and twice as much of what was left to guess, so no defence is suggested: {measure}"
        )
    else:
        figures = (
            f"{_guessed(source.guessed)} without a defence, by {_MEASURES[source.measure]}; AUC {score(source.auc)} "
            f"together, {score(source.alone)} by the label holder alone"
        )
        if source.whose == "this table":
            yield f"Measured by treetap frontier on this very table: {_described(source)}: {figures}."
        else:
            here = "" if advice.guessed is None else f" (here {_guessed(advice.guessed)})"
            yield (
                f"Measured elsewhere, on {_described(source)}: {figures}{here}. Of the tables at hand with as many "
                f"classes its training tells most nearly as much as this one. Effects may differ here: {measure}"
            )
            if source.whose == "given":
                yield "It is the frontier that the audit was given, of another table, as far as their digests tell."
        if not any(it.helps for it in advice.suggestions):
            yield "None of what was measured there both helps and is stricter than what this job has."
    if advice.unlike is not None:
        yield (
            f"The frontier that the audit was given, of {title(advice.unlike)}, is of another table, as far as their "
            "digests tell, and not the nearest: it is left out."
        )


def _left_out(advice: Advice) -> Iterator[str]:
    """The sentence on what is known of the defences that the label holder has."""
    if advice.source is None and advice.network is None:
        return
    if advice.defences is None:
        yield (
            "What the label holder defends with already is in its own file alone: [defences] in audit.toml keeps it, "
            "and what is looser, out of here."
        )
    elif advice.defences:
        yield f"The label holder has {', '.join(advice.defences)}: only what is stricter stands here."


def terminal_lines(document: Document, most: int = 3) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Sentences on where the figures are from; then for each suggestion a sentence, and lines of TOML to paste."""
    advice = advised(document)
    if advice is None:
        return [], []
    said = [(f"{it.name}: {it.tells}", _pasted(it.lines)) for it in advice.parameters[:most]]
    if document.advice is not None and document.advice.network is not None:
        rows = [(name, row) for name, _, some in advice.measures for row in some]
        order = [it.lines for it in document.advice.network.suggestions if it.helps]
        for name, row in sorted(rows, key=lambda pair: order.index(pair[1].lines))[:most]:
            log, model, accuracy, kept = row.figures
            text = f"{name}, {row.setting}: labels by the log {log}, by the own model {model}, accuracy {accuracy}, "
            said.append((f"{text}{kept} of the gain kept; {advice.where}", _pasted(row.lines[:1])))
        return advice.basis, said
    helping = [] if document.advice is None else [it for it in document.advice.suggestions if it.helps]
    for it in helping[:most]:
        assert document.advice is not None
        assert document.advice.source is not None
        row = _row(it, document.advice.source, named(it.defence, it.settings))
        v, taken, cells, explained, price = row.figures
        text = f"{row.setting}: labels guessed {v}, {taken} of what the training adds taken away, cells {cells}, "
        text += "" if it.effect.cells is None else f"variance explained {explained}, "
        said.append((f"{text}{'no' if price == 'none' else price} AUC lost; {advice.where}", _pasted(row.lines[:1])))
    return advice.basis, said


def _pasted(lines: Sequence[Lines]) -> list[str]:
    """Lines of a file below a comment that names it."""
    return [line for it in lines for line in (f"# {it.file}", *it.lines)]


def _row(it: Suggestion, source: Source, name: str) -> Row:
    effect = it.effect
    left = _with_sd(effect.guessed, effect.guessed_sd)
    taken = "–" if it.taken is None else "nothing" if it.taken <= 0 else f"{100 * it.taken:.0f} %"
    price = "–" if it.price is None else "none" if round(it.price, 3) <= 0 else score(it.price)
    guessed = f"{score(source.guessed.after)} → {left}"
    return Row(name, [guessed, taken, _cells(source, it), variance(source, it), price], it.lines)


def _cells(source: Source, it: Suggestion) -> str:
    """The cells that the label holder read, without the setting → with it."""
    before, left = source.cells, it.effect.cells
    if before is None or left is None:
        return "not measured"
    return f"{share(before.read, 1)} → {share(left.read, 1)}"


def variance(source: Source, it: Suggestion) -> str:
    """The variance of numbers that the label holder explained, without the setting → with it."""
    before, left = source.cells, it.effect.cells
    if before is None or left is None:
        return "not measured"
    if before.explained is None or left.explained is None:
        return "no numbers"
    return f"{share(before.explained, 1)} → {share(left.explained, 1)}"


def _where(source: Source) -> str:
    return "measured on this table" if source.whose == "this table" else f"measured elsewhere, on {title(source.table)}"


def _guessed(it: Guessed) -> str:
    return f"labels guessed {score(it.before)} before the training, {score(it.after)} after"


def _with_sd(mean: float, sd: float | None) -> str:
    return score(mean) if sd is None else f"{score(mean)} ± {score(sd)}"


def _described(it: Source) -> str:
    seeds = "1 seed" if it.seeds == 1 else f"{count(it.seeds)} seeds"
    size = f"{count(it.records)} records, {count(it.classes)} classes"
    return f"{title(it.table)} ({size}; {count(it.trees)} trees to depth {it.max_depth}, {seeds})"
