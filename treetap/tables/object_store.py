"""Files of an S3-compatible object store, through Arrow, with deadlines.

Credentials, region and endpoint come from the standard environment variables (`AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL_S3`) or from what else Amazon's own tools
read. No message has any of them.
"""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.files import MOST_FILES, SUFFIXES, UNKNOWN_CAUSE, TableFile, of_table, stored_cause
from treetap.tables.several import name_with_folders

log = logging.getLogger(__name__)
#: Seconds for a connection, and without a byte of an answer; attempts at one request.
CONNECT_S, REQUEST_S, ATTEMPTS = 5.0, 20.0, 3
_SCHEME = "s3://"
T = TypeVar("T")


def stored_files(place: str, endpoint: str | None, any_name: bool) -> list[tuple[str, TableFile]]:
    """The object at a place, those below it if it is a prefix, or those of a pattern: as `local_files`.

    Raises:
        DataError: there is none, the bucket is not there, or the store cannot be reached or refuses access.
    """
    from pyarrow import fs

    store = _store(endpoint)
    key = place.removeprefix(_SCHEME).rstrip("/")
    bucket, _, below = key.partition("/")
    wild = next((at for at, part in enumerate(below.split("/")) if set(part) & set("*?[")), None)
    base = key if wild is None else "/".join([bucket, *below.split("/")[:wild]])
    # a store has no folders: a prefix is one if anything is below it
    info = asked(place, lambda: store.get_file_info(base))
    if info.type == fs.FileType.NotFound:
        known = asked(place, lambda: store.get_file_info(bucket)).type != fs.FileType.NotFound
        raise DataError(f"{place}: there is no such {'file' if known else 'bucket'}")
    if info.type == fs.FileType.File and wild is None:
        return [(name_with_folders(below), _file(place, store, key))]
    listed = asked(place, lambda: store.get_file_info(fs.FileSelector(base, recursive=True)))
    paths = sorted(entry.path for entry in listed if entry.type == fs.FileType.File)
    names = [entry.removeprefix(f"{base}/") for entry in paths]
    pattern = None if wild is None else "/".join(below.split("/")[wild:])
    kept = [name for name in names if of_table(name, any_name) and (pattern is None or _matches(name, pattern))]
    if not kept:
        lacks = "has" if wild is None else "matches"
        raise DataError(f"{place}: {lacks} no file whose name ends with {', '.join(SUFFIXES)}")
    if len(kept) > MOST_FILES:
        raise DataError(f"{place}: has {len(kept)} files, and a table at most {MOST_FILES}")
    return [(name, _file(f"{_SCHEME}{base}/{name}", store, f"{base}/{name}")) for name in kept]


def asked(place: str, request: Callable[[], T]) -> T:
    """The answer to a request; `DataError` with the cause, without what the store says."""
    try:
        return request()
    except FileNotFoundError:
        raise DataError(f"{place}: there is no such file") from None
    except (OSError, pa.ArrowException) as failure:
        cause = stored_cause(failure) or UNKNOWN_CAUSE
        log.debug("%s: the store's answer raised %s", place, type(failure).__name__)
        raise DataError(f"{place}: {cause}") from None


def _file(name: str, store: Any, key: str) -> TableFile:
    return TableFile(
        name,
        lambda: asked(name, lambda: store.open_input_file(key)),
        lambda: asked(name, lambda: _stamp(store.get_file_info(key))),
    )


def _stamp(info: Any) -> object:
    if info.mtime_ns is None:
        raise FileNotFoundError
    return info.type, info.size, info.mtime_ns


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("/"), pattern.split("/")
    return len(wanted) == len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _store(endpoint: str | None) -> Any:
    """The store: Amazon's, or the one at an endpoint, `http://` or `https://` before its address."""
    from pyarrow import fs

    address = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    scheme, mark, host = address.rpartition("://")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return fs.S3FileSystem(
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme if mark else "https",
        region=region or ("us-east-1" if host else None),
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )
