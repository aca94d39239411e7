"""Last moments of what a process needs: its certificates, its authorities', its list of revoked ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from cryptography import x509

from treetap.errors import ConfigError
from treetap.wire.certificates import read_certificates
from treetap.wire.revoked import read_lists
from treetap.wire.tls import TlsFiles

#: The subject of a certificate, or the length of a list of revoked ones; and its last moment, Unix time.
End: TypeAlias = tuple[str, float]


def held(files: TlsFiles) -> Mapping[str, Callable[[], list[End]]]:
    """Name of what a process holds → the function that reads its ends, from the file as it is, or raises ConfigError.

    `own`, `authority` (there may be several), and where it is named `revoked`, a list.
    """
    of: dict[str, Callable[[], list[End]]] = {
        "own": lambda: _of(read_certificates(files.certificate)[:1]),
        "authority": lambda: _of(read_certificates(files.ca)),
    }
    if files.revoked is not None:
        of["revoked"] = partial(_of_list, files)
    return of


def ends(files: TlsFiles) -> Mapping[str, Callable[[], float]]:
    """The same names → the function that reads the first of the ends: Unix time, NaN if the file cannot be read."""
    return {what: partial(_first, read) for what, read in held(files).items()}


def _first(read: Callable[[], list[End]]) -> float:
    try:
        return min(at for _, at in read())
    except ConfigError:  # the process's log names it
        return math.nan


def _of(certificates: Iterable[x509.Certificate]) -> list[End]:
    return [(one.subject.rfc4514_string(), one.not_valid_after_utc.timestamp()) for one in certificates]


def _of_list(files: TlsFiles) -> list[End]:
    assert files.revoked is not None, "without a list nothing of it ends"
    listed = read_lists(files.revoked, read_certificates(files.ca))
    return [(f"list of {sum(map(len, listed.serials.values()))} revoked", listed.until.timestamp())]
