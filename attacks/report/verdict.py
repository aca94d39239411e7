"""Verdicts for readers: a sentence, a word and a bar for each verdict, the same in a terminal and on pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot, sqrt
from typing import Literal, NamedTuple

from treetap.attacks.advice.advise import EQUAL, LEAST
from treetap.attacks.advice.names import Suggestion, of_network, plainly
from treetap.attacks.document import Document
from treetap.attacks.published.schema import HELD, PublishedDocument
from treetap.attacks.report.glossary import NOT_A_PROOF, count, score, share, title
from treetap.attacks.verdict import (
    LITTLE,
    NOTABLE,
    OTHERS,
    WORDS,
    Compared,
    FirstNamed,
    Learned,
    Measure,
    Verdict,
    Word,
)
from treetap.pages import page
from treetap.pages.section import Listed, Section, Table, Terms, Text, Where

TITLE = "What each side learned"
#: Letters of a bar in a terminal, and its three parts: guessed before, gained, left.
BAR, PARTS = 20, "█▓░"
#: What a share is of: the measure, and what was learned where it depends on that.
SHARES = {"accuracy": "cells right", "AUC": "pairs right", "explained": "variation explained"}
#: Terms of the verdicts.
TERMS = {
    "Before": "without the training: by the party's own columns, or by always naming the most frequent class or bin.",
    "After": "with all that the training sent it, by the best attack. It is never less than before.",
    "No label known": "records are put in order by what a party's own splits have in common; which end is the rarer "
    "class follows from the sizes of the classes.",
    "A floor": "only a part fitted into the bounds of an attack: with all of it a party may learn more.",
    "Nothing found": "the interval of the gain reaches down to none: these attacks did no better with the training.",
    "Little, notable, severe": f"the gain is at most {100 * LITTLE:g} %, at most {100 * NOTABLE:g} %, or more of what "
    "was left to guess before: from 90 to 92 % is a fifth of the 10 % that were left.",
    "Variation explained": "of the places of a column's values among its bins, by expected places (R²): 0 is naming "
    "the mean bin, 1 the exact bin of all. Of exact bins, cells right, and of this the worse word counts.",
    "Pairs right": "of a table with a rare class, and an attacker who knows the labels of few records: of two records "
    "of different classes, how often it puts the right one first (AUC). Half is guessing, where its bar begins.",
    "Interval": "where the gain lies with 95 % certainty, by the records and the draws of known labels; wider the more "
    "guesses were tried, since the best of many is good by luck too.",
}


#: Rounds of trees of depth 6 → per cent of the cells that left sets placed, and of the variance of places that they
#: explained, each of the table where it is least and of that where it is most: benchmarks/left_sets.py.
PLACED = {10: (1, 29, 28, 76), 20: (1, 40, 50, 94), 50: (2, 59, 69, 99), 100: (3, 71, 77, 100)}
#: The end of a cure: where it stands with its lines, or where others do; what to try.
_MORE, _SEE = "Its lines: “What lowers this” in the report.", ": docs/defend.md."
_TRY = "To try it on yours:\n    treetap frontier FILE"
#: What lowers what is read of columns, in words.
_FEWER, _CELLS = "fewer or flatter trees", "    [defences]\n    min_cell_records = 10"
#: A floor, as a line.
AT_LEAST = "at least so much: the attack stopped early"
#: Rounding that no border depends on.
_TINY = 1e-9


class Figure(NamedTuple):
    """A share before the training or after it, in words; `how` it was guessed before, empty after.

    `first`, `gained`: lengths of its bar's first two parts, of 100.
    """

    when: Literal["before", "after"]
    said: str
    how: str
    first: float
    gained: float = 0.0


class Line(NamedTuple):
    """A verdict as a reader sees it, in lines of at most one number.

    `text`: what of whom was learned. `figures`: before and after, of columns by both measures. `notes`: what else there
    is to say; `paste`: lines to write into a file where an attack is to read more. `gain`: with its interval; where
    nothing was measured the reason. `details`: the page's section. `more`: what a page alone says. `before`, `gained`:
    lengths of the bar's first two parts, of 100; None where nothing was measured. `low`, `high`: the ends of the
    interval on it. A bar of AUC begins at 0.5, chance.
    """

    party: str
    text: str
    word: Word
    gain: str
    details: str
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    paste: Sequence[str] = ()
    more: str = ""
    before: float | None = None
    gained: float | None = None
    low: float = 0.0
    high: float = 0.0

    @property
    def head(self) -> str:
        """Who learned what, and the word for it."""
        return f"{self.party}, of {self.text}: {self.word}"

    @property
    def style(self) -> str:
        """The word as a class of the style sheet."""
        return self.word.replace(" ", "-")


class Verdicts(NamedTuple):
    """Verdicts on a page. `page`: the address of the audit's page, whose sections they name; empty on that page.

    `key`: with the legend of the bars.
    """

    lines: list[Line]
    page: str = ""
    key: bool = True


class Cure(NamedTuple):
    """The remedies on a page; `page`: as of verdicts."""

    words: str
    page: str = ""
    style: str = ""


def lines(verdicts: Iterable[Verdict]) -> list[Line]:
    """The verdicts, and those that were not measured of one party for one reason in one line."""
    measured, unmeasured = list[Line](), dict[tuple[str, str, str], list[Verdict]]()
    for it in verdicts:
        if it.before is None:
            unmeasured.setdefault((it.party, it.learned, it.reason), []).append(it)
        else:
            measured.append(_line(it))
    return [*measured, *(_unmeasured(several) for several in unmeasured.values())]


def learned(verdicts: Iterable[Verdict]) -> list[Verdicts | Text]:
    """The verdicts for a page and for a terminal."""
    every = list(verdicts)
    return [Verdicts(lines(every)), *(Text(said=line, where="terminal") for line in told(every))]


def short_form(document: Document) -> list[object]:
    """The audit in short: the verdicts, what to do, and all faults of transcripts, which make figures too small."""
    return [
        *(Text(said=line, where="terminal") for line in remains(document)[1:]),
        Text(f"{TITLE}:", where="terminal"),
        *learned(document.verdicts),
        *(
            Text("Whether {} has a record ", name, said=f"ranks the labels with AUC {score(auc)}.", where="both")
            for name, party in document.parties.items()
            if (auc := party.membership) is not None
        ),
        *(
            Text("{}: ", name, said=fault, style="notice fault", where="both")
            for name, party in document.parties.items()
            for fault in party.faults
        ),
        *(
            part
            for cure in to_do(document).values()
            for part in (Cure(cure), *(Text(said=line, where="terminal") for line in cure.splitlines()))
        ),
    ]


def remains(document: Document) -> list[str]:
    """What the protocol of a private job leaves: with all measured figures, and as lines; empty of others."""
    if not document.private:
        return []
    cells = ", ".join(f"{low} to {high} % after {trees}" for trees, (low, high, *_) in PLACED.items())
    variance = ", ".join(f"{low} to {high} %" for _, _, low, high in PLACED.values())
    holder = document.label_holder
    most = next((row for trees, row in PLACED.items() if trees >= document.trees), PLACED[max(PLACED)])[1]
    return [
        f"A private job: {holder} learned each winner's owner and left set, and that no other candidate was better. Of "
        f"five public tables such sets alone placed {cells} trees of depth 6 of the cells in their bins, and explained "
        f"{variance} of the variance of places.",
        f"A private job: {holder} learned whose column made each split, and who went left.",
        f"In public tables that places up to {most} % of the cells, in as many trees.",
    ]


def told(verdicts: Iterable[Verdict]) -> list[str]:
    """For each party and direction a line with the word, and below it the figures, one a line."""
    said = []
    for it in lines(verdicts):
        said.append(it.head)
        said += [f"  {row.when:<6} {bar(row.first, row.gained)} {row.said}" for row in it.figures]
        said += [f"  {note}" for note in (it.notes if it.figures else [it.gain])]
        said += it.paste
    return said


def with_intervals(verdicts: Iterable[Verdict]) -> list[str]:
    """Each gain with its interval, and what a page says beside it."""
    return ["; ".join(filter(None, (f"{it.head}, {it.gain}", it.more))) for it in lines(verdicts) if it.figures]


def to_do(document: Document) -> dict[Learned, str]:
    """Direction → one cure, for each in which more than little was found, in lines; those set in are to paste."""
    high = {it.learned for it in document.verdicts if it.rank > WORDS.index("little")}
    cures: dict[Learned, str] = {}
    if "labels" in high:
        who = "parties" if document.protocol == "pivodl" else "others"
        cures["labels"] = f"To lower what {who} learned of labels: {_of_labels(document, both='columns' in high)}"
    if "columns" in high:
        who = "parties" if document.protocol == "pivodl" else document.label_holder
        cures["columns"] = f"To lower what {who} learned of columns: {_of_columns(document)}"
    return cures


def _of_labels(document: Document, *, both: bool) -> str:
    """The cure for labels; `both`: columns are to be lowered too, so that what opens them comes last."""
    advice = document.advice
    if document.of_network:
        points = [] if advice is None or advice.network is None else advice.network.suggestions
        best = next((it for it in points if it.helps), None)
        if best is None or advice is None or advice.network is None:
            return f"a defence{_SEE}"
        kind, took = of_network(best.defences)[0], max(best.taken_log or 0.0, best.taken_model or 0.0)
        where = f"On {title(advice.network.table)}, a table like yours, it took away {round(100 * took)} %."
        return f"{plainly(kind)}.\n{where}\n{_MORE}\nTo try it on yours:\n    treetap experiment FILE"
    every = [] if advice is None else [it for it in advice.suggestions if it.helps and (it.taken or 0.0) >= LEAST]
    if both:
        every.sort(key=lambda it: (it.taken_cells or 0.0) < 0)
    if every:
        return _measured(document, every, "taken")
    if document.protocol != "pivodl":
        return f"a defence{_SEE}\n{_TRY}"
    first = next(iter(advice.parameters), None) if advice is not None else None
    return f"fewer trees{_SEE}" if first is None else f"{plainly(first.name)}{first.on}.\n{_MORE}"


def _measured(document: Document, every: Sequence[Suggestion], kind: Literal["taken", "taken_cells"]) -> str:
    """The first of these suggestions, and the least that it and those of its defence that take no less by more than
    chance took away, or the most where that is little; of whose table.
    """
    assert document.advice is not None
    source, first, spread = document.advice.source, every[0], 0.0
    assert source is not None
    told = source.guessed.after - source.guessed.before
    same = []
    for it in (it for it in document.advice.suggestions if it.defence == first.defence):
        if kind == "taken" and told > 0:
            spread = hypot(it.effect.guessed_sd or 0.0, first.effect.guessed_sd or 0.0) / told
        if abs((getattr(it, kind) or 0.0) - (getattr(first, kind) or 0.0)) <= max(EQUAL, spread) + _TINY:
            same.append(it)
    ends = sorted({round(100 * (getattr(it, kind) or 0.0)) for it in same})
    took = f"{ends[0]} %" if len(ends) == 1 else f"at least {ends[0]} %"
    took = f"{round(100 * (getattr(first, kind) or 0.0))} %" if ends[0] < 100 * LEAST else took
    took += " of the cells read" if kind == "taken_cells" else ""
    took += ", and chance sways that much" if ends[0] < 100 * LEAST else ""
    own = source.whose == "this table"
    where = "On this very table" if own else f"On {title(source.table)}, a table like yours,"
    return f"{plainly(first.defence)}.\n{where} it took away {took}.\n{_MORE}" + ("" if own else f"\n{_TRY}")


def _of_columns(document: Document) -> str:
    """The cure for columns: the one that takes most away where it was measured, else settings."""
    every = [] if document.advice is None else document.advice.suggestions
    reads_less = [it for it in every if it.helps and (it.taken_cells or 0.0) >= LEAST]
    if reads_less:
        reads_less.sort(key=lambda it: -(it.taken_cells or 0.0))
        return _measured(document, reads_less, "taken_cells")
    if document.of_network:
        return f"leave columns out, or guard them{_SEE}"
    if document.protocol == "pivodl" or document.private:
        return f"{_FEWER}{_SEE}"
    return f"{_FEWER}, or no sums over few records{_SEE}\nThe latter, in a feature party's file:\n{_CELLS}"


def _line(it: Verdict) -> Line:
    """A measured verdict; of columns with what their other measure says, whose word is no worse."""
    # a verdict that was measured has all of them
    before, after, more, low, high = (value or 0.0 for value in (it.before, it.after, it.gain, it.low, it.high))
    gain = f"{100 * more:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    if it.share is not None and it.word != "nothing found":
        gain += f", {round(100 * it.share)} % of what was left"
    if it.known is not None:
        gain += f"; {count(it.known)} labels known"
    if it.drawn is not None:
        gain += f", ± {100 * it.drawn:.1f} points by the draw of the {count(it.known)}"
    figures = _figures(it.measure, it.learned, before, after, it.before_how, it.word)
    bars = figures[-1]
    if (other := it.other) is not None:
        figures += _figures(other.measure, it.learned, other.before, other.after, other.before_how, other.word)
    notes = [] if it.known is None else [f"if it knows {count(it.known)} of the labels"]
    notes += [] if it.first is None else [_named_first(it.first, it.word)]
    floor, *paste = it.floor.splitlines() or [""]
    notes += [AT_LEAST + "; to read all:" * bool(paste)] if floor else []
    further = "; ".join(filter(None, (floor, it.placed)))
    low, high = (_on_bar(it.measure, before + end) for end in (low, high))
    whose = f"{it.of}' {it.learned}" if it.of == OTHERS else f"{it.of}'s {it.learned}"
    shown = Line(it.party, whose, it.word, gain, it.details, figures, notes, paste, further, bars.first, bars.gained)
    return shown._replace(low=low, high=high)


def _on_bar(measure: Measure | None, value: float) -> float:
    """The place of a figure on a bar of 100."""
    least = 0.5 if measure == "AUC" else 0.0
    return min(100.0, max(0.0, 100 * (value - least) / (1 - least)))


def _figures(
    measure: Measure | None, learned: Learned, before: float, after: float, how: str, word: Word
) -> list[Figure]:
    """Two shares in words; what was gained is on a bar unless nothing was found."""
    of = f"{learned} right" if measure == "accuracy" and learned != "columns" else SHARES[measure or "accuracy"]
    start = _on_bar(measure, before)
    gained = 0.0 if word == "nothing found" else _on_bar(measure, after) - start
    return [
        Figure("before", f"{share(before, 1):>7} of {of}", how, start),
        Figure("after", f"{share(after, 1):>7} of {of}", "", start, gained),
    ]


def _named_first(it: FirstNamed, word: Word) -> str:
    """Whether the records that are named first, which a label holder has to fear, are right more often."""
    # what 95 of 100 draws of as many records stay below
    better = it.after - it.before > 1.96 * sqrt(it.before * (1 - it.before) / max(1, it.first))
    if word != "nothing found" and better:
        return "the records that it is surest of are right more often"
    return "the records that it is surest of are right no more often"


def _unmeasured(several: list[Verdict]) -> Line:
    first = several[0]
    names = " and ".join(it.of for it in several)
    reason, *paste = first.reason.splitlines() or [""]
    return Line(first.party, f"the {first.learned} of {names}", first.word, reason, first.details, paste=paste)


def bar(before: float, gained: float, length: int = BAR) -> str:
    """The bar in letters, of figures of 100; what was gained has one letter at least, unless it is nothing."""
    second = max(round(length * gained / 100), int(gained > 0))
    first = min(round(length * before / 100), length - second)
    return PARTS[0] * first + PARTS[1] * second + PARTS[2] * (length - first - second)


_BEFORE = "without it, and how"
MEMBERSHIP_HEADS = ("a holder of", "AUC", "95 %", "found at 1 % false", "95 %", _BEFORE, "by", "word")
COLUMN_HEADS = ("a holder of", "column", "measure", "values", "records", _BEFORE, "with it", "gain", "word")
MEASURES = {"accuracy": "right", "explained": "variance explained"}
#: The terms of verdicts that occur here, and those of the tables.
_TERMS = {name: TERMS[name] for name in ("Nothing found", "Little, notable, severe", "Interval")} | {
    "Before": "what one knows without the artefact: by the other columns, the most frequent value or the mean; of "
    "membership by the records themselves, whose two halves may differ.",
    "Found at 1 % false": "the share of the training's records that are named if 1 % of the others are named wrongly.",
}


def intruder_report(document: PublishedDocument, *, details: bool = True) -> Section:
    """The audit under its three headings; `details`: a terminal shows each column's figures too."""
    members = [
        [
            *(HELD[row.artefact][0], score(row.auc), _range(row.low, row.high, 3)),
            *(share(row.found, 1), _range(100 * row.found_low, 100 * row.found_high, 1)),
            *(f"{score(row.compared.before)}, {row.compared.before_how}", row.how, row.compared.word),
        ]
        for row in document.membership
    ]
    # what gained most of what was left comes first
    columns = [
        [
            HELD[row.artefact][0],
            f"{row.party}: {row.column}" if row.party else row.column,
            *(MEASURES[row.compared.measure], count(row.bins), count(row.records)),
            f"{share(row.compared.before, 1)}, by {row.compared.before_how.rpartition(', by ')[2]}",
            *(share(row.compared.after, 1), _gain(row.compared), row.compared.word),
        ]
        for row in sorted(document.member_columns, key=lambda row: -row.compared.share)
    ]
    tables: list[tuple[str, Sequence[str], list[list[str]], Where]] = [
        ("Whether a record was of the training", MEMBERSHIP_HEADS, members, "both"),
        ("Columns of records of the training", COLUMN_HEADS, columns, "both" if details else "page"),
    ]
    return Section(
        "",
        [
            Text(said=intruder_title(document), where="terminal"),
            *(
                Section(head, [Listed([(sentence, "") for sentence in sentences])], head.lower())
                for head, sentences in (("Knew", document.knew), ("Tried", document.tried))
            ),
            Section(
                "Got",
                [
                    *learned(document.verdicts),
                    *([Listed([(it, "") for it in with_intervals(document.verdicts)], "terminal")] if details else []),
                    *(
                        Section(label, [Table(heads, rows, label, 2, style="cards", where=where)])
                        for label, heads, rows, where in tables
                        if rows
                    ),
                    Section("How the words are chosen", [Terms(_TERMS)], folded=True),
                ],
                "got",
            ),
            Text(NOT_A_PROOF, where="terminal"),
        ],
    )


def intruder_page(document: PublishedDocument) -> str:
    """The audit as a page that loads nothing; all names are escaped."""
    made = f"treetap {document.treetap}, {document.created:%Y-%m-%d %H:%M %Z}, seed {document.seed}."
    closing = [Text(NOT_A_PROOF), Text("{} Protect this file as you protect the labels.", made)]
    return page.html(intruder_title(document), Section("", []), [intruder_report(document)], Section("", closing))


def intruder_title(document: PublishedDocument) -> str:
    """The model, its parties and its protocol."""
    parties = ", ".join(document.parties)
    return f"Motivated intruder test of {document.model}, a model of {parties} by {document.protocol}"


def _gain(it: Compared) -> str:
    low, high = it.interval
    return f"{100 * (it.after - it.before):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _range(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f} to {high:.{digits}f}"
