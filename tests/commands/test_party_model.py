"""`treetap model` where all parties have one role: what one of them holds, shows and publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.command import refused, treetap
from tests.published import write_job, write_trees
from treetap.commands.model.view import card, describe, page, print_model
from treetap.models.store import MODEL_FORMAT
from treetap.trees.pivodl_params import PivodlParams

PARTIES = ["north", "south", "east"]
SPLIT = {"handle": 0, "node": 1, "feature": 1, "bin": 2, "threshold": 0.53125, "missing_left": False}
#: South split the root, which north opened; north split node 3, which south opened: south keeps those two weights.
LINE = {
    "tree": 0,
    "splits": [SPLIT],
    "nodes": [
        {"node": 1, "source": "south", "handle": 0, "opener": "north"},
        {"node": 3, "source": "north", "handle": 4, "opener": "south"},
    ],
    "leaves": [{"node": 2, "keeper": "north"}, {"node": 6, "keeper": "south"}, {"node": 7, "keeper": "south"}],
    "weights": [
        {"node": 6, "source": "north", "handle": 4, "left": True, "weight": [-0.3125]},
        {"node": 7, "source": "north", "handle": 4, "left": False, "weight": [0.71875]},
    ],
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """South's shard of a model of one tree with noise."""
    params = PivodlParams(n_estimators=1, max_depth=2, epsilon=8.0).to_dict()
    folder = tmp_path / "models" / "job"
    folder.mkdir(parents=True)
    manifest: dict[str, Any] = {
        "version": MODEL_FORMAT,
        "job_digest": "d",
        "categories": {},
        "role": "party",
        "job": "job",
        "party": "south",
        "protocol": "pivodl",
        "aggregator": "north",
        "parties": PARTIES,
        "objective": "binary:logistic",
        "classes": ["no", "yes"],
        "columns": ["age", "dose"],
        "params": params,
        "training_metrics": {"train_logloss": 0.5},
        "labelled_records": 12,
    }
    write_job(folder, "nonce")
    write_trees(folder, manifest, [LINE])
    return folder


def test_a_party_sees_who_splits_and_who_keeps_weights(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes of trees, importances by splits, keepers of leaf weights, and what the noise covers."""
    found = describe(model)
    assert found["trees"] == {"stored": 1, "used": 1, "leaves": 3, "depth": 2}
    assert found["weights"] == {"south": 2, "north": 1}
    assert found["importance"] == {
        "parties": [{"name": "south", "weight": 1}, {"name": "north", "weight": 1}],
        "own_features": [{"name": "dose", "weight": 1}],
    }
    print_model(found)
    printed = capsys.readouterr().out
    for part in (
        "parties: north, south, east",
        "train_logloss 0.5",
        "labelled records: 12",
        "weights: south 2, north 1",
    ):
        assert part in printed
    assert "epsilon 8, delta 1e-05" in printed


def test_its_card(model: Path, tmp_path: Path) -> None:
    """Any party may export: topology, keepers and the privacy statement, no threshold, weight or feature name."""
    assert treetap("model", "export", model, "--out", tmp_path / "card").status == 0
    texts = [(tmp_path / "card" / name).read_text() for name in ("model.json", "model.html")]
    found = json.loads(texts[0])
    assert found == card(model, names=False)
    assert found["parties"] == {"parties": PARTIES}
    assert found["topology"][0]["keepers"] == ["north", "south", "south"]
    assert found["topology"][0]["splits"][1] == {"node": 3, "owner": "north", "handle": 4, "opener": "south"}
    assert found["privacy"] == describe(model)["privacy"]
    for text in texts:
        assert not any(secret in text for secret in ("0.53125", "0.3125", "0.71875", "dose", '"no"'))
    assert "leaf 6, weight at south" in texts[1]
    assert "Partial differential privacy of leaf weights: epsilon 8" in texts[1]
    assert "feature of south" in page(card(model, names=True))


def test_a_misleading_shard(model: Path) -> None:
    """Leaves that make no tree, and splits that nobody has opened, are refused."""
    manifest = json.loads((model / "manifest.json").read_text())
    write_trees(model, manifest, [{**LINE, "leaves": LINE["leaves"][:2]}])
    assert "its nodes make no tree" in refused(treetap("model", "show", model))
    nodes = [{key: value for key, value in row.items() if key != "opener"} for row in LINE["nodes"]]
    write_trees(model, manifest, [{**LINE, "nodes": nodes}])
    said = refused(treetap("model", "export", model, "--out", model / "card"))
    assert "is not a model that this command can read (KeyError('opener'))" in said
