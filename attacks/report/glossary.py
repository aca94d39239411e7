"""Names and meanings of attacks, kinds of disclosure classes and sources, and the format of figures."""

from __future__ import annotations

from typing import NamedTuple

from treetap.attacks.document import Document
from treetap.attacks.registry import GROUPING, OWN_CUTS, Needs, rows
from treetap.wire.disclosure import CLASSES


class Attack(NamedTuple):
    """An attack's name, its short name for pictures, its class in the style sheet, and its description."""

    label: str
    brief: str
    style: str
    meaning: str


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


#: Attack that groups records → its class in the style sheet, where that is not its name.
_STYLES = {
    **{"uni+cl": "unicl", "id2graph": "graph", "id2graph-chunked": "chunked", "id2graph-quotient": "quotient"},
    OWN_CUTS: "own",
}
ATTACKS = {
    name: Attack(row.label, row.label.split(", ")[-1], _STYLES.get(name, name), _sentence(row.line))
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
#: Terms of the advice.
ADVICE_TERMS = {
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
#: Terms of a label holder's attacks on columns.
COLUMN_TERMS = {
    **{name: f"{row.line}." for name, row in rows(Needs.EMBEDDINGS).items()},
    "raw, standardised": "embeddings as they came; with mean 0 and standard deviation 1 in each coordinate, by those "
    "of the auxiliary records, which every label holder can do.",
    "floor": "what needs no embedding: the most frequent value, the mean number, the mean auxiliary record.",
    "SSIM": "likeness of images, 1 for the image itself (Wang et al. 2004). PSNR: the error of pixels in decibels, "
    "more is nearer. MSE: the mean squared error, less is nearer.",
    "R²": "the share of a number's variance that the guess explains; below 0 the mean would be nearer.",
    "macro F1, precision, recall": "means over the classes, so that rare ones count as much as frequent ones.",
}
#: Terms of a label holder's attack on columns by opened sums.
SUMS_TERMS = {
    "Cell placed": "a record's value in one column is claimed to lie in one bin, rightly.",
    "Left sets alone": "the records that went left at the splits that the feature party won. They are sent as they "
    "are, so no noise on sums lowers this figure.",
    "Cut learned": "a left set names the records on one side of one cut: of the node, or of all records where instance "
    "spaces are withheld. A cell between two learned cuts, or beyond the last one, is known that far.",
    "Differences": "two sums that differ in few records say which records these are, once candidates of one column "
    "are put in order.",
    "All equations": "what does not follow exactly is estimated by least squares over all sums.",
    "Links": "the attacker has to find out which candidates, of all trees, are neighbours on one column. Links right: "
    "the share of its neighbours that are. With all links given by the audit: a bound on what a better attacker "
    "would read.",
    "Contradictions": "sums that no set of records had, by which the attacker itself sees that links are wrong.",
    "Rank correlation": "Spearman's, of a column's values and their estimates; 1: their order was read.",
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
