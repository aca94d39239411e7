"""Verdicts for readers: a sentence, a word and a bar for each verdict, the same in a terminal and on pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot, sqrt
from typing import Literal, NamedTuple

from treetap.attacks.advice.advise import EQUAL, LEAST
from treetap.attacks.advice.names import DEFENCES, Suggestion, of_network, ranged
from treetap.attacks.document import Document
from treetap.attacks.published.schema import HELD, PublishedDocument
from treetap.attacks.report.advice import variance
from treetap.attacks.report.glossary import NOT_A_PROOF, count, score, share, title
from treetap.attacks.verdict import LITTLE, NOTABLE, OTHERS, WORDS, Compared, FirstNamed, Learned, Verdict, Word
from treetap.pages import page
from treetap.pages.section import Listed, Section, Table, Terms, Text, Where

TITLE = "What each side learned"
#: Letters of a bar in a terminal, and its three parts: guessed before, gained, left.
BAR, PARTS = 24, "█▓░"
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
    "Variance": "of the places of a column's values among its bins, that expected places explain: 0 is naming the mean "
    "bin, 1 the exact bin of all. Of exact bins and of this the worse word counts.",
    "AUC": "of a table with a rare class, and an attacker who knows the labels of few records: the chance that of two "
    "records of different classes the right one comes first; 0.5 is guessing, where its bar begins.",
    "Interval": "where the gain lies with 95 % certainty, by the records and the draws of known labels; wider the more "
    "guesses were tried, since the best of many is good by luck too.",
}


#: Rounds of trees of depth 6 → per cent of the cells that left sets placed, and of the variance of places that they
#: explained, each of the table where it is least and of that where it is most: benchmarks/left_sets.py.
PLACED = {10: (1, 29, 28, 76), 20: (1, 40, 50, 94), 50: (2, 59, 69, 99), 100: (3, 71, 77, 100)}
#: The end of a cure: where it stands with its figures and lines, or where others do.
_MORE, _SEE, _COLUMNS = ": “What lowers this” in the report", ", see docs/defend.md", ": docs/defend.md, on columns"
_TRY = "; try it: treetap frontier FILE"
#: Rounding that no border depends on.
_TINY = 1e-9
#: How another setting is measured in both directions; docs/measure.md has the file's keys.
_MEASURED = (
    "; treetap frontier measures min_cell_records = [10, 20] and fewer trees by job = {n_estimators = …} of "
    "[[defence]], with --trainer federation"
)


class Line(NamedTuple):
    """A verdict as a reader sees it.

    `gain`: with its interval; where nothing was measured the reason. `details`: the page's section. `beside`: what else
    there is to say; may be empty. `before`, `gained`: lengths of the bar's first two parts, of 100; None where nothing
    was measured. `low`, `high`: the ends of the interval on it. A bar of AUC begins at 0.5, chance.
    """

    party: str
    text: str
    word: Word
    gain: str
    details: str
    beside: str = ""
    before: float | None = None
    gained: float | None = None
    low: float = 0.0
    high: float = 0.0

    @property
    def on_bar(self) -> tuple[float, float]:
        """What was guessed before and gained, of a bar of 100."""
        return self.before or 0.0, self.gained or 0.0

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
        Text(remains(document), where="terminal"),
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
        *(part for cure in to_do(document).values() for part in (Cure(cure), Text(said=cure, where="terminal"))),
    ]


def remains(document: Document) -> str:
    """The first line of a private job's audit: what its protocol leaves, with measured figures; empty of others."""
    if not document.private:
        return ""
    cells = ", ".join(f"{low} to {high} % after {trees}" for trees, (low, high, *_) in PLACED.items())
    variance = ", ".join(f"{low} to {high} %" for _, _, low, high in PLACED.values())
    return (
        f"A private job: {document.label_holder} learned each winner's owner and left set, and that no other candidate "
        f"was better. Of five public tables such sets alone placed {cells} trees of depth 6 of the cells in their "
        f"bins, and explained {variance} of the variance of places."
    )


def told(verdicts: Iterable[Verdict]) -> list[str]:
    """A sentence and a bar for each party and direction."""
    said = []
    for it in lines(verdicts):
        if it.before is None:
            said.append(f"{it.party} {it.text}: {it.word}, {it.gain}")
            continue
        said += [f"{it.party} {it.text}", f"  {bar(*it.on_bar)} {it.word}: {it.gain}"]
        said += [f"  {it.beside}"] if it.beside else []
    return said


def to_do(document: Document) -> dict[Learned, str]:
    """Direction → one cure, for each in which more than little was found."""
    high = {it.learned for it in document.verdicts if it.rank > WORDS.index("little")}
    cures: dict[Learned, str] = {}
    if "labels" in high:
        cures["labels"] = f"To lower it: labels{_of_labels(document, both='columns' in high)}."
    if "columns" in high:
        cures["columns"] = f"To lower it: columns{_of_columns(document)}."
    return cures


def _of_labels(document: Document, *, both: bool) -> str:
    """The cure for labels; `both`: columns are to be lowered too, so that what opens them comes last."""
    advice = document.advice
    if document.of_network:
        points = [] if advice is None or advice.network is None else advice.network.suggestions
        best = next((it for it in points if it.helps), None)
        if best is None or advice is None or advice.network is None:
            return _SEE
        (kind, settings), took = of_network(best.defences), max(best.taken_log or 0.0, best.taken_model or 0.0)
        where = f", which took away {round(100 * took)} % on {title(advice.network.table)}, a table like yours"
        return f" by {DEFENCES[kind][0]}, {settings}{where}{_MORE}; try it: treetap experiment FILE"
    every = [] if advice is None else [it for it in advice.suggestions if it.helps and (it.taken or 0.0) >= LEAST]
    if both:
        every.sort(key=lambda it: (it.taken_cells or 0.0) < 0)
    if every:
        return f" by {_measured(document, every, 'taken')}"
    if document.protocol != "pivodl":
        return f"{_SEE}{_TRY}"
    first = next(iter(advice.parameters), None) if advice is not None else None
    return _SEE if first is None else f" by {first.name}{first.on}{_MORE}"


def _measured(document: Document, every: Sequence[Suggestion], kind: Literal["taken", "taken_cells"]) -> str:
    """The first of these suggestions, with those of its defence that take no less by more than chance: what they took
    away, and of whose table.
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
    took = f"{ends[0]} %" if len(ends) == 1 else f"{ends[0]} to {ends[-1]} %"
    if kind == "taken_cells":
        most = max(same, key=lambda it: (it.effect.cells and it.effect.cells.explained) or 0.0)
        took += f" of the cells read (variance explained: {variance(source, most)})"
    name, where = ranged(first.defence, [it.settings for it in same]), title(source.table)
    if source.whose == "this table":
        return f"{name}, which took away {took} on this very table{_MORE}"
    return f"{name}, which took away {took} on {where}, a table like yours{_MORE}{_TRY}"


def _of_columns(document: Document) -> str:
    """The cure for columns: the one that takes most away where it was measured, else settings."""
    every = [] if document.advice is None else document.advice.suggestions
    reads_less = [it for it in every if it.helps and (it.taken_cells or 0.0) >= LEAST]
    if reads_less:
        reads_less.sort(key=lambda it: -(it.taken_cells or 0.0))
        return f" by {_measured(document, reads_less, 'taken_cells')}"
    if document.of_network:
        return f" by leaving columns out, in part by sensitivity of a feature party{_COLUMNS}"
    if document.protocol == "pivodl" or document.private:
        return f" by fewer trees or a smaller max_depth{_COLUMNS}"
    settings = "fewer trees, a smaller max_depth or min_cell_records of a feature party"
    return f" by {settings}{_COLUMNS}{_MEASURED}"


def _line(it: Verdict) -> Line:
    """A measured verdict; what its other measure of columns says, whose word is no worse, stands beside."""
    # a verdict that was measured has all of them
    before, after, more, low, high = (value or 0.0 for value in (it.before, it.after, it.gain, it.low, it.high))
    whose = f"{it.of}' {it.learned}" if it.of == OTHERS else f"{it.of}'s {it.learned}"
    how, floor = f"before ({it.before_how})", 0.5 if it.measure == "AUC" else 0.0
    if it.measure == "AUC":
        text = f"could rank {whose} with AUC {score(before)} {how}, {score(after)} after"
        gain = f"{more:+.3f} ({low:+.3f} to {high:+.3f})"
    else:
        what = "the variance of " if it.measure == "explained" else ""
        text = f"could guess {share(before, 1)} of {what}{whose} {how}, {share(after, 1)} after"
        gain = f"{100 * more:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    if it.share is not None and it.word != "nothing found":
        gain += f", {round(100 * it.share)} % of what was left"
    if it.known is not None:
        gain += f"; {count(it.known)} labels known"
    if it.drawn is not None:
        drawn = f"{it.drawn:.3f}" if it.measure == "AUC" else f"{100 * it.drawn:.1f} points"
        gain += f", ± {drawn} by the draw of the {count(it.known)}"

    def on_bar(value: float) -> float:
        return min(100.0, max(0.0, 100 * (value - floor) / (1 - floor)))

    start = on_bar(before)
    gained = 0.0 if it.word == "nothing found" else on_bar(after) - start
    ends = (on_bar(before + end) for end in (low, high))
    first = "" if it.first is None else _named_first(it.first, it.word)
    other = ""
    if (more_of := it.other) is not None:
        what = (
            "of all cells it could name"
            if more_of.measure == "accuracy"
            else "of the variance of places it could explain"
        )
        other = f"{what} {share(more_of.before, 1)} before ({more_of.before_how}), {share(more_of.after, 1)} after"
        other = f"{other}: {more_of.word}"
    beside = "; ".join(filter(None, (other, first, it.floor, it.placed)))
    return Line(it.party, text, it.word, gain, it.details, beside, start, gained, *ends)


def _named_first(it: FirstNamed, word: Word) -> str:
    """The records that are named first and, where something was found, which of the two a label holder has to fear."""
    right, before, chance = (round(it.first * part) for part in (it.after, it.before, it.chance))
    said = (
        f"of the {count(it.first)} records that it would name first {right} are {it.rarest!r} "
        f"(before {before}, by chance {chance})"
    )
    # what 95 of 100 draws of as many records stay below
    better = it.after - it.before > 1.96 * sqrt(it.before * (1 - it.before) / max(1, it.first))
    if word == "nothing found":
        return f"{said}: within chance" if right != before and not better else said
    if better:
        return f"{said}: the top of its list, which is what to fear, gets better"
    return f"{said}: the top of its list, which is what to fear, gets no better; the order below it does"


def _unmeasured(several: list[Verdict]) -> Line:
    first = several[0]
    names = " and ".join(it.of for it in several)
    text = f"as a reader of the {first.learned} of {names}"
    return Line(first.party, text, first.word, first.reason, first.details)


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
                    *(
                        Section(label, [Table(heads, rows, label, 2, where=where)])
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
