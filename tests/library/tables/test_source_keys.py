"""The keys of a source: paths below the file that names them, and what a party does with them before it reads."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.library.tables.given import text_file
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
    path = text_file(tmp_path, "id;a\n1;2,5\n2;3,5\n")
    given: dict[str, Any] = {"path": path, "id": "id", "columns": ["a"]}
    with caplog.at_level(logging.INFO):
        (found,) = configuration._table("t", TableConfig.model_validate(given))
    assert found.level == "ok"
    assert 'delimiter = ";"' in found.message
    assert 'decimal = ","' in found.message
    (found,) = configuration._table("t", TableConfig.model_validate(given | {"delimiter": ","}))
    assert found.level == "fault"
    assert 'write delimiter = ";"' in found.message
