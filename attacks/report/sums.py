"""The columns of feature parties in jobs of trees: what the label holder read of them by the sums that it opened."""

from __future__ import annotations

from typing import Literal

from treetap.attacks.document import Document
from treetap.attacks.report.glossary import count, left_out, score, seconds, share
from treetap.attacks.sums.schema import CellsRead, ColumnFigures, MarkedCells, placed_words
from treetap.pages.section import Facts, Image, Section, Table, Terms, Text

#: Way of reading → its name in tables; each way but the last has what those before it have.
WAYS: dict[Literal["left_sets", "differences", "together", "given"], str] = {
    "left_sets": "left sets alone (floor)",
    "differences": "and differences",
    "together": "and all equations",
    "given": "all links given (bound)",
}
#: The same of sums with noise, which are read with links given alone.
NOISED, ALLOWED = "noised sums, links given", "largest share of cells that ε allows to name"
WAY_HEADS = ("reading", "cells placed", "claims", "wrong", "wrong, of claims")
GLANCE_HEADS = ("of", "cells placed", "wrong, of claims", "left sets alone", "all links given", "best column", "rank")
CUT_HEADS = ("column", "cuts learned", "cells between two of them", "cells in one bin")
#: The sentence that a reader of the figures must have.
WHO_KNOWS = (
    "Which cells are placed and which claims are wrong the audit alone knows, by the feature party's table; the label "
    "holder has the claims."
)


#: Records whose g or h can have bits of their own in an honest training: of weights or labels like no others.
CHANCE = 3
#: Terms of a label holder's attack on columns by opened sums.
TERMS = {
    "Cell placed": "a record's value in one column is claimed to lie in one bin, rightly.",
    "Left sets alone": "the records that went left at the splits that the feature party won. They are sent as they "
    "are, so no noise on sums lowers this figure.",
    "Cut learned": "a left set names the records of the node on one side of one cut. A cell between two learned cuts, "
    "or beyond the last one, is known that far.",
    "Differences": "two sums that differ in few records say which records these are, once candidates of one column "
    "are put in order.",
    "All equations": "what does not follow exactly is estimated by least squares over all sums.",
    "Links": "the attacker has to find out which candidates, of all trees, are neighbours on one column. Links right: "
    "the share of its neighbours that are. With all links given by the audit: a bound on what a better attacker "
    "would read.",
    "Contradictions": "sums that no set of records had, by which the attacker itself sees that links are wrong.",
    "Rank correlation": "Spearman's, of a column's values and their estimates; 1: their order was read.",
}


def columns_read(document: Document) -> Section | None:
    """The section of a label holder's attacks by opened sums; None where no label holder of trees is audited."""
    victims = [
        _victim(holder, name, figures)
        for holder, party in document.parties.items()
        for name, figures in (party.columns_read or {}).items()
    ]
    if not victims:
        return None
    return Section(
        "Columns of feature parties",
        [
            Text(
                "In a job of trees the label holder opens the sums of every split candidate, and gets the left set "
                "of every split that a feature party wins. This attack works out from its own transcript alone in "
                f"which bin a record's value lies. {WHO_KNOWS}"
            ),
            Terms(TERMS),
            *victims,
            *(
                Text("{} ", holder, said=mark_words(name, figures), style="notice", where="both")
                for holder, party in document.parties.items()
                for name, figures in (party.marks_read or {}).items()
                if figures.marks
            ),
        ],
        "columns",
    )


def _victim(holder: str, name: str, figures: ColumnFigures) -> Section:
    """The section's part on one feature party."""
    picture = []
    if figures.picture is not None:
        alts = (f"ranks of {figures.best} of {name}", f"the same as {holder} read them")
        images = [Image(url, alt) for url, alt in zip((figures.picture.truth, figures.picture.read), alts, strict=True)]
        label = "A column beside its reconstruction"
        pixels = (
            "A pixel is a record, from dark, the least value, to light, the largest; white has no value. Equal "
            "pictures: the order was read."
        )
        table = Table(("its values", "as read"), [images], label, style="pictures large", where="page")
        title = f"The best-read column beside its reconstruction: {figures.best}"
        picture = [Section(title, [table, Text(pixels, style="soft")], where="page")]
    facts = [
        ("records", count(figures.records)),
        ("columns", count(figures.columns)),
        ("trees", count(figures.trees)),
        ("candidates of a tree, at most", count(figures.candidates)),
        ("equations", count(figures.equations)),
        ("links right", "–" if figures.links is None else share(figures.links, 1)),
        ("contradictions", count(figures.contradictions)),
        ("rank correlation of the best-read column", score(figures.rank_correlation)),
        ("the same with links given", score(figures.given_correlation)),
        ("variance explained with links given", score(figures.given_explained)),
        *((f"cells named right, {how}", share(value, 1)) for how, value in figures.named.items()),
        ("processor time", seconds(figures.seconds)),
    ]
    return Section(
        Text("What {} read of {}", holder, name),
        [
            Text("{} ", holder, said=words(name, figures), where="both"),
            Facts(facts),
            Table(WAY_HEADS, way_rows(figures), f"Cells of {name}, read by opened sums"),
            Table(
                CUT_HEADS,
                [[it.column, count(it.cuts), share(it.between, 1), share(it.placed, 1)] for it in figures.cuts],
                f"Columns of {name}, by left sets alone",
            ),
            *picture,
            *left_out({name: figures.reasons}),
        ],
        style="victim",
    )


def mark_words(name: str, figures: MarkedCells) -> str:
    """The sentence follows the label holder's name."""
    if figures.records <= CHANCE:
        said = (
            f"summed bits of g and h that {count(figures.records)} of the records alone have, as odd weights give them"
        )
    else:
        said = (
            f"marked {count(figures.records)} records by bits of g and h of their own in {count(figures.trees)} trees"
        )
    if figures.read is None:
        return f"{said}, and read none of {name}'s cells by them: {'; '.join(figures.reasons.values())}."
    bound = "" if figures.given is None else f", {share(figures.given.placed, 1)} with all links given"
    return (
        f"{said}, and by these placed {share(figures.read.placed, 1)} of {name}'s cells"
        f"{bound}; {count(figures.read.wrong)} of its {count(figures.read.claims)} claims are wrong."
    )


def room(document: Document) -> str:
    """The sentence on the room of a plaintext, of the first party whose transcript tells it; empty without one."""
    rooms = [party.room for party in document.parties.values() if party.room is not None]
    if not rooms:
        return ""
    here, trees = rooms[0], -(-document.records // rooms[0].sum_bits)
    holds = f"{count(here.sums)} sums, in a ciphertext" if here.sums > 1 else "one sum"
    return (
        "The label holder could craft g and h, which no party detects. Only the room of a plaintext bounds "
        f"what sums would tell it then: {count(here.sum_bits)} bits a sum, {count(here.query_bits)} of {holds}. "
        f"With a bit for each record, {count(trees)} {'tree tells' if trees == 1 else 'trees tell'} every bin of all "
        f"{count(document.records)}."
    )


def words(name: str, figures: ColumnFigures) -> str:
    """A label holder's reading of one feature party's columns; the sentences follow the label holder's name."""
    size = f"{count(figures.records)} records × {count(figures.columns)} columns"
    if (read := figures.read) is None:
        why = "; ".join(figures.reasons.values())
        unread = f"was not measured as a reader of {name}'s columns: {why}."
        return f"{unread} {_learned(size, figures)}" if any(it.cuts for it in figures.cuts) else unread

    floor = share(figures.left_sets.placed, 1)
    if figures.noise is not None:
        return f"{_noised(name, size, read, figures)} {_learned('', figures)}"
    bound = "" if figures.given is None else f"; with all links given it would place {share(figures.given.placed, 1)}"
    said = [
        f"placed {share(read.placed, 1)} of {name}'s cells ({size}) in their bins, by the sums that it opened in "
        f"{count(figures.trees)} trees; {count(read.wrong)} of its {count(read.claims)} claims are wrong, which the "
        "audit alone knows.",
        f"The left sets of splits that {name} won, which no noise on sums hides, place {floor} by themselves{bound}.",
        _learned("", figures),
    ]
    if figures.best is not None:
        said.append(
            f"The order of {figures.best} is read best: its rank correlation is {score(figures.rank_correlation)}."
        )
    return " ".join(said)


def _noised(name: str, size: str, read: CellsRead, figures: ColumnFigures) -> str:
    """The sentences on sums with noise."""
    assert figures.noise is not None
    named = max(figures.named.values(), default=0.0)
    return (
        f"named {share(named, 1)} of {name}'s cells ({size}) rightly by the sums with noise that it opened in "
        f"{count(figures.trees)} trees, with links given, and was sure of {count(read.claims)}, of which "
        f"{count(read.wrong)} are wrong, which the audit alone knows. Epsilon {figures.noise.epsilon:g} allows anybody "
        f"to name {share(figures.noise.allowed, 1)} of them, given the left sets of splits that {name} won, which no "
        f"noise hides and which place {share(figures.left_sets.placed, 1)} by themselves."
    )


def _learned(size: str, figures: ColumnFigures) -> str:
    """The sentence on cuts that left sets alone tell."""
    cuts, cut = sum(it.cuts for it in figures.cuts), sum(it.cuts > 0 for it in figures.cuts)
    between = sum(it.between for it in figures.cuts) / max(1, len(figures.cuts))
    return (
        f"By left sets alone it learned {count(cuts)} cuts in {count(cut)} of {count(figures.columns)} columns, and "
        f"between which two of these {share(between, 1)} of the cells{size and f' ({size})'} lie."
        + ("" if figures.placed_after is None else f" Tree by tree {placed_words(figures.placed_after)}.")
    )


def way_rows(figures: ColumnFigures) -> list[list[str]]:
    """The figures under `WAY_HEADS`, a row for each way of reading that was carried out."""
    names = dict(WAYS) if figures.noise is None else {**WAYS, "given": NOISED}
    read: list[tuple[str, CellsRead | None]] = [(label, getattr(figures, way)) for way, label in names.items()]
    rows = [
        [label, share(it.placed, 1), count(it.claims), count(it.wrong), share(it.wrong, it.claims)]
        for label, it in read
        if it is not None and (figures.read is not None or label == WAYS["left_sets"])
    ]
    return rows if figures.noise is None else [*rows, [ALLOWED, share(figures.noise.allowed, 1), *"–" * 3]]


def at_a_glance(document: Document) -> Section:
    """The attacks in a line each, under `GLANCE_HEADS`."""
    rows = [_glance(name, figures) for name, figures in document.columns_read.items()]
    holders = [name for name, party in document.parties.items() if party.columns_read is not None]
    title = f"Columns, as {' and '.join(holders)} could read them"
    words = Text(
        f"{WHO_KNOWS} Left sets alone: what no noise on sums lowers. All links given: a bound on better attackers of "
        "this kind.",
        style="soft",
        where="both",
    )
    return Section(title, [Table(GLANCE_HEADS, rows, title, style="cards"), words] if rows else [])


def _glance(name: str, figures: ColumnFigures) -> list[str]:
    placed = [None if it is None else it.placed for it in (figures.read, figures.left_sets, figures.given)]
    reached, floor, bound = ("–" if value is None else share(value, 1) for value in placed)
    read = figures.read
    if read is None:
        alone = floor if any(it.cuts for it in figures.cuts) else "–"
        return [name, "–", "–", alone, *["–"] * (len(GLANCE_HEADS) - 4)]
    return [
        *(name, reached, share(read.wrong, read.claims), floor, bound),
        *(figures.best or "–", score(figures.rank_correlation)),
    ]
