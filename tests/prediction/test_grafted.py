"""Predictions by a model whose label holder alone knows the subtrees that decide the values of some leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.grafted import add_grafts, hide_constants, naive_scores, withdraw_leaves
from tests.needs import needs_library_of
from tests.published import write_files
from tests.serving.served import config
from tests.simulator import COORDINATOR, Federation, failed, finished
from tests.worlds import PARTIES, spec, world
from treetap.models.store import REPAIRED, TREES, VALUES, read_model, read_repaired
from treetap.party.prediction.tree_model import DECIDED_ALONE
from treetap.protocols.prediction import predict_request, sent_in_prediction
from treetap.protocols.registry import training
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import prediction_pb2

LABEL_HOLDER, B, C = PARTIES
HERE = world(40, (2, 2, 1), missing=0.1, seed=4)
MODELS: dict[str, TreeParams] = {
    "boosting": BoostingParams(n_estimators=3, max_depth=3, max_bin=6, min_child_weight=0.1),
    "forest": ForestParams(n_estimators=3, max_depth=3, max_bin=6, colsample_bytree=1.0),
}
WAYS: dict[str, dict[str, Any]] = {
    "batched": {"protocol": "interactive"},
    "per-tree": {"protocol": "interactive", "form": "per-tree"},
    "eini": {"protocol": "eini"},
    "eini-lattice": {"protocol": "eini-lattice"},
}
Change = Callable[[Path], None]


def _scores(path: str) -> np.ndarray[Any, Any]:
    table = pq.read_table(path)
    return np.column_stack([table.column(name) for name in table.column_names if name.startswith("score")])


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("model", "change"), [("boosting", add_grafts), ("forest", add_grafts), ("boosting", withdraw_leaves)]
)
async def test_every_way_gives_a_record_the_value_of_its_subtree(model: str, change: Change, tmp_path: Path) -> None:
    """Grafts at inner nodes, leaves and a root, and withdrawn leaves: the scores are those of a naive walk."""
    needs_library_of("eini-lattice")

    federation = Federation(tmp_path, HERE.tables)
    await federation.train(spec(MODELS[model], obfuscation="standard"))
    plain = naive_scores(federation.states, HERE.newcomers)
    change(federation.state(LABEL_HOLDER) / "models" / "job")
    expected = naive_scores(federation.states, HERE.newcomers)
    assert np.abs(expected - plain).max() > 0.1
    for way, asked in WAYS.items():
        status = finished(await federation.predict(predict_request(model="job", **asked)))
        within = 1e-3 if way == "eini-lattice" else 1e-9
        np.testing.assert_allclose(_scores(status.predictions), expected, rtol=0, atol=within, err_msg=way)


async def test_explanations_say_which_values_the_label_holder_decides_alone(tmp_path: Path) -> None:
    """The path is that of the public shape, with a last condition at the leaves that a local subtree replaces."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(spec(MODELS["boosting"], obfuscation="standard"))
    folder = federation.state(LABEL_HOLDER) / "models" / "job"
    add_grafts(folder)
    status = await federation.predict(predict_request(model="job", explain=True))
    roots = [[each["root"] for each in line["grafting"]["local"]] for line in read_repaired(folder)]
    said = 0
    for record in pq.read_table(status.explanations).to_pylist():
        for path in record["paths"]:
            above = {path["leaf"] >> up for up in range(path["leaf"].bit_length())}
            covered = not above.isdisjoint(roots[path["tree"]])
            assert (path["conditions"][-1:] == [DECIDED_ALONE]) == covered
            assert len(path["conditions"]) == path["leaf"].bit_length() - 1 + covered
            said += covered
    assert said > 12


def _refit_only(folder: Path) -> None:
    """Values that repairs have changed, without subtrees."""
    add_grafts(folder)
    manifest, lines = read_model(folder)
    write_files(folder, {**manifest, VALUES: "refit"}, {TREES: lines, REPAIRED: read_repaired(folder)})


#: What is done to the model, what is asked, and what the operator reads.
REFUSED: dict[str, tuple[Change, dict[str, Any], str]] = {
    "attributions": (
        hide_constants,
        {"protocol": "eini", "explain": True, "attributions": True},
        "model job: attributions and a model with a defence that gives leaves values by the label holder's own columns",
    ),
    "degrade": (add_grafts, {"away_policy": "degrade", "away_deadline_s": 3}, "use retry or fail"),
    "served to a feature party": (
        _refit_only,
        {"serve": True},
        "serve.clients names feature-b, a feature party of model job, whose scores depend on the labels that noise hid "
        "from it: take it out",
    ),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", REFUSED)
async def test_what_would_show_private_values_is_refused_before_any_work(case: str, tmp_path: Path) -> None:
    """The label holder refuses to open the model, and no table is aligned."""
    change, asked, reason = REFUSED[case]
    policies = {party: {"emits": {"EXPLANATION": [LABEL_HOLDER]}} for party in PARTIES}

    serve = {LABEL_HOLDER: config(clients=["app", B])}
    federation = Federation(tmp_path, HERE.tables, policies=policies, serve=serve)
    await federation.train(spec(MODELS["boosting"], obfuscation="standard"))
    change(federation.state(LABEL_HOLDER) / "models" / "job")
    trained = len(federation.conducted)
    failed(await federation.predict(predict_request(model="job", **asked)), reason, bad_input=True)
    assert {name_of(request) for _, _, request in federation.conducted[trained:]} <= {
        "open_model",
        "leave",
        "account",
    }


def _other_shape(lines: list[dict[str, Any]]) -> None:
    lines[1]["grafting_refit"]["leaves"].reverse()


def _foreign_split(lines: list[dict[str, Any]]) -> None:
    lines[0]["grafting_refit"]["local"][0]["splits"][0]["owner"] = B


def _fewer(lines: list[dict[str, Any]]) -> None:
    del lines[-1]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_other_shape, "tree 1 has not the shape that all parties know"),
        (_foreign_split, "tree 0: the local subtree at node 1 is none of label-holder's own"),
        (_fewer, "repaired.jsonl has 2 trees, the model 3"),
    ],
)
async def test_repaired_trees_that_are_not_of_this_model_are_named(
    spoil: Callable[[list[dict[str, Any]]], None], reason: str, tmp_path: Path
) -> None:
    """A shape that others do not know, a subtree with splits of others, a missing line."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(spec(MODELS["boosting"], obfuscation="standard"))
    folder = federation.state(LABEL_HOLDER) / "models" / "job"
    add_grafts(folder)
    repaired = read_repaired(folder)
    spoil(repaired)
    manifest, lines = read_model(folder)
    write_files(folder, manifest, {TREES: lines, REPAIRED: repaired})
    failed(await federation.predict(predict_request(model="job")), reason)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("serve", [False, True])
def test_no_prediction_is_sent_to_a_feature_party(way: str, serve: bool) -> None:
    """Of all messages of predictions by trees none carries a prediction to a feature party."""
    asked = predict_request(**WAYS[way])
    opening = prediction_pb2.OpenModel(
        recipient=LABEL_HOLDER, feature_parties=[B, C], alignment="psi", parameters=asked.parameters, serve=serve
    )
    sent = list(sent_in_prediction(opening, COORDINATOR))
    assert sent
    assert [each for each in sent if "PREDICTION" in each.classes and each.receiver != LABEL_HOLDER] == []
    assert (
        set(training("boosting").predicts) == set(training("forest").predicts) == {a["protocol"] for a in WAYS.values()}
    )
