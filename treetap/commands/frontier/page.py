"""A frontier as one self-contained HTML file, and as a picture; names are escaped."""

from __future__ import annotations

from importlib import resources

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attacks.report import glossary
from treetap.commands.frontier.panels import LOOKS, panels
from treetap.commands.frontier.summary import rows_of
from treetap.privacy.frontiers import FrontierDocument
from treetap.visible import visible_value


def html(document: FrontierDocument) -> str:
    """The page: facts, a panel for each attack, a table of all points."""
    return _render("frontier.html.j2", document)


def picture(document: FrontierDocument) -> str:
    """The panels side by side as an SVG file."""
    return _render("picture.svg.j2", document)


def _render(template: str, document: FrontierDocument) -> str:
    templates = Environment(
        # axes, tables and style are those of the audit's report
        loader=ChoiceLoader([PackageLoader("treetap.commands.frontier"), PackageLoader("attacks.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (resources.files("attacks.report") / "templates" / "style.css").read_text(encoding="utf-8")
    own = (resources.files("treetap.commands.frontier") / "templates" / "frontier.css").read_text(encoding="utf-8")
    heads, rows = rows_of(document)
    return templates.get_template(template).render(
        document=document,
        panels=panels(document),
        looks=[LOOKS[name] for name in LOOKS if any(point.defence == name for point in document.points)],
        heads=heads,
        rows=rows,
        words=glossary,
        style=Markup(style + own),  # noqa: S704 - files of these packages, not of the document
    )
