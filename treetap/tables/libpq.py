"""Settings that PostgreSQL's library, libpq, takes from the environment: a table's URI says them, or it is refused."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlsplit

from treetap.errors import DataError

#: Variables that are read: a password need not stand in the URI.
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
