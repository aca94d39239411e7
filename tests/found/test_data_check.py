"""An experiment names possible leaks, few cases and codes among its columns before the verdict that rests on them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.commands.experiment_documents import run
from treetap.lab.experiment.command import print_report
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_encodings import auc_alone, codes_in, leaks
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.results import Importance, warnings

N = 2000
RNG = np.random.default_rng(7)
Y = RNG.random(N) < 0.03
NOISE = RNG.normal(size=N)


def _text(share: float) -> list[str | None]:
    return ["ja" if it and draw < share else "nein" for it, draw in zip(Y, RNG.random(N), strict=True)]


#: Columns, and whether one is a leak by itself, by nine tenths of the gain too, or not at all.
COLUMNS: dict[str, tuple[list[Any], str]] = {
    "same": (Y.tolist(), "alone"),
    "other way": ((-1.0 * Y + 0.001 * NOISE).tolist(), "alone"),
    "written": ([f"2024-01-{1 + row % 28:02d}" if it else None for row, it in enumerate(Y)], "alone"),
    "amount": ([None if it else value for it, value in zip(Y, NOISE, strict=True)], "alone"),
    "status": ([["paid", "late", "open"][row % 3] if not it else "sold" for row, it in enumerate(Y)], "alone"),
    "state": ([1 + (row + row // 7) % 5 * 2 if not it else 4 for row, it in enumerate(Y)], "alone"),
    "Mahnstatus": (_text(0.92), "gain"),
    "score": ((Y * 2.2 + NOISE).tolist(), "gain"),
    "hint": ((Y * 1.0 + NOISE).tolist(), ""),
    "noise": (NOISE.tolist(), ""),
    "name": ([f"n{row}" for row in range(N)], ""),
    "shop": ([f"s{row % 240}" for row in range(N)], ""),
}


def _values(cells: list[Any]) -> np.ndarray[Any, Any]:
    if any(isinstance(it, str) for it in cells):
        place = {text: float(k) for k, text in enumerate(sorted({it for it in cells if it is not None}))}
        return np.array([np.nan if it is None else place[it] for it in cells])
    return np.array([np.nan if it is None else float(it) for it in cells])


@pytest.mark.parametrize("name", COLUMNS)
def test_the_auc_of_a_column_alone(name: str) -> None:
    """In whichever direction, of texts and codes in no order, and of what is there or not for a class alone."""
    cells, kind = COLUMNS[name]
    auc = auc_alone(_values(cells), Y)
    low, high = {"alone": (0.99, 1.0), "gain": (0.9, 0.99), "": (0.0, 0.9)}[kind]
    assert low <= auc <= high


def _experiment(path: Path, **party: Any) -> ExperimentFile:
    parties = [{"name": "bank", "labels": True, **party}, {"name": "telco", "share": 0.0}]
    data = {"path": str(path), "label": "y", "drop": ["name"], "encode": {"other way": "auto"}}
    return ExperimentFile.model_validate({"data": data, "party": parties, "job": {}})


def _run(columns: list[str], gains: dict[str, float], **given: Any) -> Any:
    rows = [Importance(party="bank", feature=name, weight=1, gain=gain, cover=1.0) for name, gain in gains.items()]
    return SimpleNamespace(seed=0, fold=None, columns={"bank": columns, "telco": []}, importance=rows, **given)


def test_leaks_are_named_with_the_line_that_drops_them(tmp_path: Path) -> None:
    """By AUC alone, or with most of the gain, which features of one column add up to."""
    names = [name for name in COLUMNS if name != "name"]
    pq.write_table(pa.table({**{name: COLUMNS[name][0] for name in COLUMNS}, "y": Y}), path := tmp_path / "t.parquet")
    experiment = _experiment(path, columns=names, encode={"Mahnstatus": "one-hot", "shop": "categorical"})
    table = read_table(experiment, tmp_path)
    alone = [name for name in names if COLUMNS[name][1] == "alone"]
    shared = {"Mahnstatus=ja": 50.0, "Mahnstatus=nein": 40.0, "score": 10.0}
    for gains, more in ((shared, ["Mahnstatus"]), ({"score": 79.0, "noise": 21.0}, []), ({}, [])):
        said = leaks(experiment, table, _run(names, gains))
        assert [line.split("'")[1] for line in said] == [*alone, *more]
        assert all(line.endswith(f"\n    drop = {json.dumps(['name', *alone, *more])}  # in [data]") for line in said)
        by_gain = "column 'Mahnstatus' of bank ranks the label by itself, with AUC 0.9"
        for line in said[len(alone) :]:
            assert line.startswith(by_gain)
            assert ", and 80% or more of the model's gain. " in line


def test_few_cases_are_counted_over_the_folds() -> None:
    """Of the rarest class, by seed; from a hundred on nothing is said, nor of a regression."""

    def said(counts: list[list[int]], folds: bool) -> list[str]:
        runs = [
            SimpleNamespace(
                seed=0 if folds else place,
                fold=place if folds else None,
                data=["a leak"] * place,
                evaluation=SimpleNamespace(
                    per_class=[SimpleNamespace(name=f"c{k}", support=n) for k, n in enumerate(own)]
                ),
            )
            for place, own in enumerate(counts)
        ]
        return [line for line in warnings(runs) if line != "a leak"]  # type: ignore[arg-type]

    assert (
        "rest on few held-out rows of class 'c1': 35. More rows would tell more; so would each row held out once:\n"
        "    cv = 5  # in [data]"
    ) in said([[300, 35]], folds=False)[0]
    assert "'c1': 36. " in said([[300, 35], [300, 37]], folds=False)[0]
    assert said([[30, 9]] * 5, folds=True)[0].endswith("'c1': 45. More rows would tell more.")
    assert said([[300, 25]] * 5, folds=True) == said([[300, 100]], folds=False) == said([[]], folds=False) == []


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_codes_that_are_read_as_numbers(form: str, tmp_path: Path) -> None:
    """Texts of digits of one length, of which one begins with 0; not what an encoding has, and no other number."""
    digits = [f"{137 * row % 90000:05d}" for row in range(200)]
    columns = {
        "PLZ": digits,
        "quoted": ["-" if row == 3 else text for row, text in enumerate(digits)],
        "year": [str(1900 + row % 100) for row in range(200)],
        "month": [f"{1 + row % 12:02d}" for row in range(200)],
        "mixed": [str(row) for row in range(200)],
        "named": digits[:50] * 4,
        "y": ["a", "b"] * 100,
    }
    path, table = tmp_path / f"t.{form}", pa.table(columns)
    pq.write_table(table, path) if form == "parquet" else pacsv.write_csv(
        table, path, pacsv.WriteOptions(quoting_style="none")
    )
    parties = [
        {"name": "bank", "labels": True, "columns": ["PLZ", "year", "month", "named"], "encode": {"named": "ordinal"}},
        {"name": "telco", "share": 1.0},
    ]
    data = {"path": str(path), "label": "y", "missing": ["-"]}
    experiment = ExperimentFile.model_validate({"data": data, "party": parties, "job": {}})
    said = codes_in(read_table(experiment, tmp_path))
    assert [line.split("'")[1] for line in said] == ["PLZ", "quoted"]
    assert said[0].endswith('If it is one:\n    encode = { PLZ = "categorical" }  # in [data]')


def test_the_report_begins_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, before the verdict."""
    print_report([run(seed, data=["a leak"]) for seed in (0, 1)], details=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a leak"
    assert lines.count("a leak") == 1
