"""Options of commands from dataclasses, as keys of a job file are; options and imports that several commands share."""

from __future__ import annotations

import errno
import functools
import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, field, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from treetap import logs
from treetap.errors import BadInput, Conflict, Incompatible, UnknownJob
from treetap.version import install

LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option(help="text, or json: one object a line.")]
UntilStdinCloses = Annotated[
    bool, typer.Option(help="Stop when standard input closes: the process then ends with the one that started it.")
]
R = TypeVar("R")
T = TypeVar("T")
_TYPER = "typer"  # the key of a field's metadata
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output and nothing else.")]
CA = "The federation's ca.crt, to verify the signatures of transcripts."
#: Errors of a disk that takes no more.
_OF_WRITING = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EROFS}
REVOKED = "The authority's crl.pem, with --ca: signatures made after a revocation are refused."


def argument(help: str, metavar: str | None = None) -> Any:
    """A field of a dataclass of options that is a command's argument and must be given."""
    return field(metadata={_TYPER: typer.Argument(help=help, metavar=metavar)})


def option(
    default: T,
    help: str,
    *names: str,
    metavar: str | None = None,
    min: float | None = None,
    max: float | None = None,
) -> T:
    """A field of a dataclass of options: its default, what the help says, and names in the place of the field's own."""
    made = typer.Option(*names, help=help, metavar=metavar, min=min, max=max)
    return field(default=default, metadata={_TYPER: made})


def from_dataclasses(command: Callable[..., R]) -> Callable[..., R]:
    """Expand each parameter of a command whose type is a dataclass into the options that its fields are.

    `PANEL`, a class variable of such a class, is the heading of its options in the help.

        @app.command()
        @from_dataclasses
        def predict(asked: PredictionOptions, detach: Detach = False) -> None: ...
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
    hints = get_type_hints(kind)
    for part in fields(kind):
        made = part.metadata[_TYPER]
        if isinstance(made, OptionInfo):
            made.rich_help_panel = getattr(kind, "PANEL", None)
        default = Parameter.empty if part.default is MISSING else part.default
        annotation: Any = Annotated[hints[part.name], made]
        yield Parameter(part.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def print_json(content: object, *, allow_nan: bool = True) -> None:
    """Print a report as JSON; it is flushed, so that a failure to write is raised here."""
    print(json.dumps(content, indent=1, allow_nan=allow_nan), flush=True)


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Imports of packages that come with an extra: `BadInput` names the extra if a package is missing."""
    try:
        yield
    except ImportError as missing:
        raise BadInput(f"{missing.name} is not installed: {install(extra)}") from None


@contextmanager
def answering() -> Iterator[None]:
    """Report what a server says of a job that it has not, or in another state, as bad input."""
    logs.quiet_grpc()
    with warnings.catch_warnings():
        # Ctrl-C between the making of a call and its beginning leaves one that never begins
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            yield
        except (UnknownJob, Conflict, Incompatible) as error:
            raise BadInput(str(error)) from None


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Report a file that cannot be read, or written, as bad input: a party's state is for the party's own user."""
    try:
        yield
    except OSError as failure:
        own = "; a party's files are for its own user, so ask as that user" if failure.errno == errno.EACCES else ""
        done = "written" if failure.errno in _OF_WRITING else "read"
        raise BadInput(f"{failure.filename or folder}: cannot be {done}: {failure.strerror}{own}") from None
