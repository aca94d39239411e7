"""The attacks of recipients on the scores of predictions."""

from __future__ import annotations

from treetap.attacks.document import Document
from treetap.attacks.predictions.schema import DecodedPaths
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.glossary import count, seconds, share
from treetap.pages.pictures import Table

#: Name of an attack → what it is.
TERMS = {row.label: f"{row.line}." for row in rows(Needs.SCORES).values()}


def paths(document: Document) -> Table:
    """Decoded paths; of an inversion without the weights that it found, and with them."""
    heads = (
        *("prediction", "by", "attack", "records", "trees", "bits of candidates", "bits of sums"),
        *("whole path known", "several paths", "undecided", "leaves known", "time"),
    )
    lines = []
    for name, figures in (document.predictions or {}).items():
        if figures.path_decoding is not None:
            lines.append([name, figures.recipient, "path decoding", *_paths(figures.path_decoding)])
        if (inverted := figures.prediction_inversion) is not None:
            lines.append([name, figures.recipient, "before inversion", *_paths(inverted.before)])
            lines.append([name, figures.recipient, "after inversion", *_paths(inverted.after)])
    return Table(heads, lines)


def _paths(paths: DecodedPaths) -> list[str]:
    bits = "–" if paths.output_bits is None else f"{paths.output_bits:.1f}"
    outcomes = (share(number, paths.records) for number in (paths.unique, paths.several, paths.undecided))
    sizes = [count(paths.records), count(paths.trees), f"{paths.candidate_bits:.1f}", bits]
    return [*sizes, *outcomes, share(paths.leaves_known, 1), seconds(paths.seconds)]


def weights(document: Document) -> Table:
    """Weights that scores give away."""
    lines = [
        [name, figures.recipient, *map(count, (it.leaves, it.unknown, it.solved)), share(it.solved, it.unknown)]
        for name, figures in (document.predictions or {}).items()
        if (it := figures.prediction_inversion) is not None
    ]
    return Table(("prediction", "by", "leaves", "weights not known", "of these found", "share"), lines)
