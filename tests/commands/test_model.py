"""Models as the commands show them.

- `treetap model`: what a party sees of its model, what it publishes, and that nothing else is in the card.
- `treetap model` where all parties have one role: what one of them holds, shows and publishes.
- `treetap model` of networks: inputs, layers and sizes for the party itself; a card without weights and scalers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.commands.command import refused, treetap, write
from tests.grafted import add_grafts, withdraw_leaves
from tests.published import write_job, write_manifest, write_trees
from treetap.commands.model.view import card, describe, find, page, print_model
from treetap.errors import BadInput, DataError
from treetap.models.store import MODEL_FORMAT, WEIGHTS, read_model
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.disclosure import CLASSES
from treetap.wire.transcript import HEADER
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import boosting_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

ROOT = Path(__file__).parent.parent.parent
BANK, TELCO = (ROOT / "tests" / "library" / "models" / f"v{MODEL_FORMAT}" / party for party in ("bank", "telco"))
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
#: A weight and a mean that no output but the party's own may have.
SECRET, MEAN = 0.123456789, 40.25
SCALER = {"columns": ["age", "income"], "mean": [MEAN, 7.0], "deviation": [2.5, 1.0], "indicated": [1]}
PIXELS = {"scan": {"shape": [1, 4, 5], "mean": [0.5], "deviation": [0.25]}}
BOTTOM = {"kind": "mlp", "hidden": [3], "channels": [], "blocks": [], "width": 2, "norm": "group"}


def _changed(folder: Path, **manifest: Any) -> Path:
    """The bank's model with other things in its manifest."""
    copy = Path(shutil.copytree(BANK, folder / "model"))
    content = json.loads((copy / "manifest.json").read_text())
    write_manifest(copy, content | manifest)
    return copy


class _Page(HTMLParser):
    """Collects tags, what they refer to, and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [str(value) for name, value in attributes if name in ("src", "href", "srcset", "action")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_label_holder_sees_importances_and_sizes() -> None:
    """Of the trees that all parties know; importances of parties and of own features add up."""
    found = describe(BANK)
    assert found["trees"] == {"stored": 3, "used": 3, "leaves": 18, "depth": 3}
    parties = {row["name"]: row for row in found["importance"]["parties"]}
    own = found["importance"]["own_features"]
    assert (parties["bank"]["weight"], parties["telco"]["weight"]) == (9, 6)
    assert sum(row["total_gain"] for row in own) == pytest.approx(parties["bank"]["total_gain"])
    assert [row["name"] for row in own] == ["income", "age"]


def test_importances_are_those_of_the_trees_used(tmp_path: Path) -> None:
    """With early stopping the trees after the best round count for nothing."""
    found = describe(_changed(tmp_path, best_round=0))
    assert (found["trees"]["used"], found["trees"]["stored"]) == (1, 3)
    assert {row["name"]: row["weight"] for row in found["importance"]["parties"]} == {"telco": 2, "bank": 3}


def test_a_feature_party_sees_how_often_its_features_split() -> None:
    """No gain, weight or foreign split is there to be shown."""
    found = describe(TELCO)
    assert found["importance"] == {
        "own_features": [{"name": name, "weight": 2} for name in ("basket", "calls", "city")]
    }
    assert found["trees"] == {"stored": 3, "leaves": 18}


def test_show_from_the_command_line(tmp_path: Path) -> None:
    """By folder and by name and configuration; JSON; text."""
    (tmp_path / "state" / "models").mkdir(parents=True)
    shutil.copytree(BANK, tmp_path / "state" / "models" / "credit")
    config = write(tmp_path / "bank.toml", {"name": "bank", "state": "state", "insecure": True})
    by_name = treetap("model", "show", "credit", "--config", config, "--json")
    assert (by_name.status, by_name.err) == (0, "")
    assert json.loads(by_name.out) == describe(BANK)
    text = treetap("model", "show", BANK)
    assert text.status == 0
    for part in ("feature parties: telco", "max_depth 3", "income", "train_auc 0.9004", "stored 3, used 3, leaves 18"):
        assert part in text.out


def test_what_cannot_be_shown_or_exported(tmp_path: Path) -> None:
    """One message with the remedy, status 2."""
    assert "there is no published model; name" in refused(treetap("model", "show", tmp_path))
    assert "is a feature party's part" in refused(treetap("model", "export", TELCO, "--out", tmp_path / "card"))
    (tmp_path / "file").write_text("")
    assert "--out" in refused(treetap("model", "export", BANK, "--out", tmp_path / "file"))
    newer = _changed(tmp_path, version=9)
    assert "is a model of format 9" in refused(treetap("model", "show", newer))
    shutil.rmtree(newer)
    lacking = Path(shutil.copytree(BANK, tmp_path / "lacking"))
    write_manifest(lacking, json.loads((lacking / "manifest.json").read_text()) | {"columns": []})
    assert "is not a model that this command can read" in refused(treetap("model", "show", lacking))


def test_the_card_holds_what_may_be_published_and_no_more(tmp_path: Path) -> None:
    """No threshold, leaf weight, margin, gain of a split, class value or feature name in either file."""
    assert treetap("model", "export", BANK, "--out", tmp_path / "card").status == 0
    files = [(tmp_path / "card" / name).read_text() for name in ("model.json", "model.html")]
    found = json.loads(files[0])
    assert found == card(BANK, names=False)
    assert found["topology"][0]["splits"][0] == {"node": 1, "owner": "bank", "handle": 0}
    assert found["parties"] == {"label_holder": "bank", "feature_parties": ["telco"]}
    lines = read_model(BANK)[1]
    secret = [weight for line in lines for leaf in line["tree"]["leaves"] for weight in leaf["weights"]]
    secret += [split[key] for line in lines for split in line["tree"]["splits"] for key in ("gain", "cover")]
    secret += [split["threshold"] for line in lines for split in line["own"]]
    numbers = {float(number) for text in files for number in re.findall(r"-?\d+\.\d+", text)}
    assert not numbers & {value for value in secret if value != round(value, 2)}
    assert all("income" not in text and "weights" not in text and "base_margin" not in text for text in files)
    named = card(BANK, names=True)
    assert [row["name"] for row in named["importance"]["own_features"]] == ["income", "age"]
    assert "income" in page(named)


@pytest.mark.parametrize("change", [add_grafts, withdraw_leaves])
def test_a_card_tells_nothing_of_local_subtrees(change: Callable[[Path], None], tmp_path: Path) -> None:
    """It is that of the model without them: which leaves others do not see further is not for them."""
    folder = Path(shutil.copytree(BANK, tmp_path / "model"))
    change(folder)
    assert card(folder, names=True) == card(BANK, names=True)


def test_the_page_loads_nothing_and_escapes_everything(tmp_path: Path) -> None:
    """No script, no reference but to an empty icon, no address; a column named like a tag stays text."""
    nasty = "<script src='http://x.example/a.js'>"
    made = _Page(page(card(_changed(tmp_path, columns=[nasty, "age"]), names=True)))
    assert made.references == ["data:,"]
    assert not {"script", "img", "iframe"} & set(made.tags)
    assert nasty in made.words
    assert made.tags.count("rect") == 4
    style = page(card(BANK, names=False)).partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style
    assert "url(" not in style


def test_classes_are_told_in_the_words_of_the_protos() -> None:
    """The table has the classes that the training's messages carry, each with what reveals.proto says that it tells."""
    text = (ROOT / "protos" / "treetap" / "wire" / "v2" / "reveals.proto").read_text()
    told = dict(re.findall(r'^  ([A-Z_]+) = \d+ \[[^\]]*\(tells\) = "([^"]+)"', text, re.MULTILINE))
    assert told.keys() == CLASSES.keys()
    rows = card(BANK, names=False)["disclosure"]["classes"]
    assert [row["learns"] for row in rows] == [told[row["class"]] for row in rows]
    carried = {row["class"]: row["fields"] for row in rows}
    assert "Gradients.ciphertexts" in carried["CIPHERTEXT"]
    assert {"INSTANCE_SPACE", "CANDIDATE_SUM"} <= set(carried)
    assert "PREDICTION" not in carried


def test_a_kept_transcript_is_counted(tmp_path: Path) -> None:
    """Without one, or with one of another version, the card says so; else it has messages by peer and class."""
    assert card(BANK, names=False)["disclosure"]["transcript"] is None
    assert "kept no transcript" in page(card(BANK, names=False))
    model = Path(shutil.copytree(BANK, tmp_path / "models" / "experiment"))
    (tmp_path / "transcripts" / "experiment").mkdir(parents=True)  # by a party that was killed before the first file
    assert card(model, names=False)["disclosure"]["transcript"] is None
    message = boosting_pb2.Gradients(first=0, count=1, ciphertexts=b"12345678")
    with TranscriptWriter(tmp_path / "transcripts" / "experiment") as log:
        for kind in (TranscriptRecord.SENT, TranscriptRecord.SENT, TranscriptRecord.OWN):
            log.append(kind, "telco", "gradients", "experiment", 1, 0, 0, message)
    found = card(model, names=False)
    rows = {(row["direction"], row["peer"], row["class"]): row for row in found["disclosure"]["transcript"]}
    assert {key[:2] for key in rows} == {("sent", "telco")}
    assert rows["sent", "telco", "CIPHERTEXT"] | {"bytes": 0} == {
        **{"direction": "sent", "peer": "telco", "class": "CIPHERTEXT"},
        **{"messages": 2, "bytes": 0},
    }
    assert rows["sent", "telco", "CIPHERTEXT"]["bytes"] >= 16
    assert "kept no transcript" not in page(found)
    tap = tmp_path / "transcripts" / "experiment" / "000001.tap"
    tap.write_bytes(tap.read_bytes().replace(HEADER, b"treetap transcript 4\n"))
    assert card(model, names=False)["disclosure"]["transcript"] is None  # of a version whose messages are others


@pytest.mark.parametrize("closed", [".", "manifest.json", "trees.jsonl"])
def test_another_users_model(closed: str) -> None:
    """A user who may not read a party's files gets an error with the file and the user to ask as; status 2."""

    def ask(run: Callable[..., object]) -> str:
        with pytest.raises(BadInput) as refusal:
            run()
        return str(refusal.value)

    with TemporaryDirectory() as there:  # pytest's own folders are closed to other users
        Path(there).chmod(0o755)
        folder = Path(shutil.copytree(BANK, Path(there) / "model"))
        (folder / closed).chmod(0)
        with _without_rights():
            asked = [ask(lambda: describe(find(str(folder), None)))]
            asked += [ask(lambda: card(find(str(folder), None), names=False))]
    where = folder / ("manifest.json" if closed == "." else closed)
    expected = f"{where}: cannot be read: Permission denied; a party's files are for its own user, so ask as that user"
    assert asked == [expected, expected]


@contextmanager
def _without_rights() -> Iterator[None]:
    """Root may read any file; as nobody it may not."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


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
            assert not re.search(rf"(?<!\d){re.escape(secret)}(?!\d)", text + html)
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
