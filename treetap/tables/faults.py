"""Errors of files that cannot be read, without any of their content."""

from __future__ import annotations

import logging
import os

from treetap.errors import DataError

log = logging.getLogger(__name__)


def unreadable(place: object, failure: Exception, what: str) -> DataError:
    """The error for a file that cannot be opened or is not of its format, `what`."""
    return missing(place, failure) or DataError(f"{place}: is not readable {what}")


def missing(place: object, failure: Exception) -> DataError | None:
    """The error for a file that is not there or may not be read; None where the fault is in its content."""
    log.debug("%s: reading it raised %s", place, type(failure).__name__)
    if isinstance(failure, FileNotFoundError):
        return DataError(f"{place}: there is no such file")
    if isinstance(failure, OSError) and failure.errno:
        return DataError(f"{place}: cannot be read: {os.strerror(failure.errno)}")
    if isinstance(failure, IsADirectoryError) or (isinstance(failure, OSError) and "is a directory" in str(failure)):
        return DataError(f"{place}: is a folder, not a file")
    return None
