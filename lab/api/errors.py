"""Errors of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from treetap.errors import BadInput
from treetap.strict import WHOLE, faults_of


class InvalidInput(BadInput, ValueError):
    """A table, a label or a parameter of the caller that cannot be used: a ValueError, as scikit-learn asks."""


@contextmanager
def checked(schema: type[BaseModel] = BaseModel) -> Iterator[None]:
    """Raise wrong input, which commands report as `BadInput` or the schema or Arrow refuses, as `InvalidInput`.

    Of what the Python API calls, this is all that its callers see beside `TreetapError`: also as a decorator.
    """
    try:
        yield
    except ValidationError as failure:
        faults = [fault.removeprefix(f"{WHOLE}: ") for fault in faults_of(failure, schema)]
        raise InvalidInput("; ".join(faults)) from None
    except InvalidInput:
        raise
    except BadInput as failure:
        raise InvalidInput(str(failure)) from failure
    except pa.ArrowException as failure:
        raise InvalidInput(
            f"Arrow cannot take this data: {next(iter(str(failure).splitlines()), 'no reason')}"
        ) from None
