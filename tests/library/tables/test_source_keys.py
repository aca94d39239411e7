"""The keys of a source: paths below the file that names them, and what a party does with them before it reads."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from treetap.errors import ConfigError
from treetap.ops.doctor import configuration
from treetap.party import config as party_config
from treetap.party.config import PartyConfig
from treetap.party.serving.registry import OwnPaths
from treetap.tables.config import TableConfig
from treetap.tables.source_keys import SourceKeys


def keys(**given: Any) -> SourceKeys:
    """Of one table."""
    return SourceKeys.model_validate(given)


@pytest.mark.parametrize(
    ("given", "below", "title"),
    [
        ({"path": "t.csv"}, [Path("/base/t.csv")], "/base/t.csv"),
        ({"path": "/a/t.csv"}, [Path("/a/t.csv")], "/a/t.csv"),
        (
            {"path": ["a.csv", "s3://b/c.csv", "d.csv"]},
            [Path("/base/a.csv"), "s3://b/c.csv", Path("/base/d.csv")],
            None,
        ),
        ({"path": "s3://bucket/key/"}, ["s3://bucket/key/"], "s3://bucket/key/"),
        ({"uri": "$CLINIC", "table": "a.b"}, [], "table a.b of $CLINIC"),
        ({"uri": "sqlite:t.db", "query": "SELECT 1"}, [], "the query of /base/t.db"),
    ],
)
def test_paths_begin_at_a_folder(given: dict[str, Any], below: list[Path | str], title: str | None) -> None:
    """Those of this host, SQLite's file among them; not those of a store."""
    found = keys(**given).below(Path("/base"))
    assert found.places == below
    assert found.title == (title or "/base/a.csv and 2 more")


def test_variables_in_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are replaced in each path, and one that is not set is an error."""
    monkeypatch.setenv("STORE", "s3://bucket")
    assert keys(path="$STORE/t.csv").expanded("data.path").places == ["s3://bucket/t.csv"]
    assert keys(path=["a", "${STORE}/b"]).expanded("data.path").places == [Path("a"), "s3://bucket/b"]
    assert keys(uri="$ABSENT", table="t").expanded("data.path").uri == "$ABSENT"  # read when the table is
    with pytest.raises(ConfigError, match=r"data\.path = '\$ABSENT/t\.csv': the environment variable is not set"):
        keys(path="$ABSENT/t.csv").expanded("data.path")


def party(folder: Path, **tables: dict[str, Any]) -> PartyConfig:
    """A party with these tables, as its file is read."""
    lines = [f'name = "a"\nstate = "{folder}/state"\ninsecure = true\n']
    for name, table in tables.items():
        lines.append(f"[tables.{name}]\n" + "".join(f"{key} = {value!r}\n" for key, value in table.items()))
    (folder / "a.toml").write_text("".join(lines))
    return party_config.read(folder / "a.toml")


def test_folders_of_a_party(tmp_path: Path) -> None:
    """Those of all paths and of SQLite's file are looked for; of a pattern the folder below which files are."""
    (tmp_path / "here").mkdir()
    party_config.check_folders(party(tmp_path, one={"path": "here/*/x.csv", "id": "id"}))
    for path in (["here/a.csv", "absent/b.csv"], "absent/b.csv", "absent/*.csv"):
        with pytest.raises(ConfigError, match="absent: there is no such folder"):
            party_config.check_folders(party(tmp_path, one={"path": path, "id": "id"}))
    with pytest.raises(ConfigError, match="absent: there is no such folder"):
        party_config.check_folders(party(tmp_path, one={"uri": "sqlite:absent/t.db", "table": "t", "id": "id"}))


def test_places_that_leave_a_party(tmp_path: Path) -> None:
    """An error names the file, not where it lies, on this host or in a store."""
    tables = {
        "one": {"path": f"{tmp_path}/secret/parts", "id": "id"},
        "two": {"path": "s3://bucket/secret/2024/*.parquet", "id": "id"},
        "three": {"uri": f"sqlite:{tmp_path}/secret/t.db", "table": "t", "id": "id"},
    }
    hide = OwnPaths(party(tmp_path, **tables))
    assert hide(f"{tmp_path}/secret/parts: p/a.parquet, row 3") == "parts: p/a.parquet, row 3"
    assert hide(f"{tmp_path}/secret/parts: site=north/a.parquet, row 3") == "parts: site=…/a.parquet, row 3"
    assert hide("s3://bucket/secret/2024/a.parquet: row 3") == "2024/a.parquet: row 3"
    assert hide(f"table t of {tmp_path}/secret/t.db: there is") == "table t of t.db: there is"


def test_the_doctor_says_what_is_detected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A finding names the keys that would say the same, and a fault those that help."""
    path = tmp_path / "t.csv"
    path.write_text("id;a\n1;2,5\n2;3,5\n")
    given: dict[str, Any] = {"path": path, "id": "id", "columns": ["a"]}
    with caplog.at_level(logging.INFO):
        (found,) = configuration._table("t", TableConfig.model_validate(given))
    assert found.level == "ok"
    assert 'delimiter = ";"' in found.message
    assert 'decimal = ","' in found.message
    (found,) = configuration._table("t", TableConfig.model_validate(given | {"delimiter": ","}))
    assert found.level == "fault"
    assert 'write delimiter = ";"' in found.message


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "give either path, or uri with query or table"),
        ({"path": "a", "uri": "$CLINIC", "table": "t"}, "give either path, or uri"),
        ({"uri": "$CLINIC"}, "give one of query"),
        ({"uri": "$CLINIC", "table": "t", "query": "SELECT 1"}, "give one of query"),
        ({"path": "a", "table": "t"}, "query and table are of a database, whose uri is missing"),
        ({"uri": "$CLINIC", "table": "t", "decimal": ","}, "decimal is a key of files, and uri of a database"),
        ({"uri": "$CLINIC", "table": "t", "deadline_s": 0}, "deadline_s"),
        (
            {"path": "a", "endpoint_override": "http://127.0.0.1:9000"},
            "endpoint_override is of object stores",
        ),
        ({"path": 3}, "path: a path is text (it is 3)"),
        ({"path": ""}, "path: a path is text (it is '')"),
        ({"path": []}, "path: names no file (it is [])"),
        ({"path": ["a", "s3://b"]}, "path: a path in an object store is written s3://BUCKET/KEY"),
        ({"path": "a", "deadline_s": 3.0}, "deadline_s is of a database, whose uri is missing"),
        ({"path": "a", "thousands": "x"}, "thousands: is , . ' _ or a space, or empty where there is none (it is 'x')"),
        ({"path": "a", "delimiter": ";;"}, "delimiter: is one character of ASCII"),
        ({"path": "a", "quote": "ab"}, "quote: is one character of ASCII, or empty"),
        ({"path": "a", "format": "xlsx"}, "format: Input should be 'csv', 'parquet', 'feather' or 'jsonl'"),
        ({"uri": "postgresql://u:geheim@h/d", "table": "t"}, "uri: is the name of an environment variable"),
        ({"path": "s3://b/k", "endpoint_override": "http://u:geheim@h"}, "endpoint_override: is http://HOST:PORT or"),
    ],
)
def test_faults_of_a_file(table: dict[str, Any], said: str, tmp_path: Path) -> None:
    """One line for each, by its key, and nothing of what may be a password."""
    with pytest.raises(ConfigError) as caught:
        party(tmp_path, t={"id": "id", **table})
    (line,) = str(caught.value).splitlines()[1:]
    assert line.startswith(f"  tables.t.{said}") or line.startswith(f"  tables.t: {said}")
    assert "geheim" not in line
