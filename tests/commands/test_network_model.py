"""`treetap model` of networks: inputs, layers and sizes for the party itself; a card without weights and scalers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.published import write_job, write_manifest
from treetap.commands.model.view import card, describe, page, print_model
from treetap.errors import BadInput, DataError
from treetap.models.store import MODEL_FORMAT, WEIGHTS

#: A weight and a mean that no output but the party's own may have.
SECRET, MEAN = 0.123456789, 40.25
SCALER = {"columns": ["age", "income"], "mean": [MEAN, 7.0], "deviation": [2.5, 1.0], "indicated": [1]}
PIXELS = {"scan": {"shape": [1, 4, 5], "mean": [0.5], "deviation": [0.25]}}
BOTTOM = {"kind": "mlp", "hidden": [3], "channels": [], "blocks": [], "width": 2, "norm": "group"}


def _network(folder: Path, role: str, **changes: Any) -> Path:
    """A published network of bank (label holder) and telco, at one of them."""
    own = {"bottom/linear0.weight": np.full((3, 23), SECRET, dtype=np.float32), "bottom/linear0.bias": np.zeros(3)}
    arrays = {**own, **({"top/linear0.weight": np.full((1, 4), SECRET)} if role == "label_holder" else {})}
    common = {
        "version": MODEL_FORMAT,
        "job_digest": "d",
        "job": "net",
        "protocol": "splitnn",
        "role": role,
        "epochs": 5,
        "inputs": {**SCALER, "images": PIXELS},
        "bottom": BOTTOM,
        "wire_type": "bfloat16",
        "threads": 1,
        "reproducible": True,
    }
    own_part = {"party": "telco", "label_holder": "bank", "amplified": False}
    if role == "label_holder":
        own_part = {
            "party": "bank",
            "feature_parties": ["telco"],
            "objective": "binary:logistic",
            "classes": ["no", "yes"],
            "top": {"hidden": []},
            "widths": {"telco": 2},
            "params": {"epochs": 5, "objective": "binary:logistic", "party_dropout": {"telco": 0.1}},
            "training_metrics": {"loss": 0.5, "auc": None},
            "best_epoch": 3,
        }
    folder.mkdir()
    np.savez(folder / WEIGHTS, **arrays)
    write_job(folder, "submission")
    files = {WEIGHTS: hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()}
    write_manifest(folder, {**common, **own_part, **changes, "files": files})
    return folder


def test_a_party_sees_its_inputs_and_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inputs by name, layers with shapes; at the label holder the top and the widths too."""
    found = describe(_network(tmp_path / "bank", "label_holder"))
    assert found["inputs"] == ["age", "income", "scan"]
    assert [(each["name"], each["weights"]) for each in found["networks"]] == [("bottom", 72), ("top", 4)]
    assert found["networks"][0]["layers"]["linear0.weight"] == [3, 23]
    print_model(found)
    shown = capsys.readouterr().out
    for said in ("widths: telco 2", "best epoch: 3", "loss 0.5", "auc not set", "party_dropout telco 0.1", "name top"):
        assert said in shown
    print_model(describe(_network(tmp_path / "telco", "feature_party")))
    shown = capsys.readouterr().out
    for said in ("label holder: bank", "epochs: 5", "wire type: bfloat16", "reproducible: True", "3, 23", "scan"):
        assert said in shown
    assert "name top" not in shown


def test_a_label_holder_without_columns(tmp_path: Path) -> None:
    """It has no model of its own: the top alone is shown."""
    folder = _network(tmp_path / "bank", "label_holder")
    np.savez(folder / WEIGHTS, **{"top/linear0.weight": np.zeros((1, 2))})
    manifest = json.loads((folder / "manifest.json").read_text())
    nothing = {"columns": [], "mean": [], "deviation": [], "indicated": [], "images": {}}
    files = {WEIGHTS: hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()}
    write_manifest(folder, {**manifest, "inputs": nothing, "files": files})
    assert [each["name"] for each in describe(folder)["networks"]] == ["top"]


def test_the_card_has_no_weight_and_no_scaler(tmp_path: Path) -> None:
    """It has the settings that all parties know and the top's layers; names of inputs only if they are asked for."""
    folder = _network(tmp_path / "bank", "label_holder")
    for names in (False, True):
        content = card(folder, names=names)
        text, html = json.dumps(content), page(content).partition("</style>")[2]
        for secret in (f"{SECRET:.4f}", str(MEAN), "69", "[3, 23]"):  # 69, 23: from the number of inputs
            assert secret not in text
            assert secret not in html
        assert ("income" in text, "income" in html, "scan" in html) == (names, names, names)
        assert [each["name"] for each in content["networks"]] == ["bottom", "top"]
        assert content["epochs"] == {"trained": 5, "best": 3}
        assert "epoch 4 of 5 used" in html
        assert "<h2>Trees</h2>" not in html
    with pytest.raises(BadInput, match="is a feature party's part of a model"):
        card(_network(tmp_path / "telco", "feature_party"), names=False)


def test_faults(tmp_path: Path) -> None:
    """A manifest that does not fit and weights that were changed are named."""
    folder = _network(tmp_path / "bank", "label_holder")
    with pytest.raises(DataError, match=r"short: is not a model that this command can read \(KeyError"):
        describe(_network(tmp_path / "short", "feature_party", inputs={"columns": ["age"]}))
    np.savez(folder / WEIGHTS, **{"top/linear0.weight": np.zeros((1, 2))})
    with pytest.raises(DataError, match="is not the file that was published"):
        describe(folder)
