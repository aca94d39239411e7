"""Options of commands from dataclasses, as keys of a job file are; options and imports that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from treetap.errors import BadInput

R = TypeVar("R")
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output and nothing else.")]
Ca = Annotated[Path | None, typer.Option(help="The federation's ca.crt, to verify the signatures of transcripts.")]
Revoked = Annotated[
    Path | None,
    typer.Option(help="The authority's crl.pem, with --ca: signatures made after a revocation are refused."),
]


def from_dataclasses(command: Callable[..., R]) -> Callable[..., R]:
    """Expand each parameter of a command whose type is a dataclass into an option for each of the fields.

    A field is written as a parameter of a command is: `Annotated` with `typer.Option` or `typer.Argument`, and a
    default. `PANEL`, a class variable, is the heading of the class's options in the help.

        @app.command()
        @from_dataclasses
        def predict(prediction: PredictionOptions, watching: WatchOptions) -> None: ...
    """
    expanded: list[Parameter] = []
    classes: dict[str, tuple[Any, list[str]]] = {}  # parameter → its class, and the options that it is made of
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if is_dataclass(kind := parameter.annotation):
            options = list(_options(kind))
            classes[name] = kind, [option.name for option in options]
            expanded += options
        else:
            expanded.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> R:
        for name, (kind, options) in classes.items():
            given[name] = kind(**{option: given.pop(option) for option in options})
        return command(**given)

    run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined] # typer reads both
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
    return run


def _options(kind: Any) -> Iterator[Parameter]:
    hints, panel = get_type_hints(kind, include_extras=True), getattr(kind, "PANEL", None)
    for field in fields(kind):
        default = Parameter.empty if field.default is MISSING else field.default
        yield Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=default, annotation=_below(panel, hints[field.name])
        )


def _below(panel: str | None, hint: Any) -> Any:
    """The annotation of an option, with the panel in which the help has it."""
    if panel is None or get_origin(hint) is not Annotated:
        return hint
    kind, *rest = get_args(hint)
    for place, part in enumerate(rest):
        if isinstance(part, OptionInfo):
            rest[place] = copy(part)
            rest[place].rich_help_panel = panel
    return Annotated[(kind, *rest)]


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Imports of packages that come with an extra: `BadInput` names the extra if a package is missing."""
    try:
        yield
    except ImportError as missing:
        raise BadInput(f"{missing.name} is not installed: pip install 'treetap[{extra}]'") from None
