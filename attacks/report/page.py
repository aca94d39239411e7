"""The audit as one self-contained HTML file with style, script and pictures; names are escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attacks.document import Document, parse
from attacks.report import (
    advice,
    bounds,
    columns,
    glossary,
    matrix,
    networks,
    pivodl,
    predictions,
    scores,
    sentences,
    signature,
    summary,
    trees,
)
from treetap.visible import visible_value

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
    templates = Environment(
        loader=PackageLoader("attacks.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script, style = _asset("choose.js") + _asset("wide.js"), _asset("style.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return templates.get_template("page.html.j2").render(
        document=content,
        script=Markup(script),  # noqa: S704 - files of this package, not of the document
        style=Markup(style),  # noqa: S704
        digest=digest,
        words=glossary,
        class_colours=_class_colours(content),
        **_figures(content),
    )


def _figures(document: Document) -> dict[str, Any]:
    """All pictures and tables."""
    v_top, nats_top, chosen = scores.ceiling(document), bounds.ceiling(document), trees.choose(document)
    largest = summary.largest_class(document)
    return {
        "unscored": glossary.unscored(document),
        "sentences": sentences.sentences(document),
        "glances": summary.glances(document),
        "largest_class": None if largest is None else f"{100 * largest:.1f} %",
        "advised": advice.advised(document),
        "advice_heads": advice.HEADS,
        "matrix": matrix.matrix(document),
        "bars": matrix.bars(document),
        "traffic": sorted(
            document.traffic, key=lambda it: (it.sender, it.receiver, glossary.rank(it.disclosure), it.step)
        ),
        "curves": {name: scores.curves(document, party, v_top) for name, party in document.parties.items()},
        "score_heads": scores.SCORE_HEADS,
        "score_rows": scores.score_rows(document),
        "bounds": {name: bounds.bounds(document, party, nats_top) for name, party in document.parties.items()},
        "depth_heads": bounds.DEPTH_HEADS,
        "top_heads": bounds.TOP_HEADS,
        "joints": {name: signature.joint(document, party) for name, party in document.parties.items()},
        "joint_heads": signature.HEADS,
        "overviews": {name: trees.overview(party) for name, party in document.parties.items()},
        "drawings": {name: [trees.draw(document, tree) for tree in chosen[name]] for name in document.parties},
        "tree_heads": trees.TABLE_HEADS,
        "shared": pivodl.shared_labels(document),
        "shared_heads": {
            "guess": pivodl.GUESS_HEADS,
            "accuracy": pivodl.ACCURACY_HEADS,
            "inversion": pivodl.INVERSION_HEADS,
            "differential": pivodl.DIFFERENTIAL_HEADS,
            "disclosed": pivodl.DISCLOSED_HEADS,
        },
        "shared_box": (pivodl.WIDTH, pivodl.HEIGHT),
        "network": networks.networks(document),
        "network_heads": {
            "clusters": networks.CLUSTER_HEADS,
            "labels": networks.LABEL_HEADS,
            "scores": networks.SCORE_HEADS,
            "completion": networks.COMPLETION_HEADS,
            "gain": networks.GAIN_HEADS,
            "reasons": networks.REASON_HEADS,
        },
        "network_dots": networks.DOTS,
        "network_box": (networks.DOTS_WIDTH, networks.DOTS_HEIGHT),
        "network_covered": networks.COVERED,
        "columns": columns.columns(document),
        "column_heads": {
            "records": columns.RECORD_HEADS,
            "attributes": columns.ATTRIBUTE_HEADS,
            "classes": columns.CLASS_HEADS,
            "reasons": columns.REASON_HEADS,
        },
        "column_dots": columns.DOTS,
        "column_box": (columns.WIDTH, columns.HEIGHT),
        "column_rescaled": columns.RESCALED,
        "box": (trees.BOX, trees.BOX_HEIGHT),
        "paths": predictions.path_rows(document),
        "weights": predictions.weight_rows(document),
        "prediction_heads": {"paths": predictions.PATH_HEADS, "weights": predictions.WEIGHT_HEADS},
        "prediction_terms": predictions.TERMS,
    }


def _class_colours(document: Document) -> list[str]:
    further = range(len(CLASS_COLOURS), document.classes or 0)
    return [*CLASS_COLOURS[: document.classes or 0], *(f"hsl({137.5 * k % 360:.0f} 55% 55%)" for k in further)]


def _asset(name: str) -> str:
    return (resources.files("attacks.report") / "templates" / name).read_text(encoding="utf-8")
