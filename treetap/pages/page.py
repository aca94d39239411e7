"""Self-contained HTML pages: one style sheet, one frame and one set of pictures for all of them; names are escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from treetap import terminal
from treetap.errors import visible_value
from treetap.pages.section import Section

#: The space between a figure and its unit, at which no line ends; and what stays as it is.
_FIGURE = re.compile(r"(<(pre|code|script|style)\b.*?</\2>)|(?<=\d) (?=%)", re.DOTALL)


def html(
    title: str, header: Section, sections: Sequence[Section], footer: Section, *, colours: Sequence[str] = ()
) -> str:
    """A page of sections, in the order of which it lists those with an anchor.

    `colours`: of classes c0, c1, … in its pictures.
    """
    return render(
        *(__package__, "page.html.j2", "choose.js", "wide.js"),
        title=title,
        heading=header,
        content=sections,
        closing=footer,
        colours=colours,
        listed=[listed for section in sections for listed in section.anchored],
    )


def render(package: str, template: str, *scripts: str, **content: object) -> str:
    """The page, or the picture, of a template of a package, which extends and imports those of this one.

    `scripts`: files beside the template, the only ones that the page may run.
    """
    script, style = "".join(_file(package, name) for name in scripts), _file(__package__, "style.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = (
        _templates(package)
        .get_template(template)
        .render(
            script=Markup(script),  # noqa: S704 - files of these packages, not of the content
            style=Markup(style),  # noqa: S704
            digest=digest,
            **content,
        )
    )
    return _FIGURE.sub(lambda at: at[1] or "&#160;", page)


def drawn(path: Path, page: Callable[[], str]) -> str | None:
    """A page of results that are kept elsewhere; None, and a line, of one that fails: no picture ends a command.

    `path`: where it is to be written, by which the line on standard error names it.
    """
    try:
        return page()
    except Exception as fault:  # noqa: BLE001 - whatever a picture trips over
        said = f"{path}: could not be drawn; the results are there without it: {type(fault).__name__}: {fault}"
        terminal.err.print(terminal.text(said), soft_wrap=True)
        return None


@cache
def _templates(package: str) -> Environment:
    """The templates of a package and of this one, each compiled once."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["kind"] = lambda part: type(part).__name__
    return environment


def _file(package: str, name: str) -> str:
    return (resources.files(package) / "templates" / name).read_text(encoding="utf-8")
