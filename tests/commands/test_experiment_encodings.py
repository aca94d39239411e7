"""An experiment takes encodings from the joined table, once for all runs, and says the lines of a party's file."""

from __future__ import annotations

import tomllib
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from treetap.errors import DataError
from treetap.lab.api.frames import arrow_of
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table, split
from treetap.lab.experiment.party_tables import read_as_party, write_tables
from treetap.lab.local_federation import keep_table
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table as read_party_table

LOANS = Path(__file__).parents[2] / "examples" / "loans"
BANK = ["opened", "job", "purpose", "amount", "months", "income", "used_percent", "late_payments", "owns_home"]
TELCO = ["contract_start", "tariff", "monthly_bill", "late_bills", "roaming_days"]
TAKEN = {
    "bank": {"opened": "days", "job": "categorical", "purpose": "categorical", "owns_home": "categorical"},
    "telco": {"contract_start": "days", "tariff": "categorical"},
}


def _experiment(job: dict[str, Any] | None = None, telco: dict[str, Any] | None = None, **data: Any) -> ExperimentFile:
    """The story's table, of a bank and a telephone company."""
    given = {"path": str(LOANS / "loans.csv"), "label": "defaulted", "id": "customer", "seed": [0, 1], **data}
    party = [
        {"name": "bank", "labels": True, "columns": BANK},
        {"name": "telco", **({"columns": TELCO} if telco is None else telco)},
    ]
    return ExperimentFile.model_validate({"data": given, "party": party, "job": job or {}})


def _encodings(experiment: ExperimentFile, folder: Path, seed: int = 0) -> dict[str, Any]:
    """The encodings in each party's file."""
    table = read_table(experiment, LOANS)
    settings = write_tables(experiment, table, split(experiment, table, seed), folder)
    assert all(own["tables"]["train"]["encode"] == own["tables"]["predict"]["encode"] for own in settings.values())
    return {name: own["tables"]["train"]["encode"] for name, own in settings.items()}


def test_the_parties_files_say_what_was_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In every run, with the policy that it needs; the lines on standard error give the parties' own files the same."""
    for seed in (0, 1):
        given = _encodings(_experiment(), tmp_path / str(seed), seed)
        assert given == TAKEN
    said = [line.strip() for line in capfd.readouterr().err.splitlines()]
    assert any(line.endswith("took text and dates so, as a party's own file would say it:") for line in said)
    own = {name: [line.removeprefix(f"{name}: ") for line in said if line.startswith(name)][:2] for name in TAKEN}
    telco = tomllib.loads("\n".join(own["telco"]))
    assert telco == {"encode": TAKEN["telco"], "date_format": {"contract_start": "%d.%m.%Y"}}
    experiment = _experiment()
    table = read_table(experiment, LOANS)
    drawn = split(experiment, table, 0)
    settings = write_tables(experiment, table, drawn, tmp_path / "again")
    trained = read_as_party(settings["telco"]["tables"]["train"], float("nan"))
    config = TableConfig(path=LOANS / "telco.csv", id="customer", columns=TELCO, **telco)
    alone = read_party_table(config, with_label=False, missing=None)
    assert {name: it.encode for name, it in alone.categories.items()} == TAKEN["telco"]
    both = alone.ids.places_of(trained.ids)
    np.testing.assert_array_equal(alone.features[both[both >= 0]], trained.features[both >= 0])


def test_the_party_that_gets_all_other_columns_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """By its share of 1, as if it named them."""
    read_table(_experiment(telco={"share": 1.0}), LOANS)
    assert '  telco: date_format = { contract_start = "%d.%m.%Y" }' in capfd.readouterr().err


def test_categories_of_jobs_that_do_not_partition_them(tmp_path: Path) -> None:
    """They are one-hot."""
    for number, job in enumerate(({"protocol": "forest"}, {"multi_strategy": "multi_output_tree"})):
        given = _encodings(_experiment(job), tmp_path / str(number))
        hot = {name: "one-hot" if it == "categorical" else it for name, it in TAKEN["bank"].items()}
        assert given["bank"] == hot


def test_settings_hold_for_the_columns_that_they_name(tmp_path: Path) -> None:
    """Of others what the cells show, whether a party claims them or draws them; a party's own encodings for its own."""
    given = _encodings(_experiment(encode={"job": "ordinal"}), tmp_path / "named")
    assert given["bank"] == TAKEN["bank"] | {"job": "ordinal"}
    telco = {"share": 1.0, "encode": "one-hot"}
    days = {"contract_start": "days"}
    with pytest.raises(DataError, match="column 'contract_start' holds 2503 different texts"):
        read_table(_experiment(telco=telco), LOANS)
    given = _encodings(_experiment(telco=telco | {"encode": "auto"}), tmp_path / "drawn")
    assert given == TAKEN
    given = _encodings(_experiment(telco={"columns": TELCO, "encode": {"tariff": "one-hot"}}), tmp_path / "own")
    assert given["telco"] == days | {"tariff": "one-hot"}


def test_columns_that_may_identify_records(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Text is refused with the line that makes it the id, and numbers are said to be worth a thought."""
    with pytest.raises(DataError) as refused:
        read_table(_experiment(telco={"share": 1.0}, id=None), LOANS)
    said = "column 'customer' holds another text in each record: if it identifies records, id = \"customer\"; else drop"
    assert said in str(refused.value)
    rows = "".join(f"{4711 + 3 * row},{row % 7},{row % 2}\n" for row in range(120))
    (tmp_path / "t.csv").write_text(f"nr,a,y\n{rows}")
    parties = [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["nr"]}]
    content = {"data": {"path": "t.csv", "label": "y"}, "party": parties, "job": {}}
    read_table(ExperimentFile.model_validate(content), tmp_path)
    said = "column 'nr' holds another number in each record: if it identifies records, id = \"nr\""
    assert said in capfd.readouterr().err.replace("\n", " ")


def test_rows_by_time_in_written_dates(tmp_path: Path) -> None:
    """The last ones by the days that they mean are held out; days that may be months are refused."""
    days = [date(2019, 1, 1) + timedelta(days=25 * row) for row in range(40)]
    rows = [f"{day.strftime('%d.%m.%Y')},{row % 5},{row % 3},{row % 2}\n" for row, day in enumerate(days)]
    parties = [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["b"]}]
    content = {"data": {"path": "t.csv", "label": "y", "time": "when"}, "party": parties, "job": {}}
    experiment = ExperimentFile.model_validate(content)
    (tmp_path / "t.csv").write_text("when,a,b,y\n" + "".join(rows))
    assert split(experiment, read_table(experiment, tmp_path), 0).test.tolist() == list(range(32, 40))
    (tmp_path / "t.csv").write_text(
        "when,a,b,y\n" + "".join(f"0{row % 9 + 1}.02.2019{line[10:]}" for row, line in enumerate(rows))
    )
    with pytest.raises(DataError, match="column 'when' holds dates whose day and month could change places"):
        read_table(experiment, tmp_path)


def test_a_frames_categories_of_numbers(tmp_path: Path) -> None:
    """They are categories in the file that an experiment reads them from."""
    frame = pa.table({"a": pa.array([3, 1, None, 2] * 10).dictionary_encode(), "b": range(40), "y": [0, 1] * 20})
    keep_table(arrow_of(frame), tmp_path / "t.parquet")
    parties = [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["b"]}]
    content = {"data": {"path": "t.parquet", "label": "y"}, "party": parties, "job": {}}
    experiment = ExperimentFile.model_validate(content)
    table = read_table(experiment, tmp_path)
    settings = write_tables(experiment, table, split(experiment, table, 0), tmp_path)
    assert settings["bank"]["tables"]["train"]["encode"] == {"a": "categorical"}
    assert read_as_party(settings["bank"]["tables"]["train"], float("nan")).categories["a"].values == ["1", "2", "3"]
