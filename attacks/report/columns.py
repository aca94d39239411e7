"""The columns of feature parties: what a label holder could read of them, beside what needs no embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from treetap.attacks.document import Document
from treetap.attacks.networks.schema import Attribute, Reconstruction, VictimFigures, attribute_figure, record_strength
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.glossary import count, left_out, score, seconds, share
from treetap.pages.pictures import dots
from treetap.pages.section import Entry, Facts, Image, Key, Section, Table, Terms, Text

#: A standardised figure that is so much better than the raw one is named.
GAP = 0.1
#: Columns that a sentence names.
NAMED = 3

RECORD_HEADS = ("attack", "measure", "raw", "standardised", "floor", "stronger", "records", "time")
ATTRIBUTE_HEADS = (
    *("column", "measure", "accuracy or R², 0 to 1", "raw", "standardised", "floor", "stronger"),
    *("records", "left out", "classes", "known"),
)
CLASS_HEADS = (
    *("column", "macro F1, raw", "standardised", "floor", "precision, raw", "standardised", "floor"),
    *("recall, raw", "standardised", "floor"),
)
#: Figures in the picture of a column → name and class in the style sheet, the last ones on top.
DOTS: dict[Literal["raw", "standardised", "floor"], tuple[str, str]] = {
    "floor": ("floor: the most frequent value, of numbers the mean", "cl"),
    "raw": ("raw embeddings", "received"),
    "standardised": ("standardised embeddings", "graph"),
}
#: Field of the scores of whole records → its name.
MEASURES = {"ssim": "SSIM", "psnr": "PSNR, dB", "mse": "MSE"}
#: The figures of a column in the order of tables.
FIGURES: tuple[Literal["raw", "standardised", "floor"], ...] = ("raw", "standardised", "floor")
#: The sentence that a reader of raw and standardised figures must have.
RESCALED = (
    "A figure that is low raw and high standardised was hidden by scale alone: a defence with such figures rescaled "
    "the embedding and did not remove what it tells, and whoever holds some known records can undo that. Judge a "
    "defence by the stronger of the two."
)


#: Terms of a label holder's attacks on columns.
TERMS = {
    **{name: f"{row.line}." for name, row in rows(Needs.EMBEDDINGS).items()},
    "raw, standardised": "embeddings as they came; with mean 0 and standard deviation 1 in each coordinate, by those "
    "of the auxiliary records, which every label holder can do.",
    "floor": "what needs no embedding: the most frequent value, the mean number, the mean auxiliary record.",
    "SSIM": "likeness of images, 1 for the image itself (Wang et al. 2004). PSNR: the error of pixels in decibels, "
    "more is nearer. MSE: the mean squared error, less is nearer.",
    "R²": "the share of a number's variance that the guess explains; below 0 the mean would be nearer.",
    "macro F1, precision, recall": "means over the classes, so that rare ones count as much as frequent ones.",
}


def columns(document: Document) -> Section | None:
    """The section of a label holder's attacks; None where no label holder is audited."""
    victims = [
        _victim(holder, name, figures)
        for holder, party in document.parties.items()
        for name, figures in (party.victims or {}).items()
    ]
    if not victims:
        return None
    return Section(
        "Columns of feature parties",
        [
            Text(
                "In a split network the label holder reads an embedding of each record of every feature party. These "
                "attacks guess the columns behind it, from the label holder's own transcript and from **auxiliary "
                "records**, whose columns it is assumed to know. They never read the columns of the **victims**, which "
                "only score them."
            ),
            Terms(TERMS),
            Text(RESCALED, style="notice", where="both"),
            *victims,
        ],
        "columns",
    )


def _victim(holder: str, name: str, figures: VictimFigures) -> Section:
    """The section's part on one feature party."""
    attributes = Table(
        ATTRIBUTE_HEADS,
        [_attribute_row(column) for column in figures.attributes],
        "Columns one by one",
        names=2,
        words=(2,),
        style="cards",
    )
    classes = [
        [
            it.name,
            *(
                score(None if scores is None else getattr(scores, measure))
                for measure in ("f1", "precision", "recall")
                for scores in (it.raw, it.standardised, it.floor)
            ),
        ]
        for it in figures.attributes
        if it.raw is not None
    ]
    one_by_one = [
        Key("dot", [(style, label) for label, style in DOTS.values()]),
        attributes,
        Table(CLASS_HEADS, classes, "Macro F1, precision and recall of classes", folded=True, where="page"),
    ]
    # The reconstructions under `RECORD_HEADS`, a row for each measure.
    rows = []
    for attack in figures.reconstructions:
        scores = (attack.raw, attack.standardised, attack.floor)
        last = (attack.headline or "–", count(attack.records), seconds(attack.seconds))
        if None in scores:
            rows.append([attack.attack, "not scored", "–", "–", "–", *last])
            continue
        for field, measure in MEASURES.items():
            values = [getattr(it, field) for it in scores]
            if any(value is not None for value in values):
                rows.append([attack.attack, measure, *map(score, values), *last])
    return Section(
        Text("What {} could read of {}", holder, name),
        [
            Text(said=" ".join(words(figures)), where="both"),
            Facts(facts(figures)),
            *([Section("Columns one by one", one_by_one)] if attributes else []),
            Table(RECORD_HEADS, rows, "Whole records", names=2),
            *_pictures(figures),
            *left_out({name: figures.reasons}),
        ],
        style="victim",
    )


def words(figures: VictimFigures) -> list[str]:
    """Sentences on what the label holder could read of one party's columns."""
    if not figures.scored:
        return [
            f"The columns of the {count(figures.victims)} victims are not at hand, so nothing says how right the "
            "guesses are."
        ]
    said = [
        f"From the embeddings and {count(figures.auxiliary)} records whose columns it knows, the label holder guessed "
        f"the columns of {count(figures.victims)} others."
    ]
    # what the embedding adds: no figure counts that the floor has too
    gains = sorted(
        ((_gain(column), column) for column in figures.attributes if _gain(column) > 0), key=lambda it: -it[0]
    )
    if gains:
        said.append(
            "Best read, beside what needs no embedding: "
            + "; ".join(_read(column) for _, column in gains[:NAMED])
            + "."
        )
    if figures.attributes:
        some = f"{count(len(gains))} of {count(len(figures.attributes))} columns are"
        said.append(f"{some if gains else 'No column is'} guessed better than by the floor.")
    # the strongest attack on whole records but the one with the party's own model
    own = [
        attack for attack in figures.reconstructions if attack.attack != "match-exact" and attack.headline is not None
    ]
    if own:
        said.append(_whole(max(own, key=lambda attack: record_strength(attack, attack.headline or "raw") or 0.0)))
    if rescaled := [name for name, low, high, floor in _gaps(figures) if high - max(low, floor) >= GAP]:
        named = ", ".join(rescaled[:NAMED]) + (f" and {len(rescaled) - NAMED} more" if len(rescaled) > NAMED else "")
        said.append(f"Better from standardised embeddings than from raw ones, by at least {GAP:g}: {named}.")
    return said


def facts(figures: VictimFigures) -> list[tuple[str, str]]:
    """The source of the embeddings, and their number."""
    source = f"prediction {figures.job}" if figures.epoch is None else f"training, epoch {count(figures.epoch + 1)}"
    return [
        ("embeddings", source),
        ("numbers of an embedding", count(figures.width)),
        ("auxiliary records", count(figures.auxiliary)),
        ("victims", count(figures.victims)),
        ("victims left out", count(figures.left_out)),
    ]


def _attribute_row(column: Attribute) -> list[Entry]:
    """A column's figures under `ATTRIBUTE_HEADS`: accuracy of a class, R² of a number."""
    placed = dots((style, attribute_figure(column, what)) for what, (_, style) in DOTS.items())
    raw, standardised, floor = (attribute_figure(column, what) for what in FIGURES)
    return [
        *(column.name, "accuracy" if column.kind == "class" else "R²", placed),
        *(score(raw), score(standardised), score(floor)),
        *(
            column.headline or "–",
            count(column.records),
            count(column.left_out),
            count(column.classes),
            count(column.auxiliary),
        ),
    ]


def _gain(column: Attribute) -> float:
    """The headline over the floor, as a share of what is left above the floor; 0 where nothing is."""
    reached, floor = attribute_figure(column, column.headline), attribute_figure(column, "floor")
    if reached is None or floor is None or floor >= 1:
        return 0.0
    return (reached - floor) / (1 - floor)


def _read(column: Attribute) -> str:
    reached, floor = attribute_figure(column, column.headline), attribute_figure(column, "floor")
    assert reached is not None
    assert floor is not None
    if column.kind == "number":
        return f"{column.name} ({share(reached, 1)} of its variance)"
    return f"{column.name} (right for {share(reached, 1)}; its most frequent value is {share(floor, 1)})"


def _whole(attack: Reconstruction) -> str:
    """The sentence on whole records."""
    assert attack.headline is not None
    reached = getattr(attack, attack.headline)
    assert attack.floor is not None
    if reached.ssim is not None:
        if attack.floor.ssim is not None and reached.ssim <= attack.floor.ssim:
            return "No attack guesses whole images better than the mean known image does."
        return (
            f"Its best images, by {attack.attack}, have an SSIM of {score(reached.ssim)} (1 is the image itself; the "
            f"mean known image has {score(attack.floor.ssim)})."
        )
    removed = record_strength(attack, attack.headline) or 0.0
    if removed <= 0:
        return "No attack guesses whole records better than the mean known record does."
    return (
        f"Its best whole records, by {attack.attack}, remove {share(removed, 1)} of the error of the mean known record."
    )


def _gaps(figures: VictimFigures) -> list[tuple[str, float, float, float]]:
    """The figures of all that is scored: what is guessed, raw, standardised, floor."""
    every: list[tuple[str, tuple[float | None, ...]]] = [
        (it.name, tuple(attribute_figure(it, what) for what in FIGURES)) for it in figures.attributes
    ]
    for it in figures.reconstructions:
        floor = None if it.floor is None else it.floor.ssim or 0.0
        every.append((it.attack, (record_strength(it, "raw"), record_strength(it, "standardised"), floor)))
    return [
        (name, raw, standardised, floor)
        for name, (raw, standardised, floor) in every
        if raw is not None and standardised is not None and floor is not None
    ]


def _pictures(figures: VictimFigures) -> Iterator[Section]:
    """The pictures by column, each victim a row beside its reconstructions."""
    for column in dict.fromkeys(victim.column for victim in figures.pictures):
        images = [victim.images for victim in figures.pictures if victim.column == column]
        heads = list(dict.fromkeys(what for victim in images for what in victim))
        rows = [
            [
                str(number),
                *(Image(url, f"{what} of victim {number}") if (url := victim.get(what)) else "–" for what in heads),
            ]
            for number, victim in enumerate(images, start=1)
        ]
        table = Table(("victim", *heads), rows, "Pictures of victims beside their reconstructions", style="pictures")
        yield Section(f"Victims beside their reconstructions: {column}", [table], where="page")
