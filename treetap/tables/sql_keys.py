"""Settings of a table that lies in a database: the environment variable with its URI, and what to read.

What PostgreSQL's library, libpq, takes from further variables the URI says, or the table is refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from treetap.errors import DataError
from treetap.names import on_loopback

SQLITE = "sqlite:"
_SERVERS = ("postgresql://", "postgres://")
#: Variables of libpq that are read: a password need not stand in the URI.
ALLOWED = ("PGPASSWORD", "PGPASSFILE")
#: Variable of libpq → the keyword of the URI that it stands for; None of one without.
VARIABLES: dict[str, str | None] = {
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPORT": "port",
    "PGDATABASE": "dbname",
    "PGUSER": "user",
    "PGPASSWORD": "password",
    "PGPASSFILE": "passfile",
    "PGREQUIREAUTH": "require_auth",
    "PGCHANNELBINDING": "channel_binding",
    "PGSERVICE": "service",
    "PGSERVICEFILE": None,
    "PGOPTIONS": "options",
    "PGAPPNAME": "application_name",
    "PGSSLMODE": "sslmode",
    "PGREQUIRESSL": "sslmode",
    "PGSSLCOMPRESSION": "sslcompression",
    "PGSSLNEGOTIATION": "sslnegotiation",
    "PGSSLCERT": "sslcert",
    "PGSSLKEY": "sslkey",
    "PGSSLCERTMODE": "sslcertmode",
    "PGSSLROOTCERT": "sslrootcert",
    "PGSSLCRL": "sslcrl",
    "PGSSLCRLDIR": "sslcrldir",
    "PGSSLSNI": "sslsni",
    "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version",
    "PGSSLMAXPROTOCOLVERSION": "ssl_max_protocol_version",
    "PGMINPROTOCOLVERSION": "min_protocol_version",
    "PGMAXPROTOCOLVERSION": "max_protocol_version",
    "PGREQUIREPEER": "requirepeer",
    "PGGSSENCMODE": "gssencmode",
    "PGKRBSRVNAME": "krbsrvname",
    "PGGSSLIB": "gsslib",
    "PGGSSDELEGATION": "gssdelegation",
    "PGCONNECT_TIMEOUT": "connect_timeout",
    "PGCLIENTENCODING": "client_encoding",
    "PGTARGETSESSIONATTRS": "target_session_attrs",
    "PGLOADBALANCEHOSTS": "load_balance_hosts",
    "PGDATESTYLE": None,
    "PGTZ": None,
    "PGGEQO": None,
    "PGSYSCONFDIR": None,
    "PGLOCALEDIR": None,
}


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


def check_environment(title: str, uri: str) -> None:
    """Raise `DataError` if a variable would decide about the connection to `uri` what that does not say itself.

    `title`: of the table, in messages, which never have the URI.
    """
    try:
        parts = urlsplit(uri)
        own = {"host": parts.hostname, "port": parts.netloc.rpartition("@")[2].rpartition(":")[1]}
    except ValueError:  # the driver refuses it
        return
    own |= {"user": parts.username, "password": parts.password, "dbname": parts.path.strip("/")}
    said = {name for name, value in own.items() if value} | {name for name, _ in parse_qsl(parts.query)}
    for variable, keyword in VARIABLES.items():
        if variable in ALLOWED or not os.environ.get(variable) or keyword in said:
            continue
        remedy = "unset it" if keyword is None else f"say {keyword} in the URI, or unset it"
        raise DataError(f"{title}: the environment variable {variable} would decide about the connection: {remedy}")
