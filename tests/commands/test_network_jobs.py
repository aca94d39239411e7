"""Jobs of split networks as files: nested tables, refusals by path, and an experiment on images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap, write
from tests.needs import needs_library_of
from treetap.commands.jobs.job_file import JobFile
from treetap.commands.model.view import card, describe
from treetap.errors import ConfigError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.neural.params import Bottom, SplitnnParams, Top
from treetap.protocols.job_spec import params_of
from treetap.strict import load
from treetap.tables.cells import tensor_column

pytestmark = pytest.mark.second_tier

ROOT = Path(__file__).parents[2]
JOB: dict[str, Any] = {"protocol": "splitnn", "label_holder": "bank", "feature_parties": ["telco"]}


def test_a_job_of_nested_tables(tmp_path: Path) -> None:
    """They reach the job's description as they are; what is not given has its default, and no key is in it."""
    job = {
        **JOB,
        "objective": "multi:softprob",
        "party_dropout": {"telco": 0.1},
        "bottom": {"default": {"kind": "cnn", "channels": [16, 32], "width": 64}, "telco": {"hidden": []}},
        "top": {"hidden": [128]},
    }
    spec = load(write(tmp_path / "job.toml", {"job": job}), JobFile).to_spec()
    assert (spec.key_bits, spec.obfuscation) == (0, "")
    assert params_of(spec) == SplitnnParams(
        objective="multi:softprob",
        party_dropout={"telco": 0.1},
        bottom={"default": Bottom("cnn", channels=(16, 32), width=64), "telco": Bottom()},
        top=Top((128,)),
    )


def test_the_example() -> None:
    """The job of examples/ has every key that is not an alternative, and none that is wrong."""
    spec = load(ROOT / "examples" / "splitnn" / "job.toml", JobFile).to_spec()
    params = params_of(spec)
    assert isinstance(params, SplitnnParams)
    assert params.bottom_of("bank") == Bottom(hidden=(16,), width=8)
    assert params.bottom_of("shop") == Bottom(width=4)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"key_bits": 2048}, "job: key_bits and a network do not go together: a network encrypts nothing"),
        ({"key_bits": 2048, "obfuscation": "standard"}, "obfuscation and a network do not go together"),
        ({"max_bin": 16, "n_estimators": 3}, "protocol 'splitnn' has no parameter n_estimators, max_bin"),
        ({"bottom": {"telco": {"width": 0}, "default": {}}}, r"bottom\.telco\.width must be a whole number in"),
        ({"bottom": {"telco": {"width": "64"}}}, r"job\.bottom\.telco\.width: .*integer"),
        ({"bottom": {"telco": {"kind": "vit"}, "default": {}}}, r"bottom\.telco\.kind must be one of mlp, cnn, resnet"),
        ({"bottom": {"telco": {"kind": "cnn"}, "default": {}}}, r"bottom\.telco\.channels is missing"),
        ({"bottom": {"default": {"hiden": [3]}}}, r"job\.bottom\.default\.hiden: unknown key"),
        ({"bottom": {"kind": "mlp"}}, r"job\.bottom\.kind: a table of keys and values is needed"),
        ({"bottom": {"telco": {}}}, r"bottom\.bank: is missing, and there is no bottom\.default"),
        ({"bottom": {"default": {}, "shop": {}}}, r"bottom\.shop: is not a party of the job \(bank, telco\)"),
        ({"top": {"hidden": [0]}}, r"top\.hidden"),
        ({"party_dropout": {"telco": 1}}, r"party_dropout of telco must be a number in \[0, 1\)"),
        ({"party_dropout": {"bank": 0.5}}, "party_dropout names 'bank', which is not a feature party"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"batch_size": 1}, "batch_size must be a whole number in"),
        ({"wire_type": "float16"}, "wire_type must be one of float32, bfloat16"),
        ({"threads": 0}, "threads must be"),
        ({"reproducible": 1}, r"job\.reproducible: .*boolean"),
    ],
)
def test_a_bad_job(change: dict[str, Any], fault: str, tmp_path: Path) -> None:
    """Each fault has its path; nothing is sent."""
    with pytest.raises(ConfigError, match=fault):
        load(write(tmp_path / "job.toml", {"job": JOB | change}), JobFile).to_spec()


EXPERIMENT = """
[data]
path = "images.parquet"
label = "label"
id = "id"
drop = ["id2"]
compare = true
[[party]]
name = "clinic"
labels = true
record = "received"
columns = ["left"]
[[party]]
name = "lab"
columns = ["right", "size"]
[job]
protocol = "splitnn"
objective = "multi:softprob"
epochs = 2
batch_size = 16
bottom.default = {kind = "cnn", channels = [4], width = 6, norm = "batch"}
bottom.lab = {hidden = [8], width = 6}
top = {hidden = [8]}
party_dropout = {lab = 0.2}
"""


def _images(folder: Path) -> None:
    """Images of three classes: bright on the left, on the right, or neither; the second party has a number too."""
    draw = np.random.default_rng(5)
    classes = np.arange(90) % 3
    cells = draw.integers(0, 60, (90, 6, 8), dtype=np.uint8)
    cells[classes == 0, :, :4] += 120
    cells[classes == 1, :, 4:] += 120
    columns = {"left": cells[..., :4], "right": cells[..., 4:]}
    table = {
        "id": [f"i{number:03d}" for number in range(90)],
        "id2": [0] * 90,
        **{name: tensor_column(each) for name, each in columns.items()},
        "size": draw.normal(size=90),
        "label": [("left", "right", "none")[each] for each in classes],
    }
    pq.write_table(pa.table(table), folder / "images.parquet")


def test_an_experiment_sets_its_seeds_and_policies(tmp_path: Path) -> None:
    """It is reproducible unless it says otherwise; what else differs from a job's defaults it does not touch."""
    needs_library_of("splitnn")
    file = tmp_path / "exp.toml"
    for more, reproducible in (("", True), ("reproducible = false\n", False)):
        file.write_text(EXPERIMENT + more)
        params = load(file, ExperimentFile).job.params()
        assert isinstance(params, SplitnnParams)
        assert params.reproducible is reproducible
    file.write_text(EXPERIMENT.replace("lab = 0.2", "nobody = 0.2"))
    with pytest.raises(ConfigError, match="party_dropout names 'nobody'"):
        load(file, ExperimentFile)


@pytest.mark.xdist_group("experiment")
def test_an_experiment_on_images(tmp_path: Path) -> None:
    """The federation's model is the centralised one, and better than the label holder alone, who has half the image.

    The other party's defence included, which its manifest and the run have. The audit has the gradients and the model
    of the other party, and the accuracies of the run.
    """
    needs_library_of("splitnn")
    _images(tmp_path)
    more = '[predict]\nprotocols = ["splitnn"]\n[defences]\ndimip = {lab = 0.1}\n'
    more += "[audit]\nnetwork = {known = 20, draws = 1}\nfeatures = {matched = 4, match_steps = 5, pictures = 1}\n"
    own = EXPERIMENT.replace("[job]", "[party.defences]\nsensitivity = 0.001\n[job]")
    (tmp_path / "exp.toml").write_text(own + more)
    outcome = treetap("experiment", "exp.toml", "--json", "--workdir", "run", folder=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    (found,) = json.loads(outcome.out)["runs"]
    assert found["predict"]["splitnn"]["max_difference"] == 0.0
    assert found["metrics"]["test"] == found["metrics"]["centralised, test"]
    assert found["metrics"]["test"]["accuracy"] > found["metrics"]["label holder alone, test"]["accuracy"]
    assert found["metrics"]["train"]["loss"] > 0
    assert found["epochs"] == {"planned": 2, "grown": 2, "used": 2}
    assert (found["importance"], found["columns"]["lab"]) == ([], ["right", "size"])
    received = {row["class"]: row["to"] for row in found["traffic"] if row["class"].startswith("EMBEDDING")}
    assert received == {"EMBEDDING": "clinic", "EMBEDDING_GRADIENT": "lab"}
    assert any("DIMIP with λ = 0.1 on lab" in said for said in found["defences"]["says"])
    assert found["defences"]["parties"] == {"lab": {"sensitivity": 0.001}}
    assert any("SensFL at lab with ε = 0.001" in said for said in found["defences"]["says"])
    manifest = json.loads((tmp_path / found["model"]["lab"] / "manifest.json").read_text())
    assert (manifest["sensitivity"], manifest["sensitivity_norm"]) == (0.001, "record")
    assert_audited(found, tmp_path)
    assert_shown({party: tmp_path / path for party, path in found["model"].items()})


def assert_shown(models: dict[str, Path]) -> None:
    """`treetap model` reads what the parties have published: images and sizes, and a card of the label holder's."""
    lab = describe(models["lab"])
    assert lab["inputs"] == ["size", "right"]
    assert [(each["name"], each["weights"]) for each in lab["networks"]] == [("bottom", 25 * 8 + 8 + 8 * 6 + 6)]
    assert describe(models["clinic"])["widths"] == {"lab": 6}
    content = card(models["clinic"], names=True)
    assert (content["own_inputs"], content["epochs"]["trained"]) == (["left"], 2)
    assert "PUBLIC_KEY" not in {each["class"] for each in content["disclosure"]["classes"]}


def assert_audited(found: dict[str, Any], folder: Path) -> None:
    """The run has the attacks' figures, and its report the gain over alone beside them."""
    attacks = found["audit"]["lab"]
    assert {"gradient-clusters", "gradient-labels", "completion"} <= set(attacks)
    assert (attacks["completion"]["evaluated_on"], attacks["completion"]["records"]) == ("own table", 18)
    report = folder / found["audit_report"]
    document = json.loads(report.with_suffix(".json").read_text())
    rows = {"together": "test", "alone": "label holder alone, test", "undefended": "centralised without defences, test"}
    assert {name: document["gain"][name] for name in rows} == {
        name: found["metrics"][row]["accuracy"] for name, row in rows.items()
    }
    columns = found["audit"]["clinic"]["victims"]["lab"]
    assert (columns["auxiliary"], columns["victims"], columns["scored"], columns["epoch"]) == (10, 62, True, 1)
    assert [each["attack"] for each in columns["reconstructions"]] == ["decode", "match", "match-exact"]
    assert [each["name"] for each in columns["attributes"]] == ["size"]
    assert "pictures" not in columns
    assert len(document["parties"]["clinic"]["victims"]["lab"]["pictures"]) == 1
    page = report.read_text()
    assert "What <bdi>clinic</bdi> could read of <bdi>lab</bdi>" in page
    assert "What the federation gains" in page
    assert "DIMIP covers the extractor, and not the log" in page
