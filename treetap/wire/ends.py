"""Last moments of what a process needs: its certificates, its authorities', its list of revoked ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from treetap.errors import ConfigError
from treetap.wire.certificates import read_certificates
from treetap.wire.revoked import read_lists
from treetap.wire.tls import TlsFiles


def ends(files: TlsFiles) -> Mapping[str, Callable[[], float]]:
    """What ends → the function that reads, from the file as it is, when: Unix time, NaN if it cannot be read.

    `own`, `authority` (the first of several to end), and where they are named `revoked`, a list, and `signing`.
    """
    of = {"own": _own, "authority": _authority}
    of |= {"revoked": _revoked} if files.revoked else {}
    of |= {"signing": _signing} if files.signing else {}
    return {what: partial(_seconds, read, files) for what, read in of.items()}


def _seconds(read: Callable[[TlsFiles], datetime], files: TlsFiles) -> float:
    try:
        return read(files).timestamp()
    except ConfigError:  # the process's log names it
        return math.nan


def _own(files: TlsFiles) -> datetime:
    return read_certificates(files.certificate)[0].not_valid_after_utc


def _signing(files: TlsFiles) -> datetime:
    assert files.signing is not None, "without a token nothing of it ends"
    return files.signing.read().not_valid_after_utc


def _authority(files: TlsFiles) -> datetime:
    return min(authority.not_valid_after_utc for authority in read_certificates(files.ca))


def _revoked(files: TlsFiles) -> datetime:
    assert files.revoked is not None, "without a list nothing of it ends"
    return read_lists(files.revoked, read_certificates(files.ca)).until
