"""The section "What lowers this": suggestions by defence as they were measured, and settings that do not help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from treetap.attacks.advice.names import (
    DEFENCES,
    Advice,
    Guessed,
    Lines,
    Measure,
    NetworkAdvice,
    NetworkSuggestion,
    Source,
    Suggestion,
    named,
    of_network,
    setting,
)
from treetap.attacks.document import Document
from treetap.attacks.report.glossary import count, score, share, title
from treetap.pages.section import Cell, Code, Entry, Section, Table, Terms, Text

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


#: Terms of the advice.
TERMS = {
    "Labels guessed": "by the best attack on the measured table, without the defence → with it: the share of right "
    "ones or, where a class is rare, the AUC by few known labels. At least what own columns give, which a party has.",
    "Taken away": "of what the training adds to what a party can guess without it. At 100 % taking part no longer "
    "helps these attacks; –: the training adds next to nothing, less than 0.02.",
    "Cells read": "the share of a feature party's cells (record, column) that the label holder placed in their bins on "
    "the measured table, without the setting → with it. A setting that hides labels may tell more of columns.",
    "Variance explained": "of the places of values among the bins of columns of numbers, by those that the label "
    "holder expects, there too; 0 before the training. Where no cell is placed the order may be known all the same.",
    "Price": "how much of the model's AUC on held-out records is lost. AUC: the chance that of two records of "
    "different classes the model ranks the right one higher; 0.5 is guessing, 1 perfect.",
}
#: Most suggestions that a terminal shows.
MOST = 3


class Row(NamedTuple):
    """A suggestion: its defence, its settings alone and below its name, its figures under the heads, its lines.

    `helps`: it is to be taken; others are listed, but for those `dearer` than another repair of the same noise.
    """

    defence: str
    setting: str
    named: str
    figures: list[str]
    lines: list[Lines]
    helps: bool
    dearer: bool = False


def advised(document: Document) -> Section | None:
    """The section of a document; None where it has no advice."""
    advice, source, rows = document.advice, None, list[Row]()
    if advice is None:
        return None
    heads: Sequence[str] = HEADS
    terms, where = TERMS, ""
    if (network := advice.network) is not None:
        heads, terms, where = NETWORK_HEADS, NETWORK_TERMS, f"measured elsewhere, on {title(network.table)}"
        rows = [_network_row(suggestion, network) for suggestion in network.suggestions]
    elif (source := advice.source) is not None:
        own = source.whose == "this table"
        where = "measured on this table" if own else f"measured elsewhere, on {title(source.table)}"
        rows = [_row(suggestion, source, advice.suggestions) for suggestion in advice.suggestions]
    helping, useless = [row for row in rows if row.helps], [row for row in rows if not (row.helps or row.dearer)]
    said = [(f"{parameter.name}: {parameter.tells}", parameter.lines) for parameter in advice.parameters[:MOST]]
    for row in helping[: max(0, MOST - len(said))]:
        figures = "; ".join(f"{head} {figure}" for head, figure in zip(heads, row.figures, strict=True))
        said.append((f"{row.named}: {figures}; {where}", row.lines[:1]))
    sentences = basis(advice, document.protocol)
    return Section(
        "What lowers this",
        [
            *(Text(said=sentence) for sentence in sentences),
            Text(said=" ".join(sentences), where="terminal"),
            *(
                part
                for sentence, lines in said
                for part in (
                    Text("- ", said=sentence, where="terminal"),
                    *(Code(one.file, one.lines, where="terminal") for one in lines),
                )
            ),
            Terms(terms if rows else {}),
            *(
                _measure(defence, [row for row in helping if row.defence == defence], heads, where)
                for defence in dict.fromkeys(row.defence for row in helping)
            ),
            *(
                Section(
                    parameter.name,
                    [Text(said=parameter.tells), *(Code(one.file, one.lines) for one in parameter.lines)],
                    where="page",
                )
                for parameter in advice.parameters
            ),
            Section(
                "What does not help",
                [
                    Text(
                        "Measured as above: it takes away less than a quarter in each direction, or no more than "
                        "something above that costs less, or leaves nothing of the gain. Of several repairs of the "
                        "same noise, which take away the same, the cheapest stands here."
                    ),
                    Table(
                        ("setting", *heads),
                        [[Cell(row.named, where), *row.figures] for row in useless],
                        "Settings that do not help",
                        style="cards",
                    ),
                ]
                if useless
                else [],
                where="page",
            ),
        ],
        "lowers",
    )


def _measure(defence: str, rows: Sequence[Row], heads: Sequence[str], where: str) -> Section:
    """The settings of one defence that helps."""
    name, meaning = DEFENCES[defence]
    content: list[list[Entry]] = [
        [Cell(row.setting, where), *row.figures, [Code(one.file, one.lines) for one in row.lines]] for row in rows
    ]
    label = f"{name}: settings, effect, price and lines"
    table = Table(("setting", *heads, "lines to write"), content, label, words=(len(heads) + 1,), style="cards")
    return Section(name, [Text(meaning), table], where="page")


def _network_row(suggestion: NetworkSuggestion, network: NetworkAdvice) -> Row:
    """The figures under `NETWORK_HEADS`."""

    def fell(before: float, left: float, taken: float | None) -> str:
        less = "" if taken is None else f" ({'nothing' if taken <= 0 else f'{100 * taken:.0f} %'} taken away)"
        return f"{share(before, 1)} → {share(left, 1)}{less}"

    figures = [
        fell(network.log, suggestion.log, suggestion.taken_log),
        fell(network.model, suggestion.model, suggestion.taken_model),
        f"{share(network.accuracy, 1)} → {share(suggestion.accuracy, 1)}",
        "–" if suggestion.kept is None else f"{100 * max(0.0, suggestion.kept):.0f} %",
    ]
    defence, settings = of_network(suggestion.defences)
    name = f"{DEFENCES[defence][0]}, {settings}"
    return Row(defence, settings, name, figures, suggestion.lines, suggestion.helps)


def _row(suggestion: Suggestion, source: Source, every: Sequence[Suggestion]) -> Row:
    """The figures under `HEADS`; `every`: all suggestions, among which are other repairs of the same noise."""
    effect, taken, price = suggestion.effect, suggestion.taken, suggestion.price
    before, left = source.cells, effect.cells
    spread = "" if effect.guessed_sd is None else f" ± {score(effect.guessed_sd)}"
    same = [other for other in every if other.settings == suggestion.settings]
    cheapest = min(same, key=lambda other: 1.0 if other.price is None else other.price)
    figures = [
        f"{score(source.guessed.after)} → {score(effect.guessed)}{spread}",
        "–" if taken is None else "nothing" if taken <= 0 else f"{100 * taken:.0f} %",
        # the cells that the label holder read, without the setting → with it
        "not measured" if before is None or left is None else f"{share(before.read, 1)} → {share(left.read, 1)}",
        variance(source, suggestion),
        "–" if price is None else "none" if round(price, 3) <= 0 else score(price),
    ]
    return Row(
        suggestion.defence,
        setting(suggestion.settings),
        named(suggestion.defence, suggestion.settings),
        figures,
        suggestion.lines,
        suggestion.helps,
        suggestion.defence != "job" and suggestion is not cheapest,
    )


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


def variance(source: Source, it: Suggestion) -> str:
    """The variance of numbers that the label holder explained, without the setting → with it."""
    before, left = source.cells, it.effect.cells
    if before is None or left is None:
        return "not measured"
    if before.explained is None or left.explained is None:
        return "no numbers"
    return f"{share(before.explained, 1)} → {share(left.explained, 1)}"


def _guessed(it: Guessed) -> str:
    return f"labels guessed {score(it.before)} before the training, {score(it.after)} after"


def _described(it: Source) -> str:
    seeds = "1 seed" if it.seeds == 1 else f"{count(it.seeds)} seeds"
    size = f"{count(it.records)} records, {count(it.classes)} classes"
    return f"{title(it.table)} ({size}; {count(it.trees)} trees to depth {it.max_depth}, {seeds})"
