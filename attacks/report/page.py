"""The audit as one self-contained HTML file with style, script and pictures; names are escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treetap.attacks.document import Document, parse
from treetap.attacks.report import (
    advice,
    bounds,
    columns,
    glance,
    glossary,
    known_labels,
    marks,
    matrix,
    networks,
    pivodl,
    predictions,
    scores,
    sums,
    trees,
    verdict,
)
from treetap.pages.page import render

#: Colours of classes, distinct on light and dark backgrounds; further ones follow at golden angles.
CLASS_COLOURS = (
    *("#3f7fd9", "#e8912d", "#2aa37a", "#c2559b", "#8d6cc9"),
    *("#b8a12a", "#d9574a", "#5fa8b8", "#8a6a4a", "#7d8791"),
)


def html(document: Document | Mapping[str, Any]) -> str:
    """Render the report; all names and paths from the document are escaped.

    Raises BadInput for a document that this version cannot read.
    """
    content = parse(document)
    v_top, nats_top, chosen = scores.ceiling(content), bounds.ceiling(content), trees.choose(content)
    largest, parties = glance.largest_class(content), content.on_labels.items()
    return render(
        "treetap.attacks.report",
        "page.html.j2",
        "choose.js",
        "wide.js",
        document=content,
        words=glossary,
        class_colours=_class_colours(content),
        unscored=glossary.unscored(content),
        verdicts=verdict.lines(content.verdicts),
        to_do=list(verdict.to_do(content).values()),
        verdict_terms=verdict.TERMS,
        glances=glance.glances(content),
        largest_class=None if largest is None else f"{100 * largest:.1f} %",
        advised=advice.advised(content),
        matrix=matrix.matrix(content),
        bars=matrix.bars(content),
        traffic=sorted(content.traffic, key=lambda it: (it.sender, it.receiver, glossary.rank(it.disclosure), it.step)),
        curves={name: scores.curves(content, party, v_top) for name, party in parties},
        score_heads=scores.SCORE_HEADS,
        score_rows=scores.score_rows(content),
        bounds={name: bounds.bounds(content, party, nats_top) for name, party in parties},
        joints={name: bounds.joint(content, party) for name, party in parties},
        overviews={name: trees.overview(party) for name, party in parties},
        drawings={name: [trees.draw(content, tree) for tree in chosen[name]] for name in content.on_labels},
        box=(trees.BOX, trees.BOX_HEIGHT),
        known=known_labels.known_labels(content),
        shared=pivodl.shared_labels(content),
        network=networks.networks(content),
        network_dots=networks.DOTS.values(),
        network_covered=networks.COVERED,
        columns=columns.columns(content),
        column_dots=columns.DOTS.values(),
        column_rescaled=columns.RESCALED,
        read=sums.columns_read(content),
        read_glance=sums.glance_table(content),
        who_knows=sums.WHO_KNOWS,
        marked=marks.marked(content),
        room=marks.room(content),
        paths=predictions.paths(content),
        weights=predictions.weights(content),
        prediction_terms=predictions.TERMS,
    )


def _class_colours(document: Document) -> list[str]:
    further = range(len(CLASS_COLOURS), document.classes or 0)
    return [*CLASS_COLOURS[: document.classes or 0], *(f"hsl({137.5 * k % 360:.0f} 55% 55%)" for k in further)]
