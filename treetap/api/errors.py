"""Errors of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from treetap.errors import BadInput


class InvalidInput(BadInput, ValueError):
    """A table, a label or a parameter of the caller that cannot be used: a ValueError, as scikit-learn asks."""


@contextmanager
def checked() -> Iterator[None]:
    """Raise wrong input, which commands report as `BadInput` or a schema refuses, as `InvalidInput`."""
    try:
        yield
    except ValidationError as failure:
        faults = [
            f"{'.'.join(map(str, each['loc']))}: {each['msg'].removeprefix('Value error, ')}".removeprefix(": ")
            for each in failure.errors()
        ]
        raise InvalidInput("; ".join(faults)) from None
    except InvalidInput:
        raise
    except BadInput as failure:
        raise InvalidInput(str(failure)) from failure
