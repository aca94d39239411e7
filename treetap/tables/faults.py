"""Errors of files that cannot be read, without any of their content."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from treetap.errors import DataError, TreetapError

#: Most files of a table.
MOST_FILES = 10_000
_ERROR = re.compile(r"AWS Error ([A-Z_]+)")
_CAUSES = {
    "ACCESS_DENIED": "access is denied: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may read",
    "INVALID_ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID is none of the store's",
    "INVALID_SIGNATURE": "AWS_SECRET_ACCESS_KEY does not fit AWS_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH": "AWS_SECRET_ACCESS_KEY does not fit AWS_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID": "AWS_SESSION_TOKEN does not fit AWS_ACCESS_KEY_ID",
    "NO_SUCH_BUCKET": "there is no such bucket",
    "NO_SUCH_KEY": "there is no such file",
    "RESOURCE_NOT_FOUND": "there is no such file",
    "NETWORK_CONNECTION": "the store cannot be reached; check endpoint_override, AWS_REGION and the network",
    "SLOW_DOWN": "the store is overloaded: try again later",
}
UNKNOWN_CAUSE = "the store cannot answer; check endpoint_override and AWS_REGION"
log = logging.getLogger(__name__)


@contextmanager
def decoding(place: object, what: str, fault: Callable[[], DataError] | None = None) -> Iterator[None]:
    """Have whatever a library raises at a file that is not of its format, `what`, become one error that names the file.

    Arrow raises errors of Python as well: `UnicodeDecodeError` for the name of a column, `SystemError` for metadata.
    `fault`: the error for its content, where the format has a closer one.
    """
    try:
        yield
    except TreetapError:
        raise
    except Exception as failure:  # noqa: BLE001 - of a library, at content that anyone may have written
        if isinstance(failure, UnicodeError):
            raise DataError(f"{place}: the name of a column is not UTF-8 text; write the {what} file again") from None
        raise missing(place, failure) or (fault or partial(DataError, f"{place}: is not readable {what}"))() from None


def missing(place: object, failure: Exception) -> DataError | None:
    """The error for a file that is not there or may not be read; None where the fault is in its content."""
    log.debug("%s: reading it raised %s", place, type(failure).__name__)
    if cause := stored_cause(failure):
        return DataError(f"{place}: {cause}")
    if isinstance(failure, FileNotFoundError):
        return DataError(f"{place}: there is no such file")
    if isinstance(failure, OSError) and failure.errno:
        return DataError(f"{place}: cannot be read: {os.strerror(failure.errno)}")
    if isinstance(failure, OSError) and str(failure).startswith("Truncated compressed"):
        return DataError(f"{place}: is cut off: its compressed content has no end; write or copy it again")
    if isinstance(failure, IsADirectoryError) or (isinstance(failure, OSError) and "is a directory" in str(failure)):
        return DataError(f"{place}: is a folder, not a file")
    return None


def stored_cause(failure: Exception) -> str:
    """The cause of an object store's error; empty for another error."""
    code = _ERROR.search(str(failure))
    return _CAUSES.get(code[1], UNKNOWN_CAUSE) if code else ""
