"""Errors of files show what was written, but for what may be a password in an address."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError
from treetap.lab.experiment.file_tables import OutputTable
from treetap.party import config as party_config
from treetap.strict import faults_of

SECRET = "HUNTER2"
_TLS = '[tls]\nca = "a"\ncertificate = "b"\nkey = "c"\n'
_USER = f"bob:{SECRET}@host"


@pytest.mark.parametrize(
    "text",
    [
        f'listen = "{_USER}:1"',
        f'metrics = "http://{_USER}:1/x"',
        f'workers = "http://{_USER}"',
        f'engine = "ray://{_USER}:1"',
        f'insecure = "{_USER}"',
        f'tables = "postgres://{_USER}"',
        f'tables_folder_sources = ["https://{_USER}"]',
        f'tables_folder_sources = "https://{_USER}"',
        f'[cluster]\naddress = "ray://{_USER}:1"',
        f'[tables.t]\nid = "i"\npath = "postgresql://{_USER}/records"',
        f'[tables.t]\nid = "i"\npath = ["a.csv", "http://{_USER}/b.csv"]',
        f'[tables.t]\nid = "i"\npath = "s3://KEY:{SECRET}@bucket/a.csv"',
        f'[tables.t]\nid = "i"\ntable = "x"\nuri = "postgresql://{_USER}/records"',
        f'[tables.t]\nid = "i"\npath = "s3://b/k"\nendpoint_override = "http://{_USER}"',
        f'[tables.t]\nid = "i"\npath = "a.csv"\nencode = "{_USER}"',
    ],
)
def test_a_partys_file(text: str, tmp_path: Path) -> None:
    """Wherever the address stands by mistake."""
    above, below = (text, "") if not text.startswith("[") else ("", text)
    content = f'name = "bank"\nstate = "s"\n{above}\n{_TLS}{below}\n'
    (tmp_path / "party.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as failure:
        party_config.read(tmp_path / "party.toml")
    assert SECRET not in str(failure.value)


def test_a_coordinators_file(tmp_path: Path) -> None:
    """An address of a party."""
    content = f'state = "s"\n{_TLS}[parties]\nshop = "{_USER}:1"\n'
    (tmp_path / "coordinator.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"parties\.shop: an address is host:port, without a user") as failure:
        CoordinatorConfig.from_file(tmp_path / "coordinator.toml")
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize("address", ["http://{}:5000", "ftp://{}", "postgresql://{}/db", "{}:5000", "http:/{}:5000"])
def test_an_experiments_tracking_server(address: str) -> None:
    """With a password it is refused, and not shown."""
    with pytest.raises(ValidationError) as failure:
        OutputTable(mlflow=address.format(_USER))
    (fault,) = faults_of(failure.value, OutputTable)
    assert fault.startswith("mlflow: ")
    assert SECRET not in fault
