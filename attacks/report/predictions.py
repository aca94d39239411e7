"""The attacks of recipients on the scores of predictions."""

from __future__ import annotations

from treetap.attacks.document import Document
from treetap.attacks.predictions.schema import DecodedPaths
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.glossary import count, seconds, share
from treetap.pages.section import Section, Table, Terms, Text

PATH_HEADS = (
    *("prediction", "by", "attack", "records", "trees", "bits of candidates", "bits of sums"),
    *("whole path known", "several paths", "undecided", "leaves known", "time"),
)
WEIGHT_HEADS = ("prediction", "by", "leaves", "weights not known", "of these found", "share")


def predictions(document: Document) -> Section | None:
    """The section of the predictions; None where the audit names none."""
    if not document.predictions:
        return None
    paths, weights = [], []
    for name, figures in document.predictions.items():
        if figures.path_decoding is not None:
            paths.append([name, figures.recipient, "path decoding", *_paths(figures.path_decoding)])
        # of an inversion without the weights that it found, and with them
        if (inverted := figures.prediction_inversion) is not None:
            paths.append([name, figures.recipient, "before inversion", *_paths(inverted.before)])
            paths.append([name, figures.recipient, "after inversion", *_paths(inverted.after)])
            sizes = (inverted.leaves, inverted.unknown, inverted.solved)
            weights.append([name, figures.recipient, *map(count, sizes), share(inverted.solved, inverted.unknown)])
    noise = (
        "Leaf weights below its own splits came to the recipient with noise: scores of records that share a leaf "
        "give the exact ones."
    )
    return Section(
        "Scores of predictions",
        [
            Text(
                "A score is a sum of one leaf weight of each tree. Its recipient knows weights and its own splits; "
                "where one choice of leaves alone gives the score, the **whole path** of the record is known, and "
                "with it what other parties' splits say of the record. More **bits of candidates** than bits of sums "
                "leave several paths; “undecided” is a bound of this attack, not safety."
            ),
            Terms({row.label: f"{row.line}." for row in rows(Needs.SCORES).values()}),
            Table(PATH_HEADS, paths, "Leaves behind the scores of predictions", names=3),
            Text(noise if weights else ""),
            Table(WEIGHT_HEADS, weights, "Leaf weights that scores give away", names=2),
            *(
                Text("{}: {}", name, fault, style="notice fault", where="both")
                for name, figures in document.predictions.items()
                for fault in figures.faults
            ),
            *(
                Text("{}: {}", name, figures.signed, style="notice")
                for name, figures in document.predictions.items()
                if figures.signed
            ),
        ],
        "scores",
    )


def _paths(paths: DecodedPaths) -> list[str]:
    bits = "–" if paths.output_bits is None else f"{paths.output_bits:.1f}"
    outcomes = (share(number, paths.records) for number in (paths.unique, paths.several, paths.undecided))
    sizes = [count(paths.records), count(paths.trees), f"{paths.candidate_bits:.1f}", bits]
    return [*sizes, *outcomes, share(paths.leaves_known, 1), seconds(paths.seconds)]
