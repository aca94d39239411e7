"""What earlier versions had is refused by name and by what to do instead, wherever it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_origin

import pytest
import typer
from pydantic import ValidationError

import treetap.commands.approvals.client
import treetap.commands.certs.authority
import treetap.commands.jobs.job_file
import treetap.lab.experiment.experiment_file
import treetap.ops.relay.command
import treetap.party.config  # noqa: F401 - all schemas of files, as those below
from treetap.commands.cli import app
from treetap.errors import BadInput, ConfigError
from treetap.party.config import read
from treetap.removed import COMMANDS, REMOVED, STATE, Removed
from treetap.strict import Strict, faults_of


def _schemas(base: type[Strict] = Strict) -> dict[str, type[Strict]]:
    found = {base.__name__: base}
    for each in base.__subclasses__():
        found |= _schemas(each)
    return found


def _of(*places: str) -> list[Any]:
    return [pytest.param(row, id=f"{row.where}: {row.name}") for row in REMOVED if row.where in places]


KEYS = _of(*{row.where for row in REMOVED} - {COMMANDS, STATE})


@pytest.mark.parametrize("row", KEYS)
def test_a_key_or_value_is_refused(row: Removed) -> None:
    """By the place, the name, and what to write instead; no field of the schema has the name today."""
    key, _, value = row.name.partition(" = ")
    schema = _schemas()[row.where]
    assert bool(value) == (key in schema.model_fields)
    given, place = value.strip("'") or 1, key
    if value and get_origin(schema.model_fields[key].annotation) is list:
        given, place = [given], f"{key}.[1]"
    with pytest.raises(ValidationError) as failure:
        schema.model_validate({key: given})
    named = f"{place}: {row.name} {row}" if value else f"{place}: {row}"
    assert named in faults_of(failure.value, schema)


@pytest.mark.parametrize("row", _of(COMMANDS))
def test_a_word_of_the_command_line_is_refused(row: Removed) -> None:
    """Before its arguments are read, as wrong input."""
    with pytest.raises(BadInput) as failure:
        typer.main.get_command(app)([*row.name.split(), "--anything"], standalone_mode=False)
    assert str(failure.value) == f"treetap {row.name} {row}"


@pytest.mark.parametrize("row", _of(STATE))
def test_a_file_of_a_state_folder_is_refused(row: Removed, tmp_path: Path) -> None:
    """A party neither starts beside it nor reads its files by a command."""
    (config := tmp_path / "bank.toml").write_text('name = "bank"\nstate = "state"\ninsecure = true\n')
    read(config)
    file = tmp_path / "state" / row.name.replace("*", "any")
    file.parent.mkdir(parents=True)
    file.write_text("")
    with pytest.raises(ConfigError) as failure:
        read(config)
    assert str(failure.value) == f"{file}: {row}"
