"""Files of jobs and the tables of their parameters.

- Types of values in TOML files: text is no number, true is not 1; whole numbers may stand for real ones.
- Nested tables of a job file, made from the dataclasses of a protocol's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from tests.commands.command import treetap, write
from treetap.commands.jobs.client import OperatorConfig
from treetap.commands.jobs.job_file import JobFile, plain, toml_fields
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.neural.params import Bottom, Top
from treetap.party.config import PartyConfig
from treetap.protocols.job_spec import check_spec, params_of
from treetap.protocols.registry import training, training_name
from treetap.strict import Strict, load
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.v2 import eini_pb2, protocols_pb2

TLS = {"ca": "ca.crt", "certificate": "p.crt", "key": "p.key"}
JOB: dict[str, Any] = {"label_holder": "bank", "feature_parties": ["telco"]}
SIZES: dict[str, Any] = {"records": 9, "columns": {"telco": 5}}


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("learning_rate", "0.5", "number"),
        ("learning_rate", True, "number"),
        ("subsample", True, "number"),
        ("base_score", "0.5", "number"),
        ("missing", "nan", "number"),
        ("max_depth", "3", "integer"),
        ("max_depth", 3.0, "integer"),
        ("n_estimators", True, "integer"),
        ("early_stopping_rounds", "5", "integer"),
        ("seed", False, "integer"),
        ("objective", 1, "string"),
        ("table", 1, "string"),
        ("feature_parties", "telco", r"list of names, such as \[\"telco\"\]"),
        ("key_bits", "2048", "2048 or 3072"),
        ("party_dropout", [0.5], "dictionary"),
        ("key_bits", True, "2048 or 3072"),
    ],
)
def test_wrong_types_of_a_job(key: str, value: object, wanted: str, tmp_path: Path) -> None:
    """A job file's value of another type is refused with its key, and so is an experiment's."""
    fault = rf"job\.{key}: (Input should be|a) .*{wanted}"
    with pytest.raises(ConfigError, match=fault):
        load(write(tmp_path / "job.toml", {"job": {**JOB, key: value}}), JobFile)
    if key not in (*JOB, "table"):
        with pytest.raises(ConfigError, match=fault):
            load(_experiment(tmp_path, job={key: value}), ExperimentFile)


def test_a_forests_job(tmp_path: Path) -> None:
    """A forest's parameters have a forest's defaults, and reach the job's description under its protocol alone."""
    file = write(tmp_path / "job.toml", {"job": {**JOB, "protocol": "forest", "binning": "per-node", "max_depth": 4}})
    spec = load(file, JobFile).to_spec()
    assert training_name(spec) == "forest"
    found = spec.parameters.forest
    assert (found.criterion, found.binning, found.bootstrap) == ("gini", "per-node", False)
    trees = found.trees
    assert (trees.max_depth, trees.subsample, trees.colsample_bytree, found.min_samples_leaf) == (4, 0.8, 0.8, 1)


def test_a_job_that_continues_from_a_model(tmp_path: Path) -> None:
    """It names the model."""
    file = write(tmp_path / "job.toml", {"job": {**JOB, "base_model": "first", "max_sample_weight": 3}})
    spec = load(file, JobFile).to_spec()
    assert (spec.base_model, spec.base_submission) == ("first", "")
    assert params_of(spec).largest_weight == 3


def test_a_job_of_pivodl(tmp_path: Path) -> None:
    """It lists its parties, of which the first is the aggregator, and its parameters have PIVODL's defaults."""
    job = {
        "protocol": "pivodl",
        "parties": ["north", "south", "east"],
        "objective": "multi:softprob",
        "classes": ["no", "mild", "severe"],
        "epsilon": 8,
        "as_published": True,
        "gain_comparison": "secure",
    }
    spec = load(write(tmp_path / "job.toml", {"job": job}), JobFile).to_spec()
    assert (spec.aggregator, list(spec.feature_parties), training_name(spec)) == ("north", ["south", "east"], "pivodl")
    expected = PivodlParams(
        objective="multi:softprob",
        classes=("no", "mild", "severe"),
        epsilon=8.0,
        as_published=True,
        gain_comparison="secure",
    )
    assert params_of(spec).to_dict() == expected.to_dict()


def test_train_says_what_the_noise_covers(tmp_path: Path) -> None:
    """The accountant's figures are printed before the job is submitted, of a job that may have noise alone."""
    job = {"protocol": "pivodl", "parties": ["a", "b", "c"], "epsilon": 8}
    said = treetap("train", write(tmp_path / "job.toml", {"job": job}), folder=tmp_path).out
    assert "epsilon 8, delta 1e-05, clip C 2" in said
    assert "sigma 4.366" in said
    assert not training("boosting").privacy(load(write(tmp_path / "job.toml", {"job": JOB}), JobFile).job.params())


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        # each protocol says which keys name its parties
        ({}, "job: label_holder is missing; feature_parties is missing"),
        ({"protocol": "pivodl"}, "job: parties is missing"),
        ({**JOB, "parties": ["bank"]}, "under label_holder and feature_parties, since one of them has all labels"),
        ({**JOB, "feature_parties": []}, "feature_parties: is empty"),
        # names that no party can find
        *(
            ({**JOB, key: "train_2024"}, f"{key} = 'train_2024' is no name of a table: a name has lower-case letters")
            for key in ("table", "eval_table")
        ),
        ({**JOB, "base_model": "No name"}, "base_model"),
        # a protocol whose trainings cannot continue refuses that with its reason
        (
            {**JOB, "protocol": "forest", "base_model": "first"},
            "base_model and protocol 'forest' do not go together: every training",
        ),
        # a parameter of another protocol
        *(
            ({**JOB, "protocol": protocol, key: value}, f"protocol '{protocol}' has no parameter {key}")
            for protocol, key, value in [
                *[
                    ("forest", key, 0.5)
                    for key in ("learning_rate", "reg_lambda", "gamma", "base_score", "validation_share")
                ],
                *[
                    ("forest", key, 0.5)
                    for key in ("reg_alpha", "max_delta_step", "scale_pos_weight", "max_sample_weight")
                ],
                *[("forest", "early_stopping_rounds", 3), ("forest", "objective", "binary:logistic")],
                *[
                    ("boosting", "criterion", "gini"),
                    ("boosting", "bootstrap", False),
                    ("boosting", "min_samples_leaf", 2),
                ],
                ("boosting", "binning", "global"),
            ]
        ),
        # keys of a scheme
        *(
            (({} if "parties" in change else JOB) | change, re.escape(fault))
            for change, fault in [
                ({"scheme": "elgamal"}, "job.scheme: Input should be 'paillier', 'lattice' or 'auto'"),
                *(
                    ({"scheme": "lattice", "line": line}, "job.line: write a number and bit/s, kbit/s, Mbit/s, Gbit/s")
                    for line in ("fast", "1 Gbit", "1Gbit/s", "0 bit/s", "-1 Mbit/s", "1001 Gbit/s", "\u0661 bit/s")
                ),
                ({"line": "1 Gbit/s"}, "job: line: is of scheme 'lattice' alone; leave it out"),
                ({"protocol": "splitnn", "line": "1 Gbit/s"}, "job: line: is of scheme 'lattice' alone; leave it out"),
                (
                    {"scheme": "auto"},
                    "records, columns: give both, of every feature party; scheme = 'auto' decides by them",
                ),
                ({"columns": {"telco": 5}}, "records, columns: give both"),
                ({"records": 9, "columns": {"bank": 5}}, "records, columns: give both, of every"),
                ({**SIZES, "records": 0}, "job.records: Input should be greater than or equal to 1"),
                ({**SIZES, "columns": {"telco": 0}}, "job.columns.telco: Input should be greater than or equal to 1"),
                ({**SIZES, "scheme": "auto", "protocol": "splitnn"}, "scheme and a network do not go together"),
                ({**SIZES, "scheme": "auto", "n_estimators": 0}, "n_estimators"),
                ({"scheme": "lattice", "key_bits": 2048}, "job: key_bits: scheme 'lattice' has none; leave it out"),
                (
                    {"scheme": "lattice", "obfuscation": "short-exponent"},
                    "job: obfuscation: scheme 'lattice' has none; leave it out",
                ),
                (
                    {"scheme": "lattice", "max_bin": 256},
                    "job: max_bin = 256: must be at most 255 where scheme = 'lattice'",
                ),
                (
                    {"protocol": "pivodl", "parties": ["a", "b"], "scheme": "lattice"},
                    "scheme = 'lattice' and protocol 'pivodl' do not go together: it encrypts no value anew for every "
                    "node",
                ),
                (
                    {"protocol": "splitnn", "scheme": "paillier"},
                    "scheme and a network do not go together: a network encrypts nothing",
                ),
            ]
        ),
        # parties and parameters of PIVODL
        *(
            ({"protocol": "pivodl", "parties": ["a", "b", "c"], **change}, fault)
            for change, fault in [
                ({"parties": ["a"]}, r"parties: are 1; a job of protocol 'pivodl' has 2 to 10"),
                ({"parties": []}, r"parties: are 0; a job of protocol 'pivodl' has 2 to 10"),
                ({"parties": [f"p{i}" for i in range(11)]}, r"parties: are 11; a job of protocol 'pivodl' has 2 to 10"),
                ({"parties": ["a", "b", "a"]}, "'a' is named twice among the parties"),
                (
                    {"label_holder": "a"},
                    "names its parties under parties, since each may have labels; remove label_holder",
                ),
                ({"parties": "a"}, r"list of names, such as \[\"a\"\]"),
                ({"epsilon": 0}, r"epsilon must be a number in"),
                ({"epsilon": -1}, r"epsilon must be a number in"),
                ({"delta": 0}, r"delta must be a number in \(0, 1\)"),
                ({"clip": 0}, "clip must be"),
                ({"instance_threshold": 0}, "instance_threshold must be a whole number"),
                ({"classes": ["0", "1", "2"]}, "classes must be two for binary:logistic, not 3"),
                ({"classes": [0, 1]}, r"job\.classes.*Input should be a valid string"),
                ({"min_child_weight": 1}, "protocol 'pivodl' has no parameter min_child_weight"),
                ({"gain_comparison": "shown"}, "gain_comparison must be one of announce, secure"),
            ]
        ),
    ],
)
def test_a_fault_of_a_job_is_told_before_anything_is_sent(job: dict[str, Any], fault: str, tmp_path: Path) -> None:
    """Each by its key, and with the protocol that does not have it."""
    with pytest.raises(ConfigError, match=fault):
        load(write(tmp_path / "job.toml", {"job": job}), JobFile).to_spec()


@pytest.mark.parametrize("protocol", ["boosting", "forest"])
def test_party_dropout(protocol: str, tmp_path: Path) -> None:
    """A table of feature parties and shares reaches the job's description; others than feature parties are refused."""
    table = f'protocol = "{protocol}"\nlabel_holder = "bank"\nfeature_parties = ["telco", "shop"]\n'

    def job(dropout: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(f"[job]\n{table}party_dropout = {dropout}\n")
        return path

    spec = load(job("{ shop = 0.25, telco = 0 }"), JobFile).to_spec()
    assert params_of(spec).party_dropout == {"shop": 0.25, "telco": 0.0}
    for name in ("bank", "nobody"):
        with pytest.raises(ConfigError, match=f"party_dropout names '{name}', which is not a feature party of the job"):
            load(job(f"{{ {name} = 0.25 }}"), JobFile).to_spec()
    with pytest.raises(ConfigError, match=r"party_dropout of telco must be a number in \[0, 1\), not 1\.0"):
        load(job("{ telco = 1 }"), JobFile)


def test_party_dropout_of_an_experiment(tmp_path: Path) -> None:
    """A name that is no feature party is a fault of the file."""

    def experiment(name: str) -> Path:
        file = _experiment(tmp_path)
        file.write_text(f"{file.read_text()}\nparty_dropout = {{ {name} = 0.5 }}\n")
        return file

    assert load(experiment("telco"), ExperimentFile).job.party_dropout == {"telco": 0.5}
    for name in ("bank", "nobody"):
        with pytest.raises(ConfigError, match=f"party_dropout names '{name}'"):
            load(experiment(name), ExperimentFile)


def test_a_description_without_parameters_of_a_training_is_refused(tmp_path: Path) -> None:
    """Whoever calls the coordinator without a job file is held to the same."""
    spec = load(write(tmp_path / "job.toml", {"job": {**JOB, "protocol": "forest"}}), JobFile).to_spec()
    for nothing in (protocols_pb2.Parameters(), protocols_pb2.Parameters(eini=eini_pb2.EiniParams())):
        spec.parameters.CopyFrom(nothing)
        with pytest.raises(ConfigError, match="must be one of boosting, forest"):
            check_spec(spec)


def test_whole_numbers_are_real_ones_too(tmp_path: Path) -> None:
    """1 may stand for 1.0."""
    file = write(tmp_path / "job.toml", {"job": {**JOB, "learning_rate": 1, "missing": -1}})
    job = load(file, JobFile).job
    assert (job.learning_rate, job.missing) == (1.0, -1.0)
    assert isinstance(job.learning_rate, float)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": {"test_share": "0.5"}}, r"data\.test_share: "),
        ({"data": {"seed": True}}, r"data\.seed"),
        ({"data": {"path": 5}}, r"data\.path: "),
        ({"data": {"drop": "row"}}, r"data\.drop: "),
        ({"party": {"share": "1.0"}}, r"party\.\[2\]\.share: "),
        ({"party": {"labels": 0}}, r"party\.\[2\]\.labels: "),
        ({"party": {"workers": "2"}}, r"party\.\[2\]\.workers: "),
    ],
)
def test_wrong_types_of_an_experiment(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """The tables `[data]` and `[[party]]` are as strict."""
    load(_experiment(tmp_path), ExperimentFile)
    with pytest.raises(ConfigError, match=expected):
        load(_experiment(tmp_path, **changes), ExperimentFile)


@pytest.mark.parametrize(
    ("schema", "changes", "expected"),
    [
        (PartyConfig, {"workers": "2"}, "workers: "),
        (PartyConfig, {"workers": True}, "workers: "),
        (PartyConfig, {"silence_s": "60"}, "silence_s: "),
        (PartyConfig, {"state": 5}, r"state: a path is text \(it is 5\)"),
        (PartyConfig, {"data": 5}, r"data: a path is text \(it is 5\)"),
        (PartyConfig, {"tls": {**TLS, "key": False}}, r"tls\.key: a path is text \(it is False\)"),
        (PartyConfig, {"name": 7}, "name: "),
        (CoordinatorConfig, {"silence_s": True}, "silence_s: "),
        (CoordinatorConfig, {"operators": "operator"}, "operators: "),
        (CoordinatorConfig, {"parties": {"bank": 7101}}, r"parties\.bank: "),
        (OperatorConfig, {"coordinator": 7100}, "coordinator: "),
    ],
)
def test_wrong_types_of_a_configuration(
    schema: type[BaseModel], changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """So are the files of party, coordinator and operator; without the change each is accepted."""
    good: dict[type[BaseModel], dict[str, Any]] = {
        PartyConfig: {"name": "bank", "state": "state", "data": "lists", "silence_s": 5, "tls": TLS},
        CoordinatorConfig: {"state": "state", "parties": {"bank": "127.0.0.1:1"}, "silence_s": 5, "tls": TLS},
        OperatorConfig: {"coordinator": "127.0.0.1:1", "tls": TLS},
    }
    read = load(write(tmp_path / "good.toml", good[schema]), schema)
    assert read.model_dump()["tls"]["ca"] == Path("ca.crt")
    with pytest.raises(ConfigError, match=expected):
        load(write(tmp_path / "bad.toml", good[schema] | changes), schema)


def _experiment(folder: Path, **changes: dict[str, Any]) -> Path:
    data = {"path": "t.csv", "label": "y"} | changes.get("data", {})
    other = {"name": "telco", "share": 1} | changes.get("party", {})
    text = "".join(
        f"\n{header}\n{body.read_text()}"
        for header, body in (
            ("[data]", write(folder / "data.part", data)),
            ("[[party]]", write(folder / "bank.part", {"name": "bank", "labels": True, "columns": ["a"]})),
            ("[[party]]", write(folder / "other.part", other)),
            ("[job]", write(folder / "job.part", changes.get("job", {}))),
        )
    )
    return write(folder / "exp.toml", text)


def test_the_scheme_of_a_job(tmp_path: Path) -> None:
    """Paillier unless the file names another, which reaches the job's description; so does an experiment's.

    A lattice has no key, hence no length of one, in the description and in an experiment's record.
    """
    keys = {"paillier": (2048, "short-exponent"), "lattice": (0, "")}
    for scheme, key in keys.items():
        job = JOB if scheme == "paillier" else {**JOB, "scheme": scheme}
        spec = load(write(tmp_path / "job.toml", {"job": job}), JobFile).to_spec()
        assert (spec.scheme, spec.key_bits, spec.obfuscation) == (scheme, *key)
        assert spec.line == (10**9 if scheme == "lattice" else 0)
    of_experiment = load(_experiment(tmp_path, job={"scheme": scheme}), ExperimentFile).job
    assert of_experiment.scheme == scheme
    assert of_experiment.key_by_name == {"scheme": scheme}


@dataclass(frozen=True)
class Inner:
    """A table in which a key is needed."""

    size: int
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outer:
    """Tables by name, a table, and plain values."""

    parts: Mapping[str, Inner] = field(default_factory=dict)
    bottom: Mapping[str, Bottom] = field(default_factory=dict)
    top: Top = field(default_factory=Top)
    rate: float | None = None


FILE = create_model("FILE", __base__=Strict, **{name: (kind | None, None) for name, kind in toml_fields(Outer).items()})  # type: ignore[call-overload]


def _read(folder: Path, text: str) -> Outer:
    found = load(write(folder / "p.toml", text), FILE)
    return Outer(**{name: plain(getattr(found, name)) for name in found.model_fields_set})


def test_tables_become_dataclasses(tmp_path: Path) -> None:
    """Inline tables, dotted keys and headers alike; lists become tuples, and what is not given has its default."""
    assert _read(tmp_path, "") == Outer()
    inline = _read(
        tmp_path,
        'rate = 1\nbottom.default = {kind = "cnn", channels = [16, 32], norm = "batch"}\n'
        "bottom.feature-b = {hidden = [64]}\ntop = {hidden = []}\nparts = {a = {size = 3, shares = [1, 0.5]}}\n",
    )
    assert inline == Outer(
        {"a": Inner(3, (1.0, 0.5))},
        {"default": Bottom("cnn", channels=(16, 32), norm="batch"), "feature-b": Bottom(hidden=(64,))},
        Top(),
        1.0,
    )
    assert _read(tmp_path, "[bottom.default]\nwidth = 7\n[top]\nhidden = [3, 4]\n") == Outer(
        bottom={"default": Bottom(width=7)}, top=Top((3, 4))
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("bottom.default = {depth = 3}", r"bottom\.default\.depth: unknown key"),
        ('bottom.feature-b = {width = "32"}', r"bottom\.feature-b\.width: .*integer, without quotes \(it is '32'\)"),
        ("bottom.b.hidden = [64, 1.5]", r"bottom\.b\.hidden\.\[2\]: .*integer \(it is 1\.5\)"),
        ("bottom.b.hidden = 64", r"bottom\.b\.hidden: .*list \(it is 64\)"),
        ('bottom = {kind = "mlp"}', r"bottom\.kind: a table of keys and values is needed \(it is 'mlp'\)"),
        ("bottom = 3", r"bottom: .*dictionary \(it is 3\)"),
        ("top = [64]", r"top: a table of keys and values is needed"),
        ("bottom.'A B' = {}", r"bottom\.A B"),
        ("parts.a = {shares = [true]}", r"parts\.a\.size: is missing"),
        ("parts.a = {size = 1, shares = [true]}", r"parts\.a\.shares\.\[1\]: .*number"),
    ],
)
def test_faults_have_their_path(text: str, fault: str, tmp_path: Path) -> None:
    """Unknown and missing keys, other types and names that no party has."""
    with pytest.raises(ConfigError, match=fault):
        _read(tmp_path, text)
