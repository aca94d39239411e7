"""The tutorial's tables are what their script writes, and such as a bank's are."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

LOANS = Path(__file__).parents[2] / "examples" / "loans"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder that the script writes."""
    folder = tmp_path_factory.mktemp("loans")
    subprocess.run([sys.executable, str(LOANS / "loans.py"), str(folder)], check=True, timeout=60)
    return folder


def rows(path: Path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["loans", "bank", "telco"])
def test_the_script_writes_the_table_again(written, name):
    """Byte for byte, on any machine."""
    assert (written / f"{name}.csv").read_bytes() == (LOANS / f"{name}.csv").read_bytes()


def test_the_table_is_like_a_banks():
    """5,000 customers, 21 % defaults, columns with 2 to 15 % of their cells missing."""
    table = rows(LOANS / "loans.csv")
    assert len({row["customer"] for row in table}) == len(table) == 5000
    assert sum(row["defaulted"] == "yes" for row in table) == 1050
    missing = {name: sum(not row[name] for row in table) / 5000 for name in table[0]}
    assert 0.14 < max(missing.values()) < 0.16
    assert sum(share > 0.015 for share in missing.values()) == 5


def test_each_half_has_customers_that_the_other_has_not():
    """The cells of a customer are those of the joined table, in another order."""
    table = {row["customer"]: row for row in rows(LOANS / "loans.csv")}
    bank, telco = rows(LOANS / "bank.csv"), rows(LOANS / "telco.csv")
    ids = [{row["customer"] for row in half} for half in (bank, telco)]
    assert ids[0] - ids[1]
    assert ids[1] - ids[0]
    assert {*bank[0]} | {*telco[0]} == {*table[bank[0]["customer"]]}
    assert all(table[row["customer"]] | row == table[row["customer"]] for half in (bank, telco) for row in half)
