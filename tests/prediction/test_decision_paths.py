"""Explained predictions: the candidate paths of every record, and names of features where their owners allow it.

Tables to predict whose cells the model takes for unknown or missing: in the status, by count and party alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attributions.explained import Joined
from tests.replay import HERE, JOB
from tests.simulator import Federation
from tests.worlds import PARTIES, spec, world
from treetap.commands.jobs import progress_view
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_names
from treetap.party.prediction.tree_model import named
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.trees.paths import condition, paths
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2

LABEL_HOLDER, FIRST, LAST = PARTIES
TELLS: dict[str, dict[str, Any]] = {FIRST: {"emits": {"FEATURE_NAME": [LABEL_HOLDER]}}}
WAYS = {
    "eini": predict_request(model="job", protocol="eini", block=5, explain=True),
    "batched": predict_request(model="job", block=5, explain=True),
    "per tree": predict_request(model="job", form="per-tree", explain=True),
}


def _conditions(joined: Joined, tree: Any, leaf: int, *, sides: bool) -> list[str]:
    """What may be said of a leaf's way: own splits in full, the first party's by name, the last one's by handle."""
    said = []
    for split, left in paths(tree)[leaf]:
        own = joined.splits[split.owner, split.handle]
        side = f" ({'left' if left else 'right'})" if sides else ""
        if split.owner == LABEL_HOLDER:
            threshold = float("inf") if own["threshold"] is None else own["threshold"]
            said.append(condition(joined.name(split), threshold, own["missing_left"], left))
        elif split.owner == FIRST:
            said.append(f"{FIRST}: {joined.name(split)}{side}")
        else:
            said.append(f"{LAST}#{split.handle}{side}")
    return said


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", WAYS)
async def test_every_record_has_exactly_its_candidate_leaves(way: str, tmp_path: Path) -> None:
    """Encrypted: all leaves that the own columns leave open, the reached one too. Interactive: that one alone."""
    here = world(60, (2, 2, 2), missing=0.15, seed=4)
    params = BoostingParams(n_estimators=3, max_depth=3, max_bin=8)

    federation = Federation(tmp_path, here.tables, policies=TELLS)
    assert (await federation.train(spec(params, obfuscation="standard"))).state == "finished"
    status = await federation.predict(WAYS[way])
    assert (status.state, status.error, list(status.withheld)) == ("finished", "", [LAST])
    joined = Joined(federation.states, here)
    reached = joined.reached(joined.goes_left)
    encrypted = way == "eini"
    open_leaves = joined.reached(lambda s: joined.goes_left(s) if s.owner == LABEL_HOLDER else None)
    expected = open_leaves if encrypted else reached
    rows = pq.read_table(status.explanations).to_pylist()
    assert [row["id"] for row in rows] == [f"r{60 + i:05d}" for i in range(12)]
    trees = {tree.index: tree for tree in joined.ensemble.used_trees}
    for record, row in enumerate(rows):
        found: dict[int, list[int]] = {index: [] for index in trees}
        for path in row["paths"]:
            found[path["tree"]].append(path["leaf"])
            tree = trees[path["tree"]]
            assert path["conditions"] == _conditions(joined, tree, path["leaf"], sides=not encrypted)
        assert {index: sorted(leaves) for index, leaves in found.items()} == expected[record]
        for index, leaves in reached[record].items():
            assert len(leaves) == 1
            assert leaves[0] in found[index]
    assert any(len(leaves) > 1 for row in open_leaves for leaves in row.values())


async def test_names_cross_only_where_they_may_and_nothing_else_with_them(tmp_path: Path) -> None:
    """Handle and column name of each split from the party that allows it; from the other a word that it withholds."""
    told: list[tuple[str, str, exchange_pb2.PeerMessage]] = []

    def keep(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "split_names":
            told.append((sender, to, parcel))
        return parcel

    federation = Federation(tmp_path, HERE.tables, policies=TELLS)
    await federation.train(JOB)
    federation.tamper = keep
    plain = await federation.predict(predict_request(model="job", protocol="eini"))
    assert (plain.state, plain.explanations, list(plain.withheld), told) == ("finished", "", [], [])
    assert (await federation.predict(WAYS["eini"])).state == "finished"
    await federation.close()
    found = {
        "joined": Joined(federation.states, HERE),
        "names": read_names(federation.state(LABEL_HOLDER) / "models/job"),
    }
    bodies = {sender: parcel.prediction.split_names for sender, _, parcel in told}
    assert {(sender, to) for sender, to, _ in told} == {(FIRST, LABEL_HOLDER), (LAST, LABEL_HOLDER)}
    assert (bodies[LAST].withheld, len(bodies[LAST].names)) == (True, 0)
    joined = found["joined"]
    mine = {handle: "b0" for owner, handle in joined.splits if owner == FIRST}
    assert {row.handle: row.feature for row in bodies[FIRST].names} == mine
    assert {field.name for field in type(bodies[FIRST].names[0]).DESCRIPTOR.fields} == {"handle", "feature"}
    assert found["names"] == {FIRST: mine}  # beside the model from now on


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("way", "emits"),
    [("batched", {}), ("eini", {"FEATURE_NAME": [LABEL_HOLDER], "TOPOLOGY": ["coordinators"]})],
    ids=["no names", "no handles"],
)
async def test_a_party_that_changes_its_mind(way: str, emits: dict[str, list[str]], tmp_path: Path) -> None:
    """The last word counts: names that are withheld now are not kept beside the model any more.

    A message with names has the splits' handles too, so a policy that keeps these back withholds the names.
    """
    federation = Federation(tmp_path, HERE.tables, policies=TELLS)
    await federation.train(JOB)
    names = federation.state(LABEL_HOLDER) / "models" / "job" / "names.json"
    await federation.predict(WAYS[way])
    assert set(read_names(names.parent)) == {FIRST}
    policy = federation.policy(FIRST).model_copy(update={"emits": emits})
    federation.configs[FIRST] = federation.configs[FIRST].under(policy)
    federation.restart(FIRST)
    status = await federation.predict(WAYS[way])
    assert (status.state, list(status.withheld)) == ("finished", [FIRST, LAST])
    assert (names.is_file(), read_names(names.parent)) == (True, {})
    text = {c for row in pq.read_table(status.explanations).to_pylist() for p in row["paths"] for c in p["conditions"]}
    assert {entry.partition("#")[0] for entry in text if "#" in entry} == {FIRST, LAST}
    assert not any(entry.startswith(f"{FIRST}:") for entry in text)


async def test_the_first_records_only(tmp_path: Path) -> None:
    """A limit holds for the file of paths; all records are predicted."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    status = await federation.predict(predict_request(model="job", explain=True, explain_limit=2))
    assert pq.read_table(status.explanations).column("id").to_pylist() == ["r00016", "r00017"]
    assert pq.read_table(status.predictions).num_rows == 6


async def test_without_a_party_its_paths_stay_open(tmp_path: Path) -> None:
    """Degraded: below splits of the absent a record has several leaves; their handles come without a side."""
    federation = Federation(tmp_path, HERE.tables, policies=TELLS)
    await federation.train(JOB)
    federation.kill(LAST)
    asked = predict_request(model="job", explain=True, away_policy="degrade", away_deadline_s=3)
    status = await federation.predict(asked)
    assert (status.state, list(status.away), list(status.withheld)) == ("finished", [LAST], [])
    joined = Joined(federation.states, HERE)
    expected = joined.reached(lambda s: None if s.owner == LAST else joined.goes_left(s))
    for record, row in enumerate(pq.read_table(status.explanations).to_pylist()):
        found: dict[int, list[int]] = {}
        for path in row["paths"]:
            found.setdefault(path["tree"], []).append(path["leaf"])
            for entry in path["conditions"]:
                assert not re.match(rf"{LAST}#\d+ ", entry)
                assert not entry.startswith(FIRST) or re.search(r" \((left|right)\)$", entry)
        assert {index: sorted(leaves) for index, leaves in found.items()} == expected[record]
    assert any(len(leaves) > 1 for row in expected for leaves in row.values())


def unknown(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.prediction.split_names.names[0].handle = 77


def twice(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.prediction.split_names.names.append(parcel.prediction.split_names.names[0])


def empty(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.prediction.split_names.names[0].feature = ""


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unknown, "feature-b names a feature of split 77, not its own or named before"),
        (twice, r"feature-b names a feature of split \d, not its own or named before"),
        (empty, r"feature-b names the feature of split \d by 0 characters"),
    ],
)
async def test_names_that_cannot_be(
    change: Callable[[exchange_pb2.PeerMessage], None], message: str, tmp_path: Path
) -> None:
    """A handle that is no split of the sender's, or twice, or no name: an error that says so."""

    def tamper(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "split_names" and parcel.prediction.split_names.names:
            change(parcel)
        return parcel

    federation = Federation(tmp_path, HERE.tables, policies=TELLS)
    await federation.train(JOB)
    federation.tamper = tamper
    status = await federation.predict(WAYS["batched"])
    assert status.state == "failed"
    assert re.search(message, status.error), status.error


def test_a_one_hot_feature_is_named_by_its_column() -> None:
    """The feature's own name would tell the category, which is the split's threshold."""
    categories = {"job": {"encode": "one-hot", "values": ["clerk", "nurse"], "features": ["job=clerk", "job=nurse"]}}
    manifest = {"columns": ["age", "job=clerk", "job=nurse"], "categories": categories}
    splits = [OwnSplit(handle, 1, feature, 0, 0.5, False) for handle, feature in ((4, 2), (7, 0))]
    assert named(manifest, splits) == {4: "job", 7: "age"}


HOLDER, B, C = PARTIES
STUMPS = BoostingParams(n_estimators=1, max_depth=1, max_bin=6)
FRESH = 8


def _federation(folder: Path, words: list[str | None], **more: Any) -> Federation:
    """B has a column of colours; C's only one has no value any more."""
    here = world(40, (1, 2, 1), fresh=FRESH)
    for name, cells in (("train", ["red", "blue"] * 20), ("predict", words)):
        table = here.tables[B][1][name]
        here.tables[B][1][name] = table.set_column(table.column_names.index("b0"), "b0", pa.array(cells))
    later = here.tables[C][1]["predict"]
    here.tables[C][1]["predict"] = later.set_column(1, "c0", pa.nulls(FRESH, pa.float64()))
    return Federation(folder, here.tables, encode="categorical", **more)


async def _predicted(folder: Path, words: list[str | None], empty: bool = False, **more: Any) -> jobs_pb2.JobStatus:

    federation = _federation(folder, words, **more)
    if not empty:
        path = federation.configs[C].tables["predict"].path
        table = pq.read_table(path)
        pq.write_table(table.set_column(1, "c0", pa.array([0.5] * FRESH)), path)
    assert (await federation.train(spec(STUMPS))).error == ""
    return await federation.predict(predict_request(model="job", protocol="interactive"))


async def test_the_status_has_the_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the party that has them; neither a column nor a cell."""
    status = await _predicted(tmp_path, ["red", "Red", "green", None, "blue", "red", "red", "red"])
    assert [(each.party, each.unknown_cells, each.empty_columns) for each in status.cells] == [(B, 2, 0)]
    progress_view.print_statuses([status])
    assert f"{B}: 2 cells of no category of the training" in capsys.readouterr().out
    assert progress_view.status_dict(status)["cells"] == [{"party": B, "unknown_cells": 2, "empty_columns": 0}]
    assert not re.search(r"\bb0\b", str(status))


async def test_a_policy_keeps_the_counts(tmp_path: Path) -> None:
    """Where METRIC goes to nobody, the status lacks them; what is everything is refused all the same."""
    words = ["red", "Red", *["blue"] * 6]
    kept = {"policies": {B: {"emits": {"METRIC": []}}}}
    assert list((await _predicted(tmp_path / "some", words, **kept)).cells) == []
    status = await _predicted(tmp_path / "all", ["green"] * FRESH, **kept)
    assert (status.state, status.bad_input) == ("failed", True)
    assert "column 'b0': all 8 cells are of no category of the training" in status.error


async def test_a_table_without_any_value_is_refused(tmp_path: Path) -> None:
    """Its party would send every record the same way."""
    status = await _predicted(tmp_path, ["red"] * FRESH, empty=True)
    assert (status.state, status.bad_input) == ("failed", True)
    assert "no column has any value, and 1 had some in the training" in status.error


async def test_a_job_without_a_feature_is_refused(tmp_path: Path) -> None:
    """Two tables without columns would finish with a model of no split."""
    here = world(40, (1, 1), fresh=FRESH)
    tables = {party: ([], content) for party, (_, content) in here.tables.items()}

    federation = Federation(tmp_path, tables)
    status = await federation.train(spec(STUMPS, parties=2))
    await federation.close()
    assert (status.state, status.bad_input) == ("failed", True)
    assert "no party has a feature: columns of table 'train' names none at" in status.error


@pytest.mark.parametrize("others", [0, 10])
async def test_an_eval_table_of_the_trainings_records(
    others: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted by the label holder, and refused where all are trained on with the same labels."""
    here = world(60, (1, 1), fresh=20)
    for party, (_, content) in here.tables.items():
        table = content["train"]
        if others:
            new = content["predict"].sort_by("id").slice(0, others)
            new = new.append_column("y", pa.array([0, 1] * (others // 2))) if party == HOLDER else new
            table = pa.concat_tables([table, new.select(table.column_names)])
        content["eval"] = table

    federation = Federation(tmp_path, here.tables)
    status = await federation.train(spec(STUMPS, parties=2, eval_table="eval"))
    await federation.close()
    said = f"60 of {60 + others} records of the eval table are trained on"
    assert status.state == ("finished" if others else "failed"), status.error
    assert said in (caplog.text if others else status.error)
