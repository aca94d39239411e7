"""Causes of a database's errors in words of our own: a driver's message may hold cells, users, hosts and passwords."""

from __future__ import annotations

import re

#: Seconds for a connection to a database.
CONNECT_S = 10.0
#: SQLSTATE, or its first characters, the longest first.
_STATES = {
    "42P01": "there is no such table; write its name as the database spells it, SCHEMA.TABLE where it needs one",
    "42703": "there is no such column in the database",
    "42501": "the database's user may not read that: have it granted SELECT",
    "42601": "the query is no correct SQL",
    "57014": "the query took longer than deadline_s: raise it, or make the query faster",
    "25006": "the query writes, and queries run read-only: leave the writing out",
    "3D000": "there is no such database",
    "28": "the database refuses the user or the password",
    "22": "a value cannot be converted or computed in the query: correct the query, or the rows",
    "53": "the database lacks connections, memory or disk: try again later",
    "57": "the database is shutting down",
    "08": "the connection to the database broke",
    "42": "the query is not correct for this database: try it in the database's own shell",
}
#: What a driver's message contains, of connections and of SQLite, which have no SQLSTATE.
_PHRASES = (
    ("password authentication failed", "the database refuses the user or the password"),
    ("no password supplied", "the database wants a password, and the URI has none"),
    ("no pg_hba.conf entry", "the database's pg_hba.conf does not admit this host and user"),
    ('FATAL:  role "', "the database refuses the user or the password"),
    ('FATAL:  database "', "there is no such database"),
    ("could not translate host name", "the database's host name is unknown"),
    ("onnection refused", "no database listens at that address"),
    ("timeout expired", f"the database does not take the connection within {CONNECT_S:g} seconds"),
    ("No such file or directory", "no database listens at that socket"),
    ("invalid URI", "the URI of the database is not correct"),
    ("invalid connection option", "the URI of the database is not correct"),
    ("invalid integer value", "the URI of the database is not correct"),
    ("invalid port number", "the URI of the database is not correct"),
    ("SSL", "TLS with the database fails: check sslmode and sslrootcert in the URI"),
    ("server closed the connection", "the connection to the database broke"),
    ("no such table", _STATES["42P01"]),
    ("no such column", _STATES["42703"]),
    ("syntax error", _STATES["42601"]),
    ("incomplete input", _STATES["42601"]),
    ("readonly database", _STATES["25006"]),
    ("file is not a database", "the file is no SQLite database"),
    ("database is locked", "the database is locked by another process: try again later"),
    ("unable to open", "the file cannot be read"),
    ("failed to open", "the file cannot be read"),
)
_MISMATCH = re.compile(r"Type mismatch in column (\d+)")


def cause_of(failure: Exception) -> str:
    """The cause of a driver's error, for a message."""
    state = str(getattr(failure, "sqlstate", None) or "")
    if state:
        known = next((cause for start, cause in _STATES.items() if state.startswith(start)), None)
        return known or f"the database refuses the query (SQLSTATE {state})"
    said = str(failure)
    if mismatch := _MISMATCH.search(said):
        return (
            f"column {int(mismatch[1]) + 1} of those that the table names (id, columns, label) has cells of different "
            "kinds: write CAST(… AS TEXT) or CAST(… AS REAL) in a query"
        )
    known = next((cause for phrase, cause in _PHRASES if phrase in said), None)
    return known or f"the database cannot be read ({type(failure).__name__})"
