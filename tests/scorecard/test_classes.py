"""Cards of several classes, of two each; records with weights; and the bad rates that a partner is told."""

from __future__ import annotations

import json
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap_here, write
from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec, weighted, world
from treetap.arrays import Floats
from treetap.lab.experiment.xgboost_export import trained_table
from treetap.lab.scorecard.card import NUMBERS, Cell, Column
from treetap.lab.scorecard.options import Frame
from treetap.lab.scorecard.parts import Part, read_records
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams

BANK, TELCO, SHOP = PARTIES
PLAIN = world(240, (2, 2, 1), missing=0.1, seed=4, levels=3, objective="multi:softprob", classes=3)
HERE = weighted(PLAIN, np.random.default_rng(2).integers(1, 9, len(PLAIN.y)) / 4)
#: A tree for each class, and one for all.
STRATEGIES = {"each": "one_output_per_tree", "all": "multi_output_tree"}
LEAST = 10


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with states and configurations of the parties, and explained predictions by each model."""
    folder = tmp_path_factory.mktemp("classes")

    async def main() -> None:
        federation = Federation(folder, HERE.tables)
        for job, strategy in STRATEGIES.items():
            params = BoostingParams(n_estimators=8, max_depth=1, max_bin=8, learning_rate=0.5, max_sample_weight=4.0)
            given = params.__class__(**vars(params) | {"objective": "multi:softprob", "multi_strategy": strategy})
            assert (await federation.train(spec(given), job)).state == "finished"
            status = await federation.predict(predict_request(model=job, table="train", explain=True))
            assert status.state == "finished"
            shutil.copy(status.explanations, folder / f"{job}.explained.parquet")
            shutil.copy(status.predictions, folder / f"{job}.parquet")

    run(main())
    for party, (columns, _) in HERE.tables.items():
        table = {"path": f"{party}/train.parquet", "id": "id", "columns": columns}
        table |= {"label": "y", "weight": "w"} if party == BANK else {}
        content = {"name": party, "state": f"{party}/state", "insecure": True, "policy": f"{party}.policy.toml"}
        write(folder / f"{party}.toml", {**content, "tables": {"train": table}})
        policy = {"people": {"label_holders": [BANK], "peers": [TELCO, SHOP]}, "emits": {"LEAF_WEIGHT": [TELCO]}}
        write(folder / f"{party}.policy.toml", policy)
    return folder


def _opened(trained: Path, job: str) -> Part:
    part = Part.open(trained / BANK / "state" / "models" / job)
    part.check_additive()
    return part


@pytest.mark.second_tier
@pytest.mark.parametrize("job", STRATEGIES)
@pytest.mark.parametrize(("good", "bad"), [*permutations("012", 2)])
def test_a_card_is_of_two_classes(job: str, good: str, bad: str, trained: Path) -> None:
    """Its score is that of the predicted odds of one to the other; records of other classes do not count."""
    part, frame = _opened(trained, job), Frame(base_points=500.0, odds=20.0, pdo=30.0)
    card = part.card(frame, good, bad, [])
    table = trained_table(trained / f"{BANK}.toml", "train")
    assert table is not None
    records = read_records(part, table, (good, bad), trained / f"{job}.explained.parquet")
    ids = records.table.ids.array.to_pylist()
    predicted = {row["id"]: row for row in pq.read_table(trained / f"{job}.parquet").to_pylist()}
    margins = [np.log(predicted[it][f"probability_{bad}"] / predicted[it][f"probability_{good}"]) for it in ids]
    np.testing.assert_allclose(
        card.scores(records.cells(part, card)), [frame.score(it) for it in margins], rtol=0, atol=1e-6
    )
    labels = dict(
        zip(*(pq.read_table(trained / BANK / "train.parquet")[it].to_pylist() for it in ("id", "y")), strict=True)
    )
    assert sorted(ids) == sorted(it for it, label in labels.items() if str(int(label)) in (good, bad))
    assert [str(int(labels[it])) == bad for it in ids] == records.bad.tolist()


def _asked(capsys: pytest.CaptureFixture[str], trained: Path, party: str, *words: object) -> Any:
    words = ("model", "scorecard", "each", "--config", trained / f"{party}.toml", "--json", *words)
    status = treetap_here(*map(str, words))
    out, error = capsys.readouterr()
    assert (status, error) == (0, "")
    return json.loads(out)


def _of(row: dict[str, Any]) -> tuple[str, str]:
    return row["column"], row["bin"]


@pytest.mark.second_tier
def test_bins_have_weights_and_a_partner_is_told_their_bad_rates(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rates are of weights beside whole counts; without the option, or of few records of a class, none is told."""
    _asked(capsys, trained, TELCO, "--send-bins", tmp_path / "bins.json")
    words = ["--good", "0", "--bad", "2", "--table", "train", "--explained", trained / "each.explained.parquet"]
    words += ["--bins", tmp_path / "bins.json", "--min-records", LEAST, "--send-points", tmp_path]
    content = _asked(capsys, trained, BANK, *words)
    rows = [row for row in content["bins"] if row["party"] == BANK]
    part = _opened(trained, "each")
    table = trained_table(trained / f"{BANK}.toml", "train")
    assert table is not None
    records = read_records(part, table, ("0", "2"), None)
    weights: Floats = np.asarray(records.weights)
    cells = {name: np.asarray(records.values[:, at]) for at, name in enumerate(part.manifest["columns"])}
    measured = content["measured"]
    assert (measured["records"], measured["weight"]) == (len(weights), weights.sum())
    for name in {row["column"] for row in rows}:
        of = [row for row in rows if row["column"] == name]
        assert sum(row["records"] for row in of) == len(weights)
        assert sum(row["weight"] for row in of) == pytest.approx(weights.sum())
        bad = sum(row["bad_rate"] * row["weight"] for row in of)
        assert bad == pytest.approx(weights[records.bad].sum())
        if len(of) > 1 and of[0]["bin"].startswith("x < ") and "missing" not in of[0]["bin"]:
            inside = cells[name] < float(of[0]["bin"].removeprefix("x < "))
            assert of[0]["bad_rate"] == pytest.approx(np.average(records.bad[inside], weights=weights[inside]))
            assert of[0]["records"] == inside.sum()
    told = _asked(capsys, trained, TELCO, "--points", tmp_path / f"{TELCO}.points.json")["bins"]
    assert not any("bad_rate" in row for row in told)
    content = _asked(capsys, trained, BANK, *words, "--send-rates")
    told = _asked(capsys, trained, TELCO, "--points", tmp_path / f"{TELCO}.points.json", "--table", "train")["bins"]
    expected = [row for row in content["bins"] if row["party"] == TELCO]
    assert len(expected) > 1
    assert [(row["bad_rate"], row["points"]) for row in told] == [
        (round(row["bad_rate"], 3), row["points"]) for row in expected
    ]
    assert not any("woe" in row for row in told)


@pytest.mark.parametrize(
    ("records", "bad", "told"), [([30, 40], [10, 30], [0.333, 0.75]), ([30, 19], [10, 10], [0.333, None]),
                                 ([30, 40], [9, 31], [None, None]), ([30, 0], [10, 0], [0.333, None])]
)  # fmt: skip
def test_rates_of_few_records_are_not_told(records: list[int], bad: list[int], told: list[float | None]) -> None:
    """A bin needs as many records of each class as are asked for, whatever they weigh."""
    cells = (Cell(NUMBERS, high=0.0), Cell(NUMBERS, low=0.0))
    counts = {"records": np.array(records), "bad": np.array(bad)}
    column = Column("telco", "x", cells, (), np.zeros((2, 0), dtype=bool), ((0,), (1,)), np.zeros(2), **counts)
    assert column.rates_of(LEAST) == told
