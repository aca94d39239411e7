"""Input that cannot be used: the job fails, says whose input and what is wrong, and leaves nothing behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.replay import HERE, JOB, ORACLE, PARAMS, ask, with_word
from tests.simulator import Federation, failed
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.errors import ConfigError, DataError, UnknownJob
from treetap.tables.config import TableConfig
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
Tables = dict[str, tuple[list[str], dict[str, pa.Table]]]
Spoil = Callable[[pa.Table], pa.Table]


def with_column(name: str, values: list[Any]) -> Spoil:
    """The table with a column replaced (its first cells, the rest as they were)."""

    def spoil(table: pa.Table) -> pa.Table:
        column = table.column(name).to_pylist()
        return table.set_column(table.column_names.index(name), name, pa.array(values + column[len(values) :]))

    return spoil


def relabel(label: Callable[[int], Any]) -> Spoil:
    """The table with new labels by row."""
    return lambda table: table.drop_columns("y").append_column("y", pa.array([label(i) for i in range(len(table))]))


def _assert_nothing_left(federation: Federation, *, models: int = 0) -> None:
    for state in federation.states.values():
        assert list((state / "jobs").iterdir()) == []
        assert len(list((state / "models").iterdir())) == models
        assert list(state.rglob("secret*")) == []
        assert list((state / "predictions").iterdir()) == []


async def _assert_left(federation: Federation, job: str) -> None:
    for party in PARTIES:
        with pytest.raises(UnknownJob, match="holds no job"):
            await ask(federation, party, with_word("bin", job=job))


TABLES: dict[str, tuple[str, Spoil, str]] = {
    "other ids": (
        FEATURE,
        with_column("id", ["x1"]),
        r"the ids of feature-b \(16 records\) are not those of label-holder \(16 records, .*train\.parquet\)",
    ),
    "fewer ids": (
        OTHER,
        lambda table: table.slice(1),
        r"the ids of feature-c \(15 records\) are not those of label-holder \(16 records",
    ),
    "an id twice": (
        FEATURE,
        with_column("id", ["r00001", "r00001"]),
        r"feature-b: .*train\.parquet: row 2, column 'id': the id is there already, at row 1",
    ),
    "an id missing": (LABEL_HOLDER, with_column("id", ["a", None]), r"row 2, column 'id': the id is missing"),
    "no id column": (OTHER, lambda t: t.drop_columns("id"), r"feature-c: .*: has no column 'id'"),
    "no such feature": (FEATURE, lambda t: t.drop_columns("b0"), r"feature-b: .*: has no column 'b0'"),
    "no rows": (FEATURE, lambda table: table.slice(0, 0), r"feature-b: .*train\.parquet: has no rows"),
    "an infinite cell": (
        OTHER,
        with_column("c0", [1.0, float("inf")]),
        r"feature-c: .*: row 2, column 'c0': the cell is infinite",
    ),
    "text": (
        FEATURE,
        lambda t: t.set_column(1, "b0", pa.array(["1.5", "", *["blue"] * 14])),
        r"feature-b: .*: row 3, column 'b0': the cell is not a number; encode text columns, by encode = ",
    ),
    "one class": (LABEL_HOLDER, relabel(lambda _: "yes"), r"label column 'y': holds one class only; there is nothing"),
    "three classes": (LABEL_HOLDER, relabel(lambda i: i % 3), r"holds 3 classes; binary:logistic needs two"),
    "a label missing": (
        LABEL_HOLDER,
        relabel(lambda i: i % 2 if i else None),
        r"label column 'y': the label at row 1 is missing",
    ),
    "a label that is NaN": (
        LABEL_HOLDER,
        relabel(lambda i: float(i % 2) if i else float("nan")),
        r"label column 'y': the label at row 1 is missing or infinite",
    ),
}


@pytest.mark.parametrize("case", TABLES)
async def test_a_table_that_cannot_be_used_fails_the_job(case: str, tmp_path: Path) -> None:
    """The operator reads file, row and column, but no id, cell or label; no party keeps anything of the job."""
    party, spoil, message = TABLES[case]

    tables = {name: (columns, dict(content)) for name, (columns, content) in HERE.tables.items()}
    tables[party][1]["train"] = spoil(tables[party][1]["train"])
    federation = Federation(tmp_path, tables)
    status = await federation.train(JOB)
    assert (status.state, status.bad_input) == ("failed", True)
    assert re.search(message, status.error), status.error
    assert not re.search(r"r000|x1|blue|yes|inf\b", status.error)
    _assert_nothing_left(federation)
    await _assert_left(federation, "job")


def _without(config: dict[str, TableConfig], **changes: Any) -> dict[str, TableConfig]:
    return {name: table.model_copy(update=changes) for name, table in config.items()}


CONFIGURED: dict[str, tuple[str, Callable[[dict[str, TableConfig]], dict[str, TableConfig]], str]] = {
    "no such table": (FEATURE, lambda _: {}, "feature-b has no table 'train'; its log lists those that it has"),
    "another table": (
        OTHER,
        lambda tables: {"predict": tables["predict"]},
        "^feature-c has no table 'train'; its log lists those that it has$",
    ),
    "no label column": (
        LABEL_HOLDER,
        lambda tables: _without(tables, label=None),
        r"train\.parquet: the configuration names no label column for this table",
    ),
    "no such file": (
        FEATURE,
        lambda tables: _without(tables, path=Path("/nowhere/train.parquet")),
        r"feature-b: /nowhere/train\.parquet: there is no such file",
    ),
}


@pytest.mark.parametrize("case", CONFIGURED)
async def test_a_configuration_without_the_table_fails_the_job(case: str, tmp_path: Path) -> None:
    """The operator reads which party's configuration lacks what."""
    party, change, message = CONFIGURED[case]

    federation = Federation(tmp_path, HERE.tables)
    config = federation.configs[party]
    federation.configs[party] = config.model_copy(update={"tables": change(dict(config.tables))})
    federation.start(party)
    status = await federation.train(JOB)
    assert (status.state, status.bad_input) == ("failed", True)
    assert re.search(message, status.error), status.error
    _assert_nothing_left(federation)
    await _assert_left(federation, "job")


async def test_a_failed_job_can_be_tried_again_with_better_input(tmp_path: Path) -> None:
    """After the table has been put right, resuming finds the oracle's model."""
    federation = Federation(tmp_path, HERE.tables)
    good = federation.configs[FEATURE]
    federation.configs[FEATURE] = good.model_copy(update={"tables": {}})
    federation.start(FEATURE)
    assert (await federation.train(JOB)).state == "failed"
    federation.configs[FEATURE] = good
    federation.start(FEATURE)
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)


@pytest.mark.second_tier
async def test_more_classes_than_a_plaintext_holds_are_told_before_the_alignment(tmp_path: Path) -> None:
    """Fifteen classes of vector leaves do not fit 1024 bits: the remedies are named; a tree per class does fit."""
    params = replace(PARAMS, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1)
    here = world(60, (1, 1, 1), objective="multi:softprob", classes=15)

    federation = Federation(tmp_path, here.tables)
    failed(
        await federation.train(spec(params, obfuscation="standard")),
        "15 classes of 60 records need",
        "use multi_strategy = 'one_output_per_tree' or a longer key",
        bad_input=True,
    )
    assert {message.word for message in federation.log} <= {"prepare", "leave"}
    _assert_nothing_left(federation)
    await _assert_left(federation, "job")
    other = replace(params, multi_strategy="one_output_per_tree")
    assert (await federation.train(spec(other, obfuscation="standard"), "other")).state == "finished"


SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown party": (
        {"feature_parties": [FEATURE, "bank"]},
        r"the coordinator knows no party 'bank' \(its \[parties\] are: label-holder, feature-b, feature-c\)",
    ),
    "a wrong key size": ({"key_bits": 1000}, r"key_bits = 1000: must be 1024, 2048 or 3072"),
    "an unknown obfuscation": ({"obfuscation": "none"}, r"obfuscation = 'none': must be one of short-exponent"),
    "an unknown alignment": ({"alignment": "guess"}, r"alignment = 'guess': must be one of psi, sorted-ids"),
    "no feature party": ({"feature_parties": []}, r"feature_parties: is empty"),
    "no label holder": ({"aggregator": ""}, r"label_holder: is missing"),
    "a party twice": ({"feature_parties": [FEATURE, FEATURE]}, r"'feature-b' is named twice among the parties"),
    "the label holder twice": ({"feature_parties": [LABEL_HOLDER]}, r"'label-holder' is named twice"),
}


@pytest.mark.parametrize("case", SPECS)
async def test_a_job_that_nobody_could_do_is_not_accepted(case: str, tmp_path: Path) -> None:
    """Submitting says what is wrong at once; no party hears of it and the coordinator does not remember it."""
    changes, message = SPECS[case]

    federation = Federation(tmp_path, HERE.tables)
    with pytest.raises(ConfigError, match=message):
        await federation.train(spec(PARAMS, **changes))
    assert federation.log == []
    assert federation.jobs.status("") == []


@pytest.mark.parametrize("case", [case for case in SPECS if "unknown party" not in case])
async def test_a_party_checks_the_job_itself(case: str, tmp_path: Path) -> None:
    """A coordinator that does not check gains nothing: the party refuses to prepare such a job."""
    changes, message = SPECS[case]

    federation = Federation(tmp_path, HERE.tables)
    request = with_word("prepare")
    request.setup.prepare.spec.CopyFrom(spec(PARAMS, **changes))
    member = next(p for p in (*request.setup.prepare.spec.feature_parties, request.setup.prepare.spec.aggregator) if p)
    with pytest.raises(ConfigError, match=message):
        await ask(federation, member, request)
    _assert_nothing_left(federation)


async def test_every_parameter_out_of_range_is_named(tmp_path: Path) -> None:
    """All faults of a job come in one message."""
    params = BoostingParams(max_depth=0, subsample=1.5, objective="rank:pairwise", learning_rate=-1)

    federation = Federation(tmp_path, HERE.tables)
    with pytest.raises(ConfigError) as caught:
        federation.jobs.submit(jobs_pb2.SubmitRequest(spec=spec(params, key_bits=7)))
    for name in ("key_bits", "max_depth", "subsample", "objective", "learning_rate"):
        assert name in str(caught.value)


async def test_a_sample_without_records_is_a_tree_without_splits(tmp_path: Path) -> None:
    """As in XGBoost the other trees do not suffer from it."""
    federation = Federation(tmp_path, HERE.tables)
    params = replace(PARAMS, subsample=1e-9)
    assert (await federation.train(spec(params, obfuscation="standard"))).state == "finished"
    assert_oracles_model(federation.states, HERE.oracle(params))


async def test_a_fault_that_shows_late_leaves_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is found when the key is on disk already: key and progress are gone afterwards."""

    def late(*_: object) -> None:
        raise DataError("the label holder's table has gone bad")

    monkeypatch.setattr("treetap.party.boosting.label_holder.BoostingRounds.derivatives", late)

    federation = Federation(tmp_path, HERE.tables)
    failed(
        await federation.train(spec(PARAMS, obfuscation="standard")),
        "the label holder's table has gone bad",
        bad_input=True,
    )
    assert "make_keys" in {message.word for message in federation.log}
    _assert_nothing_left(federation)
    await _assert_left(federation, "job")
