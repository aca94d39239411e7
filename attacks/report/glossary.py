"""Names and meanings of attacks, kinds of disclosure classes and sources, and the format of figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from treetap.attacks.document import Document
from treetap.attacks.registry import GROUPING, OWN_CUTS
from treetap.pages.section import Text
from treetap.wire.disclosure import CLASSES


class Attack(NamedTuple):
    """An attack's name, its short name for pictures, its class in the style sheet, and its description."""

    label: str
    brief: str
    style: str
    meaning: str


#: Attack that groups records → its class in the style sheet, where that is not its name.
_STYLES = {
    **{"uni+cl": "unicl", "id2graph": "graph", "id2graph-chunked": "chunked", "id2graph-quotient": "quotient"},
    OWN_CUTS: "own",
}
ATTACKS = {
    name: Attack(
        row.label,
        row.label.split(", ")[-1].replace("winning ", ""),
        _STYLES.get(name, name),
        f"{row.line[0].upper()}{row.line[1:]}.",
    )
    for name, row in GROUPING.items()
}


#: Kind of disclosure class → its legend, readable kinds first.
KINDS = {
    "open": "readable: information about records",
    "sealed": "sealed: unreadable without a key or the other shares",
    "plain": "running the job: names, shapes, sizes, figures that are published",
}
SOURCES = {
    "received": "received: a message named the records",
    "own": "own: made by the party's own split",
    "difference": "derived: a known node less a known child, or two known children together",
}
#: Word beside the figure of a guess that is right where it is inverted.
INVERTED = "inverted"
NOT_A_PROOF = (
    "Nothing here is a proof. A low figure says that these attacks found little, not that there is little to find; "
    "parties that pool their logs know more than each alone."
)


def rank(disclosure: str) -> tuple[int, int]:
    """Sort key of a class: readable classes first."""
    return (list(KINDS).index(CLASSES[disclosure].kind), list(CLASSES).index(disclosure))


def score(value: float | None) -> str:
    """A score or an information, or a dash for None."""
    return "–" if value is None else f"{value:.3f}"


def either_way(value: float | None) -> str:
    """A measure that tells as much below one half, by the opposite guess: the larger of it and its complement."""
    return score(value) if value is None or value >= 0.5 else f"{score(1 - value)} ({INVERTED})"


def count(value: int | None) -> str:
    """A whole number with separated thousands, or a dash."""
    return "–" if value is None else f"{value:,}"


def share(part: float, whole: float) -> str:
    """A percentage; a positive one below 0.05 % is shown as "< 0.1 %"."""
    if not whole:
        return "–"
    return "< 0.1 %" if 0 < part / whole < 0.0005 else f"{100 * part / whole:.1f} %"


def title(table: str) -> str:
    """A table by its file's name without the ending."""
    return table.removesuffix(".parquet").removesuffix(".csv")


def seconds(value: float) -> str:
    """A duration."""
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


def left_out(reasons: Mapping[str, Mapping[str, str]]) -> Iterator[Text]:
    """A sentence for each attack that was left out: by whose it is, name and reason."""
    return (
        Text("{}: ", name, said=f"{what} is left out: {why}.", style="soft", where="both")
        for name, of_one in reasons.items()
        for what, why in of_one.items()
    )


def unscored(document: Document) -> str:
    """The reason why there are no scores, bounds and class counts; empty where there are."""
    if not document.on_labels and document.parties:
        return ""
    # what a label holder of trees read is scored by the feature parties' tables, without a label
    nothing = "no attack on labels is scored" if document.columns_read else "nothing is scored"
    if document.of_network and not document.labelled:
        if any(party.network and party.network.gradient_labels for party in document.parties.values()):
            return "Only labels that a party is assumed to know were given: figures are on the records that have one."
        return (
            "No labels were given, so nothing is scored, and attacks that need known labels are left out: say [label], "
            "or [known]."
        )
    if not document.labelled:
        return (
            f"No labels were given, so {nothing}: V-measure, bounds and information compare with the true "
            "labels. Who received what and which nodes each party knows need none. The attacks themselves never "
            "see labels."
        )
    if document.classes is None:
        return (
            f"The label is a number, not a class (regression), so {nothing}: V-measure, bounds and "
            "information are defined for classes."
        )
    return ""
