"""`[defences]` and `[party.defences]` of an experiment: who gets them, which jobs are refused, what the report says."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from treetap.errors import ConfigError
from treetap.lab.experiment.baselines import Comparison, check, defended, says, says_of_cells
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import ID, Split
from treetap.lab.experiment.party_tables import write_tables
from treetap.lab.local_federation import to_toml
from treetap.party.defences.settings import Defences
from treetap.strict import load

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


@pytest.mark.parametrize("defences", [{"id_lmid": {"xi": math.inf}}, {"id_lmid": {"xi": 0.5}}, ALL, GRADIENTS])
def test_a_partys_file_has_them_as_they_were_given(defences: dict[str, Any]) -> None:
    """Also a limit that forbids nothing, which JSON's numbers lack."""
    given = Defences(**defences)
    written = tomllib.loads(to_toml({"defences": given.model_dump(exclude_defaults=True)}))
    assert Defences(**written["defences"]) == given


def test_only_the_label_holder_has_them(tmp_path: Path) -> None:
    """The table goes into the label holder's own configuration; without defences there is none."""
    table = _table()
    settings = write_tables(_experiment(ALL), table, DRAWN, tmp_path)
    assert settings["clinic"]["defences"] == ALL
    assert "defences" not in settings["lab"]
    assert all("defences" not in each for each in write_tables(_experiment({}), table, DRAWN, tmp_path).values())


OF_SPREAD_LABELS = {"protocol": "pivodl", "epsilon": 8.0, "delta": 1e-5, "clip": 2.0, "classes": ["0", "1"]}
BATCHES = {"default": {"kind": "cnn", "channels": [4], "norm": "batch"}}
#: `[defences]`, `[party.defences]` of lab, a job, and why they do not go together.
APART: list[tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any], str]] = [
    (
        {"id_lmid": {"xi": 0.5}},
        None,
        {"objective": "reg:squarederror"},
        "id_lmid and a regression do not go together",
    ),
    (ALL, None, {"objective": "reg:squarederror"}, "grafting and a regression do not go together"),
    ({"id_lmid": {"xi": 0.5}}, None, OF_SPREAD_LABELS, "id_lmid and protocol 'pivodl' do not go together"),
    (GRADIENTS, None, {}, "gradient and protocol 'boosting' do not go together"),
    (
        ALL,
        None,
        {"protocol": "splitnn"},
        "grafting and protocol 'splitnn' do not go together: it has no such defence of labels",
    ),
    (
        {"dimip": {"clinic": 0.3}},
        None,
        {"protocol": "splitnn"},
        "dimip of clinic under [defences]: the feature parties of the job are lab",
    ),
    (
        {},
        SENSITIVITY,
        {},
        "sensitivity and protocol 'boosting' do not go together: it has no such defence of columns",
    ),
    (
        {},
        NOISE,
        OF_SPREAD_LABELS,
        "dp_sgd and protocol 'pivodl' do not go together: it has no such defence of columns",
    ),
    (
        {},
        NOISE,
        {"protocol": "splitnn", "bottom": BATCHES},
        "dp_sgd and norm = 'batch' do not go together: a record has no gradient of its own",
    ),
]


@pytest.mark.parametrize(("defences", "lab", "job", "expected"), APART)
def test_jobs_without_such_defences(
    defences: dict[str, Any], lab: dict[str, Any] | None, job: dict[str, Any], expected: str
) -> None:
    """They are refused by name, as the parties would, before any process starts."""
    if job.get("protocol") == "splitnn":
        pytest.importorskip("torch", reason="needs treetap[neural]")
        check(Path("exp.toml"), _experiment(GRADIENTS, protocol="splitnn"), DRAWN, 2)
    with pytest.raises(ConfigError) as raised:
        check(Path("exp.toml"), _experiment(defences, lab, **job), DRAWN, 2)
    assert str(raised.value).startswith("exp.toml: ")
    assert expected in str(raised.value)


@pytest.mark.second_tier
def test_a_feature_party_may_have_an_optimiser_of_its_own(tmp_path: Path) -> None:
    """In its own file, of networks alone; the centralised model, which has the job's, is no measure of such a run."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    plain = _experiment({}, protocol="splitnn").model_dump(exclude_unset=True)

    def amplified(party: int, **job: Any) -> ExperimentFile:
        parties = [{**each, "optimizer": "amplified"} if k == party else each for k, each in enumerate(plain["party"])]
        return ExperimentFile.model_validate({**plain, "party": parties, "job": {**plain["job"], **job}})

    table = _table()
    settings = write_tables(amplified(1, batch_size=4), table, DRAWN, tmp_path)
    assert settings["lab"]["optimizer"] == "amplified"
    assert "optimizer" not in settings["clinic"]
    held_out = table.take(pa.array(DRAWN.test))
    assert not Comparison(amplified(1, batch_size=4), settings, 0, held_out).comparable
    with pytest.raises(ValidationError, match="optimizer of clinic: is of a feature party; leave it out"):
        amplified(0)
    with pytest.raises(ValidationError, match="optimizer of lab: protocol 'boosting' trains by none; leave it out"):
        ExperimentFile.model_validate({**amplified(1).model_dump(exclude_unset=True), "job": {"protocol": "boosting"}})


def _table() -> pa.Table:
    cells = {"a": range(10), "b": [k * k for k in range(10)], "y": [k % 2 for k in range(10)]}
    return pa.table({ID: [str(k) for k in range(10)], **cells})


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


def test_defences_of_two_parties_that_exclude_each_other() -> None:
    """Neither party's file has both; the experiment's has, and names them before any process starts."""
    cells = {"min_cell_records": 3}
    with pytest.raises(ConfigError, match=r"exp\.toml: min_cell_records and id_lmid do not go together: sums are over"):
        check(Path("exp.toml"), _experiment({"id_lmid": {"xi": 1.0}}, cells), DRAWN, 2)
    allowed = _experiment({"reduced_leakage": {"trees": 1}}, cells)
    check(Path("exp.toml"), allowed, DRAWN, 2)
    assert allowed.min_cell_records == {"lab": 3}
    (said,) = says_of_cells(allowed.min_cell_records)
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
