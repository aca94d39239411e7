"""Settings of a table that lies in a database: the environment variable with its URI, and what to read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from treetap.errors import DataError
from treetap.names import on_loopback

SQLITE = "sqlite:"
_SERVERS = ("postgresql://", "postgres://")


@dataclass(frozen=True)
class SqlKeys:
    """`uri`: `$NAME`, an environment variable, or `sqlite:FILE`. One of `query` and `table` is given."""

    uri: str
    query: str | None
    table: str | None
    deadline_s: float

    @property
    def title(self) -> str:
        """The source in messages: without the query and without what the variable holds."""
        what = "the query" if self.table is None else f"table {self.table}"
        return f"{what} of {self.uri.removeprefix(SQLITE)}"

    @property
    def rows(self) -> str:
        """The table or query from which a SELECT takes its rows."""
        if self.table is not None:
            parts = (part.replace('"', '""') for part in self.table.split("."))
            return ".".join(f'"{part}"' for part in parts)
        query = (self.query or "").strip().rstrip(";")
        return f"({query}\n) AS treetap_rows"  # its last line may be a comment

    def resolved(self) -> str | Path:
        """The URI of a server, or the file of SQLite.

        Raises:
            DataError: the environment variable is not set or names no database that can be read.
        """
        if not self.uri.startswith("$"):
            return Path(self.uri.removeprefix(SQLITE))
        name = self.uri[1:]
        value = os.environ.get(name)
        if not value:
            raise DataError(f"{self.title}: the environment variable {name} is not set")
        if value.startswith(_SERVERS):
            return value
        file = Path(value.removeprefix(SQLITE))
        if value.startswith(SQLITE) and file.is_absolute():
            return file
        raise DataError(
            f"{self.title}: {name} holds no postgresql://USER@HOST/DATABASE, and no sqlite:FILE with an absolute path"
        )


def unverified(uri: str) -> bool:
    """True for a server on another host whose certificate libpq would not check."""
    try:
        host = urlsplit(uri).hostname
    except ValueError:  # libpq will refuse it
        return False
    return bool(host) and not on_loopback(f"{host}:0") and "sslmode=verify-" not in uri
