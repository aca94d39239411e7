"""`treetap capacity` on a file of measurements, and the measurement itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.capacity.test_estimate import MEASURED, ON_LATTICE
from treetap.commands.capacity import measuring
from treetap.commands.capacity.measuring import Measurements
from treetap.commands.cli import app
from treetap.errors import BadInput
from treetap.protocols.key_options import LATTICE, PAILLIER, KeyKind

pytestmark = pytest.mark.second_tier


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of measurements."""
    path = tmp_path / "measured.json"
    MEASURED.save(path)
    return path


def ask(*words: str) -> str:
    result = CliRunner().invoke(app, ["capacity", *words], env={"COLUMNS": "160"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_answer_names_what_saturates_first(file: Path) -> None:
    """In a person's words and as JSON, with bars for the phases."""
    words = ["--records", "50000", "--columns", "4,6", "--trees", "5", "--measurements", str(file), "--cores", "2"]
    said = ask(*words)
    assert "saturates first: label holder: workers" in said
    assert "encrypt" in said
    assert "█" in said
    found = json.loads(ask(*words, "--json"))
    assert found["saturates_first"] == "label holder: workers"
    assert found["training"]["columns"] == [4, 6]
    replace(MEASURED, lattice=ON_LATTICE).save(file)
    said = ask(*words, "--scheme", "lattice")
    assert "50,000 records, 4 + 6 columns, lattice: " in said
    assert "saturates first: label holder to feature party: messages" in said
    found = json.loads(ask(*words, "--scheme", "lattice", "--json"))
    assert (found["training"]["scheme"], found["training"]["way"]) == ("lattice", "queries")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--records", "5000", "--columns", "4,six"], "--columns 4,six: must be whole numbers"),
        (["--records", "5000", "--nodes", "1,2,3"], "--nodes 1,2,3: one number above 0 for all parties"),
        (["--records", "5000", "--nodes", "0"], "--nodes 0: one number above 0 for all parties"),
        (["--records", "5000", "--scheme", "rsa"], "scheme = 'rsa'"),
        (["--records", "5000", "--scheme", "lattice", "--max-bin", "256"], "max_bin = 256: must be at most 255 where"),
        (["--records", "5000", "--scheme", "lattice", "--key-bits", "2048"], "key_bits: scheme 'lattice' has none"),
        (["--records", "5000"], "measured.json: no such file; with --measure this machine's figures go there"),
        ([], "--records: say how many"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(words: list[str], says: str, tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "measured.json"
    with pytest.raises(BadInput) as refused:
        CliRunner().invoke(app, ["capacity", *words, "--measurements", str(nowhere)], catch_exceptions=False)
    assert says in str(refused.value)
    assert not nowhere.exists()


@pytest.mark.parametrize(
    ("option", "wrong", "range_"),
    [
        ("--cores", "0", "greater than or equal to 1"),
        ("--workers", "-1", "greater than or equal to 0"),
        ("--bandwidth", "-5", "greater than or equal to 0.001"),
        ("--inner-bandwidth", "0", "greater than or equal to 0.001"),
        ("--memory", "nan", "greater than or equal to 0.001"),
        ("--delay", "inf", "less than or equal to 600000"),
        ("--smaller-share", "0.7", "less than or equal to 0.5"),
        ("--records", "-1", "greater than or equal to 0"),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(option: str, wrong: str, range_: str, tmp_path: Path) -> None:
    """The option and its range are named."""
    nowhere = tmp_path / "measured.json"
    words = ["capacity", "--records", "5000", "--measurements", str(nowhere), option, wrong]
    refused = CliRunner().invoke(app, words, env={"COLUMNS": "160"})
    assert refused.exit_code == 2
    assert f"'{option}'" in refused.output
    assert range_ in refused.output
    assert not nowhere.exists()


def test_a_file_of_another_machine_gets_no_figures_of_this_one(file: Path) -> None:
    with pytest.raises(BadInput, match="is not this machine"):
        measuring.measure(KeyKind(PAILLIER, 1024), "short-exponent", Measurements.load(file), file)


def test_a_measurement_has_all_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes, TLS and kernels, with few messages and a short key."""
    for name, few in {"MESSAGES": 4, "SMALL": 20, "CALLS": 20, "RECORDS": 20_000}.items():
        monkeypatch.setattr(measuring, name, few)
    found = measuring.measure(KeyKind(PAILLIER, 1024), "short-exponent")
    assert all(value > 0 for _, value in found.figures())
    kernels = found.of(KeyKind(PAILLIER, 1024), "short-exponent")
    assert kernels is not None
    assert kernels.product_s < kernels.encrypt_s < kernels.open_s < kernels.pack_s
    assert found.host.process_mb > 20
    key = KeyKind(LATTICE, 0)
    assert not found.has(key, "")
    both = measuring.measure(key, "", found)
    assert both.has(key, "")
    assert both.kernels == found.kernels
    assert both.lattice is not None
    assert both.lattice.sum_s < both.lattice.encrypt_s < both.lattice.product_s < both.lattice.hide_s
    assert all(value > 0 for _, value in both.figures())
