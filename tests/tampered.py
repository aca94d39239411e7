"""Changes of a content on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treetap.additive.paillier.secret_key import SecretKey

Change = Callable[[Any], object]


def edited(**changes: Callable[[Any], Any]) -> Change:
    """Give fields what functions make of their contents."""

    def change(content: Any) -> None:
        with_fields(**{name: new(getattr(content, name)) for name, new in changes.items()})(content)

    return change


def with_fields(**fields: Any) -> Change:
    """Give fields other contents."""

    def change(content: Any) -> None:
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(content, name)[:]
                getattr(content, name).extend(value)
            else:
                setattr(content, name, value)

    return change


def within(*path: Any) -> Change:
    """Change what lies in a content: fields and places of entries, and last the change."""

    def change(content: Any) -> None:
        for each in path[:-1]:
            content = content[each] if isinstance(each, int) else getattr(content, each)
        path[-1](content)

    return change


def key_of(bits: int) -> Change:
    """Another key of some length."""
    return lambda content: setattr(content, "modulus", SecretKey.generate(bits).public.to_bytes())
