"""Rows that an experiment holds out: folds, and the last rows by a time column.

`[defences]` and `[party.defences]` of an experiment: who gets them, which jobs are refused, what the report says.

A party may have its workers on a cluster, as parties of files do.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from sklearn.model_selection import TimeSeriesSplit

from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.baselines import Comparison, check, defended, says, says_of_cells
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_encodings import time_ranks
from treetap.lab.experiment.joined_table import read_table, split
from treetap.lab.experiment.party_tables import ID, Split, write_tables
from treetap.lab.local_federation import to_toml
from treetap.party.config import PartyConfig
from treetap.party.defences.settings import Defences
from treetap.strict import load


def experiment(
    folder: Path, content: dict[str, Any], columns: list[str] | None = None, job: str = "binary:logistic", **data: Any
) -> ExperimentFile:
    """An experiment on a table with columns a, b and y beside those of `content`."""
    count = len(next(iter(content.values())))
    base = {"a": np.arange(count), "b": np.arange(count), "y": np.arange(count) % 2}
    pq.write_table(pa.table(base | content), folder / "t.parquet")
    other = {"name": "lab", "share": 1.0} if columns is None else {"name": "lab", "columns": columns}
    parties = [{"name": "clinic", "labels": True, "columns": ["a"]}, other]
    names = {"stop": "early_stopping_rounds", "protocol": "protocol"}
    more = {names[key]: data.pop(key) for key in names if key in data}
    given = {"path": str(folder / "t.parquet"), "label": "y", **data}
    return ExperimentFile.model_validate({"data": given, "party": parties, "job": {"objective": job, **more}})


def runs(given: ExperimentFile) -> list[Any]:
    """The rows and columns of each run."""
    table = read_table(given, Path())
    return [split(given, table, run.seed, run.fold) for run in given.runs]


def test_ids_of_an_experiment_are_normalised(tmp_path: Path) -> None:
    """Once, before parties get them; rows that are numbered have none."""
    given = experiment(tmp_path, {"key": ["B 7", " b８", "A9", "a１0"]}, id="key", normalise=["digits", "nfkc"])
    assert read_table(given, Path()).column(ID).to_pylist() == ["7", "8", "9", "10"]
    with pytest.raises(ValidationError, match="normalise is of ids, and rows are numbered: name the id column"):
        experiment(tmp_path, {"key": ["1"] * 4}, normalise=["digits"])


@pytest.mark.parametrize("folds", [2, 5, 7])
def test_folds_hold_every_row_out_once_and_keep_the_classes(folds: int, tmp_path: Path) -> None:
    """Sizes of folds, and of each class in them, differ by one at most; another seed draws other folds."""
    labels = np.repeat(["x", "y", "z"], [23, 11, 7])
    given = experiment(tmp_path, {"y": labels}, job="multi:softprob", cv=folds, seed=[1, 2])
    found = runs(given)
    for of_seed in (found[:folds], found[folds:]):
        assert sorted(np.concatenate([each.test for each in of_seed]).tolist()) == list(range(41))
        for each in of_seed:
            assert sorted([*each.train, *each.test]) == list(range(41))
        for name in ("x", "y", "z"):
            sizes = [int((labels[each.test] == name).sum()) for each in of_seed]
            assert max(sizes) - min(sizes) <= 1
        sizes = [len(each.test) for each in of_seed]
        assert max(sizes) - min(sizes) <= 1
    assert any(a.test.tolist() != b.test.tolist() for a, b in zip(found[:folds], found[folds:], strict=True))
    assert [each.test.tolist() for each in runs(given)] == [each.test.tolist() for each in found]


def test_the_last_rows_by_time_are_held_out(tmp_path: Path) -> None:
    """Whatever the seed; the time column is no feature unless a party names it."""
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=(7 * i) % 20) for i in range(20)]
    given = experiment(tmp_path, {"day": days}, time="day", test_share=0.25, seed=[0, 1])
    for drawn in runs(given):
        assert {days[row] for row in drawn.test} == {dt.date(2026, 1, day) for day in range(16, 21)}
        assert sorted([*drawn.train, *drawn.test]) == list(range(20))
        assert drawn.columns == {"clinic": ["a"], "lab": ["b"]}
    when = np.argsort([(7 * i) % 20 for i in range(20)]).astype(float)
    named = experiment(tmp_path, {"day": when}, ["b", "day"], time="day", test_share=0.25)
    assert runs(named)[0].columns["lab"] == ["b", "day"]


@pytest.mark.parametrize(("count", "folds"), [(24, 5), (23, 3), (40, 2)])
def test_folds_by_time_are_those_of_scikit_learn(count: int, folds: int, tmp_path: Path) -> None:
    """The expanding window of `TimeSeriesSplit` over the rows by time."""
    times = np.random.default_rng(count).permutation(count)
    order = np.argsort(times)
    wanted = list(TimeSeriesSplit(folds).split(order))
    for drawn, (train, test) in zip(
        runs(experiment(tmp_path, {"when": times}, time="when", cv=folds)), wanted, strict=True
    ):
        assert drawn.train.tolist() == sorted(order[train].tolist())
        assert drawn.test.tolist() == sorted(order[test].tolist())


@pytest.mark.parametrize(
    "cells",
    [
        [3, 1, 2, 1],
        [3.5, -1.0, 2.0, -1.0],
        ["30", "4", "5", "4"],
        ["2026-03-01", "2025-12-31", "2026-02-01", "2025-12-31"],
        ["2026-03-01T10:00:00", "2026-03-01T09:00:00", "2026-03-01T09:30:00", "2026-03-01T09:00:00"],
        ["2026-03-01T10:00:00Z", "2026-03-01T11:00:00+02:00", "2026-03-01T09:30:00Z", "2026-03-01T09:00:00Z"],
        [dt.datetime(2026, 3, 1, hour, minute) for hour, minute in ((10, 0), (9, 0), (9, 30), (9, 0))],
        [dt.date(2026, 3, 1), dt.date(1969, 1, 1), dt.date(2026, 2, 1), dt.date(1969, 1, 1)],
    ],
)
def test_times_of_every_type(cells: list[Any]) -> None:
    """Numbers, dates, times and their text are ordered by time; equal ones as they stand in the table."""
    assert time_ranks(Path("t.parquet"), "when", pa.chunked_array([cells])).tolist() == [3, 0, 2, 1]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([1, None], "row 2, time column 'when': the cell is missing"),
        ([1.0, float("nan")], "row 2, time column 'when': the cell is missing"),
        (["1", "x"], "row 2, column 'when': the cell is not a number"),
        (["2026-01-01", "2026-13-01"], "row 2, column 'when': the cell is not a date"),
        (["2026-01-01", None], "row 2, time column 'when': the cell is missing"),
        ([True, False], "time column 'when' holds bool"),
        ([b"\xff", b"2"], "column 'when' holds binary"),
    ],
)
def test_cells_that_are_no_time(cells: list[Any], says: str) -> None:
    """A missing cell and one that is no time are named by their place."""
    with pytest.raises(DataError) as raised:
        time_ranks(Path("t.parquet"), "when", pa.chunked_array([cells]))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("content", "data", "says"),
    [
        ({"y": [0] * 10 + [1] * 10}, {"time": "a"}, "class '1' begins too late by column 'a', with its rows, 10"),
        ({"y": [0] * 19 + [1]}, {"cv": 5}, "class '1' has too few rows, 1: with cv = 5 no row remains to train on"),
        ({"y": [0, 1, 0, 1]}, {"cv": 9}, "4 rows are too few for cv = 9"),
        ({"y": [0, 1] * 9}, {"time": "z"}, "has no column 'z'"),
        ({"y": [0, 1] * 9, "treetap_time": [1] * 18}, {"time": "a"}, "column 'treetap_time' has the name of an"),
    ],
)
def test_rows_that_cannot_be_held_out(content: dict[str, Any], data: dict[str, Any], says: str, tmp_path: Path) -> None:
    """A class that only held-out rows have, too few rows, and a column that is not there: by file and reason."""
    cuts = {"test_share": 0.6} if "time" in data else {}
    with pytest.raises(DataError) as raised:
        runs(experiment(tmp_path, content, **data, **cuts))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"cv": 5, "test_share": 0.2}, "test_share and cv exclude each other"),
        ({"cv": 1}, "greater than or equal to 2"),
        ({"evaluate_rounds": True, "stop": 3}, "evaluate_rounds and early_stopping_rounds do not go together"),
        pytest.param(
            {"evaluate_rounds": True, "protocol": "splitnn"},
            "protocol 'splitnn' do not go together: an embedding of each of its records",
            marks=pytest.mark.second_tier,
        ),
        ({"time": "y"}, "time column 'y' is the label, the id or dropped"),
        ({"time": "q", "drop": ["q"]}, "time column 'q' is the label, the id or dropped"),
    ],
)
def test_keys_that_contradict_each_other(data: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Faults of the file are told by key."""
    with pytest.raises(ValueError, match=says):
        experiment(tmp_path, {"y": [0, 1] * 9}, **data)


ALL: dict[str, Any] = {"label_dp": {"epsilon": 0.5, "stages": 2}, "grafting": True}
GRADIENTS: dict[str, Any] = {"dimip": {"lab": 0.3}, "gradient": {"kind": "noise", "scale": 1e-3}}
NOISE: dict[str, Any] = {"dp_sgd": {"clip": 1.0, "noise": 0.5}}
SENSITIVITY: dict[str, Any] = {"sensitivity": 0.25, "sensitivity_norm": "batch"}
DRAWN = Split(np.arange(8), np.arange(8, 10), {"clinic": ["a"], "lab": ["b"]})


def _experiment(defences: dict[str, Any], lab: dict[str, Any] | None = None, **job: Any) -> ExperimentFile:
    of_columns = {} if lab is None else {"defences": lab}
    one_role = job.get("protocol") == "pivodl"
    labels: list[dict[str, Any]] = [{"label_share": 0.5}] * 2 if one_role else [{"labels": True}, {}]
    options = {} if job.get("protocol") == "splitnn" else {"key_bits": 1024}
    return ExperimentFile.model_validate(
        {
            "data": {"path": "t.csv", "label": "y"},
            "party": [
                {"name": "clinic", "columns": ["a"], **labels[0]},
                {"name": "lab", "columns": ["b"], **labels[1], **of_columns},
            ],
            "job": {**options, **job},
            "defences": defences,
        }
    )


def _table() -> pa.Table:
    cells = {"a": range(10), "b": [k * k for k in range(10)], "y": [k % 2 for k in range(10)]}
    return pa.table({ID: [str(k) for k in range(10)], **cells})


@pytest.mark.parametrize("defences", [{"id_lmid": {"xi": math.inf}}, {"id_lmid": {"xi": 0.5}}, ALL, GRADIENTS])
def test_a_partys_file_has_them_as_they_were_given(defences: dict[str, Any]) -> None:
    """Also a limit that forbids nothing, which JSON's numbers lack."""
    given = Defences(**defences)
    written = tomllib.loads(to_toml({"defences": given.model_dump(exclude_defaults=True)}))
    assert Defences(**written["defences"]) == given


def test_only_the_label_holder_has_them(tmp_path: Path) -> None:
    """The table goes into the label holder's own configuration; without defences there is none."""
    settings = write_tables(_experiment(ALL), _table(), DRAWN, tmp_path)
    assert settings["clinic"]["defences"] == ALL
    assert "defences" not in settings["lab"]
    assert all("defences" not in each for each in write_tables(_experiment({}), _table(), DRAWN, tmp_path).values())


@pytest.mark.parametrize(
    ("defences", "job", "expected"),
    [
        ({"id_lmid": {"xi": 0.5}}, {"objective": "reg:squarederror"}, "id_lmid and a regression do not go together"),
        (ALL, {"objective": "reg:squarederror"}, "grafting and a regression do not go together"),
        (
            {"id_lmid": {"xi": 0.5}},
            {"protocol": "pivodl", "epsilon": 8.0, "delta": 1e-5, "clip": 2.0, "classes": ["0", "1"]},
            "id_lmid and protocol 'pivodl' do not go together",
        ),
        (GRADIENTS, {}, "gradient and protocol 'boosting' do not go together"),
    ],
)
def test_jobs_without_such_defences(defences: dict[str, Any], job: dict[str, Any], expected: str) -> None:
    """They are refused by name, before any process starts."""
    with pytest.raises(ConfigError) as raised:
        check(Path("exp.toml"), _experiment(defences, **job), DRAWN, 2)
    assert str(raised.value).startswith("exp.toml: ")
    assert expected in str(raised.value)


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("defences", "expected"),
    [
        (ALL, "grafting and protocol 'splitnn' do not go together: it has no such defence of labels"),
        ({"dimip": {"clinic": 0.3}}, "dimip of clinic under [defences]: the feature parties of the job are lab"),
        (GRADIENTS, ""),
    ],
)
def test_networks_have_defences_of_gradients(defences: dict[str, Any], expected: str) -> None:
    """And none of those of trees; the label holder's own file is checked as the party would."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    experiment = _experiment(defences, protocol="splitnn")
    if not expected:
        check(Path("exp.toml"), experiment, DRAWN, 2)
        return
    with pytest.raises(ConfigError) as raised:
        check(Path("exp.toml"), experiment, DRAWN, 2)
    assert expected in str(raised.value)


@pytest.mark.second_tier
def test_a_feature_party_may_have_an_optimiser_of_its_own(tmp_path: Path) -> None:
    """In its own file, of networks alone; the centralised model, which has the job's, is no measure of such a run."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    plain = _experiment({}, protocol="splitnn").model_dump(exclude_unset=True)

    def amplified(party: int, **job: Any) -> ExperimentFile:
        parties = [{**each, "optimizer": "amplified"} if k == party else each for k, each in enumerate(plain["party"])]
        return ExperimentFile.model_validate({**plain, "party": parties, "job": {**plain["job"], **job}})

    settings = write_tables(amplified(1, batch_size=4), _table(), DRAWN, tmp_path)
    assert settings["lab"]["optimizer"] == "amplified"
    assert "optimizer" not in settings["clinic"]
    held_out = _table().take(pa.array(DRAWN.test))
    assert not Comparison(amplified(1, batch_size=4), settings, 0, held_out).comparable
    with pytest.raises(ValidationError, match="optimizer of clinic: is of a feature party; leave it out"):
        amplified(0)
    with pytest.raises(ValidationError, match="optimizer of lab: protocol 'boosting' trains by none; leave it out"):
        ExperimentFile.model_validate({**amplified(1).model_dump(exclude_unset=True), "job": {"protocol": "boosting"}})


@pytest.mark.second_tier
@pytest.mark.parametrize("lab", [SENSITIVITY, NOISE, NOISE | {"sensitivity": 0.0, "sensitivity_norm": "batch"}])
def test_a_feature_partys_file_has_its_own(lab: dict[str, Any], tmp_path: Path) -> None:
    """Its file alone, as they were given; the centralised network steps by them, and is the federation's."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    plain, own = (_experiment({}, given, protocol="splitnn", batch_size=4) for given in (None, lab))
    settings = write_tables(own, _table(), DRAWN, tmp_path)
    assert settings["lab"]["defences"] == lab
    assert "defences" not in settings["clinic"]
    written = tomllib.loads(to_toml({"defences": settings["lab"]["defences"]}))
    assert Defences(**written["defences"]) == own.party[1].defences
    check(Path("exp.toml"), own, DRAWN, 2)
    rows = _table().take(pa.array(DRAWN.test))
    without, compared = (Comparison(each, settings, 0, rows) for each in (plain, own))
    assert compared.comparable
    found = compared.metrics()
    assert found["centralised without defences, test"] == without.metrics()["centralised, test"]
    assert found["centralised, test"]["logloss"] != found["centralised without defences, test"]["logloss"]
    own = _experiment({}, lab, protocol="splitnn", batch_size=4, reproducible=False)
    assert not Comparison(own, settings, 0, rows).comparable


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"defences": SENSITIVITY},
            "[defences] sensitivity: protects a feature party's columns, and this table is of labels; move it to "
            "[party.defences], below the [[party]]",
        ),
        ({"clinic": NOISE}, "[party.defences] of clinic: the label holder sends nothing of its columns"),
        ({"lab": GRADIENTS}, "[party.defences] of lab, dimip, gradient: protects labels; move it to [defences]"),
        ({"lab": SENSITIVITY | NOISE}, "party.[2].defences: sensitivity and dp_sgd do not go together"),
        ({"lab": {"dp_sgd": {"clip": 0, "noise": 1.0}}}, "party.[2].defences.dp_sgd.clip: "),
    ],
)
def test_defences_in_the_wrong_place(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """The file, the table and the place where it belongs are named."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    content = _experiment({}, protocol="splitnn").model_dump(mode="json", exclude_unset=True)
    parties = [
        {**party, **({"defences": changes[party["name"]]} if party["name"] in changes else {})}
        for party in content["party"]
    ]
    file = tmp_path / "exp.toml"
    file.write_text(to_toml({**content, "party": parties, "defences": changes.get("defences", {})}))
    with pytest.raises(ConfigError) as raised:
        load(file, ExperimentFile)
    assert str(raised.value).startswith(str(file))
    assert expected in str(raised.value)


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("lab", "job", "expected"),
    [
        (
            SENSITIVITY,
            {},
            "exp.toml: sensitivity and protocol 'boosting' do not go together: it has no such defence of columns",
        ),
        (
            NOISE,
            {"protocol": "pivodl", "epsilon": 8.0, "delta": 1e-5, "clip": 2.0, "classes": ["0", "1"]},
            "exp.toml: dp_sgd and protocol 'pivodl' do not go together: it has no such defence of columns",
        ),
        (
            NOISE,
            {"protocol": "splitnn", "bottom": {"default": {"kind": "cnn", "channels": [4], "norm": "batch"}}},
            "exp.toml: dp_sgd and norm = 'batch' do not go together: a record has no gradient of its own",
        ),
    ],
)
def test_jobs_without_defences_of_columns(lab: dict[str, Any], job: dict[str, Any], expected: str) -> None:
    """They are refused as the party would, before any process starts."""
    if job.get("protocol") == "splitnn":
        pytest.importorskip("torch", reason="needs treetap[neural]")
    with pytest.raises(ConfigError) as raised:
        check(Path("exp.toml"), _experiment({}, lab, **job), DRAWN, 2)
    assert str(raised.value).startswith(expected)


def test_defences_of_two_parties_that_exclude_each_other() -> None:
    """Neither party's file has both; the experiment's has, and names them before any process starts."""
    cells = {"min_cell_records": 3}
    with pytest.raises(ConfigError, match=r"exp\.toml: min_cell_records and id_lmid do not go together: sums are over"):
        check(Path("exp.toml"), _experiment({"id_lmid": {"xi": 1.0}}, cells), DRAWN, 2)
    allowed = _experiment({"reduced_leakage": {"trees": 1}}, cells)
    check(Path("exp.toml"), allowed, DRAWN, 2)
    assert allowed.min_cell_records == {"lab": 3}
    (said,) = says_of_cells(allowed.of_columns)
    assert said.startswith("No sums of one column of lab in one tree, added or subtracted, are over fewer than 3 drawn")


@pytest.mark.second_tier
def test_sentences_of_columns() -> None:
    """SensFL against an attacker who standardises; noise with the accountant's ε, and what neither covers."""
    pytest.importorskip("torch", reason="needs treetap[neural]")

    def said(lab: dict[str, Any], **job: Any) -> str:
        tables: Any = None  # of trees alone
        found = defended(_experiment({}, lab, protocol="splitnn", **job), tables, {}, _table())
        assert (found.table, found.parties) == ({}, {"lab": lab})
        return " ".join(found.says)

    for words in (
        'SensFL at lab with ε = 0.25, norm "batch": lowers the sensitivity of its embeddings to its columns.',
        "an attacker who standardises embeddings undoes a mere rescaling",
    ):
        assert words in said(SENSITIVITY)
    noised = said(NOISE, epochs=4)
    assert "At lab, DP-SGD with noise 0.5 and clip 1: ε = " in noised
    assert "after 4 epochs" in noised
    assert "does not cover embeddings" in noised
    assert "the noise of lab follows from its seed, which all parties know" in noised
    assert "seed" not in said(NOISE, reproducible=False)


def test_sentences() -> None:
    """A report says which ledger was charged, by whose labels measures are, and which model predictions use."""
    found = " ".join(says(_experiment(ALL).defences, "clinic"))
    for words in (
        "ε = 0.5, stages: 2",
        "a ledger of its own, in clinic/state",
        "by noisy labels",
        "predictions use graf",
    ):
        assert words in found
    paper = says(_experiment({"id_lmid": {"xi": 0.25, "counts": "paper"}}).defences, "clinic")
    assert paper == [
        "ID-LMID: no set of records that is shown exceeds 0.25 nats in Eq. 6 (the records that the tree draws count)."
    ]
    assert says(_experiment({}).defences, "clinic") == []


def _with_workers(**lab: Any) -> ExperimentFile:
    content = _experiment({}).model_dump(mode="json", exclude_unset=True)
    content["party"][1] |= lab
    return ExperimentFile.model_validate(content)


def test_a_partys_cluster_goes_into_its_file(tmp_path: Path) -> None:
    """The file that the experiment writes is that of a party with that cluster; others have none."""
    cluster = {"address": "auto", "workers": 3, "cpus": 0.5, "resources": {"treetap": 1.0}}
    settings = write_tables(_with_workers(engine="ray", workers=2, cluster=cluster), _table(), DRAWN, tmp_path)
    del settings["lab"]["policy"]
    lab = tomllib.loads(to_toml({"name": "lab", "insecure": True, "state": "s", **settings["lab"]}))
    read = PartyConfig.model_validate(lab)
    assert (read.cluster.workers, read.threads, read.cluster.resources) == (3, 2, {"treetap": 1.0})
    assert "engine" not in settings["clinic"]
    with pytest.raises(ValueError, match=r'\[cluster\] is for engine = "ray"'):
        _with_workers(cluster={"address": "auto", "workers": 1})
