"""Fields of TOML tables for a protocol's parameters, made from their dataclasses: a dataclass in them is a table.

TOML has lists and no tuples, and a mapping by party has parties' names as keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from pydantic import create_model

from treetap.names import Name
from treetap.strict import Strict


class ParameterTable(Strict):
    """A table inside the parameters; `kind` is the dataclass that it stands for."""

    kind_: ClassVar[type]

    def value(self) -> Any:
        """The dataclass, whose defaults stand for keys that are not given."""
        return self.kind_(**{name: plain(getattr(self, name)) for name in self.model_fields_set})


def toml_fields(kind: type) -> dict[str, Any]:
    """Name → type of each field of a dataclass of parameters, as TOML can have it."""
    hints = get_type_hints(kind)
    return {field.name: _toml_type(hints[field.name]) for field in fields(kind)}


def plain(value: Any) -> Any:
    """A value of a table as the dataclass of the parameters has it."""
    if isinstance(value, ParameterTable):
        return value.value()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _toml_type(hint: Any) -> Any:
    kind, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _table(hint)
    if kind is tuple:  # of any length: no parameter has another
        return list[_toml_type(inner[0])]  # type: ignore[misc] # a type that is known when it runs
    if kind is Mapping:
        return dict[Name, _toml_type(inner[1])]  # type: ignore[misc]
    if kind in (Union, UnionType):
        return Union[tuple(_toml_type(part) for part in inner)]  # noqa: UP007 # made of a list
    return hint


@cache
def _table(kind: type) -> type[ParameterTable]:
    """The schema of a dataclass's table."""
    needed = {part.name for part in fields(kind) if part.default is MISSING and part.default_factory is MISSING}
    made = {name: (part, ... if name in needed else None) for name, part in toml_fields(kind).items()}
    table: type[ParameterTable] = create_model(kind.__name__, __base__=ParameterTable, **made)  # type: ignore[call-overload]
    table.kind_ = kind
    return table
