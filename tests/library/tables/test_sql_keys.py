"""Variables of PostgreSQL's library: its passwords are read, and what else would decide is refused by name."""

from __future__ import annotations

import os

import pytest

from treetap.errors import DataError
from treetap.tables.sql import VARIABLES, check_environment

URI = "postgresql://reader@db.example:5432/clinic?sslmode=verify-full"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES.keys() & os.environ.keys():
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", ["PGHOSTADDR", "PGOPTIONS", "PGSERVICE", "PGSSLROOTCERT", "PGTZ", "PGDATESTYLE"])
def test_a_variable_that_would_decide(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable and what to do, and shows neither its value nor the URI."""
    monkeypatch.setenv(name, "elsewhere")
    with pytest.raises(DataError, match=f"table t of .DB: the environment variable {name} would decide") as failure:
        check_environment("table t of $DB", URI)
    assert "unset it" in str(failure.value)
    assert "elsewhere" not in str(failure.value)
    assert "reader" not in str(failure.value)


@pytest.mark.parametrize("name", ["PGPASSWORD", "PGPASSFILE", "PGHOST", "PGUSER", "PGPORT", "PGDATABASE", "PGSSLMODE"])
def test_passwords_and_what_the_uri_says_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password may come from the environment, and a variable that the URI outweighs decides nothing."""
    monkeypatch.setenv(name, "elsewhere")
    check_environment("t", URI)


def test_a_uri_that_leaves_a_part_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a port in the URI, PGPORT would decide; as a keyword after the question mark it is said too."""
    monkeypatch.setenv("PGPORT", "6543")
    with pytest.raises(DataError, match="PGPORT would decide about the connection: say port in the URI, or unset it"):
        check_environment("t", "postgresql://reader@db.example/clinic")
    check_environment("t", "postgresql://reader@db.example/clinic?port=5432")
