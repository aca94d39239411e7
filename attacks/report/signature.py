"""The empirical information of all known nodes together (the signature) on the label, tree by tree."""

from __future__ import annotations

from dataclasses import dataclass

from attacks.document import Document, Party
from attacks.report.glossary import count, score, share
from attacks.report.scale import BOTTOM, LEFT, TOP, Frame, Linear, polyline, short, spread
from attacks.report.scores import Curve, thinned

WIDTH, HEIGHT, LABELS = 440, 250, 108
HEADS = ("trees", "signatures", "of the records", "information", "of the entropy", "by chance")


@dataclass(frozen=True)
class Joint:
    """Shares from 0 to 1 by number of trees: of the label's entropy (None without labels), and of the records."""

    frame: Frame
    curves: list[Curve]
    table: list[list[str]]


def joint(document: Document, party: Party) -> Joint | None:
    """The signature's curves; None without any tree."""
    steps = party.signature.by_tree
    if not steps:
        return None
    entropy = party.signature.label_entropy
    x = Linear(1, len(steps), LEFT, WIDTH - LABELS, whole=True)
    y = Linear(0, 1, HEIGHT - BOTTOM, TOP)
    series = {("signatures ÷ records", "parts"): [step.signatures / max(1, document.records) for step in steps]}
    informations = [step.mutual_information for step in steps]
    if entropy and all(value is not None for value in informations):
        series["by chance ÷ entropy", "chance"] = [(step.by_chance or 0.0) / entropy for step in steps]
        series["information ÷ entropy", "information"] = [(value or 0.0) / entropy for value in informations]
    places = spread([y(values[-1]) for values in series.values()], 30, TOP + 8, HEIGHT - BOTTOM - 8)
    drawn = [
        Curve(
            label,
            style,
            polyline((x(k), y(value)) for k, value in enumerate(values, 1)),
            (short(x(len(values))), short(y(values[-1]))),
            short(place),
        )
        for ((label, style), values), place in zip(series.items(), places, strict=True)
    ]
    table = [
        [
            str(k + 1),
            count(steps[k].signatures),
            share(steps[k].signatures, document.records),
            score(steps[k].mutual_information),
            share(steps[k].mutual_information or 0.0, entropy) if entropy else "–",
            share(steps[k].by_chance or 0.0, entropy) if entropy else "–",
        ]
        for k in thinned(len(steps))
    ]
    return Joint(Frame(WIDTH, HEIGHT, x, y, "trees used", "share", right=LABELS), drawn, table)
