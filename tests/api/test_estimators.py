"""The estimators on a real federation: lossless, in the caller's own labels, on one federation that stays up."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV

import treetap
from treetap.commands.jobs import progress_view
from treetap.lab.api import loopback
from treetap.lab.local_federation import to_toml
from treetap.tables.binned import bin_columns
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.trees import survival
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.xdist_group("api")
#: Small trees under keys that the parties' policies of a loopback federation permit; one worker each.
SMALL: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, "key_bits": 1024, "workers": 1, "verbose": False}
RNG = np.random.default_rng(7)
X = pd.DataFrame(RNG.normal(size=(90, 4)), columns=list("abcd"))
TRUE = np.asarray(X["a"] + X["d"] ** 2 > 0.7)
PARTIES = {"party-1": ["a", "c"], "party-2": ["d", "b"]}


def _table(columns: list[str]) -> Table:
    ids = [f"{row:02d}" for row in range(len(X))]
    return Table(Path("x"), Ids.of(ids), columns, Held(X[columns].to_numpy()), None, np.arange(len(X)))


def place_tables(running: loopback.Loopback, name: str, frames: dict[str, pd.DataFrame]) -> None:
    """Write frames where the parties of a federation read their own tables; ids are `id`, a label is `owes`."""
    for party, frame in frames.items():
        place = running.folder / party / "tables"
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), place / f"{name}.parquet")
        keys = {"path": f"{name}.parquet", "id": "id", "columns": [key for key in frame if key not in ("id", "owes")]}
        (place / f"{name}.toml").write_text(to_toml({**keys, "label": "owes"} if "owes" in frame else keys))


@pytest.mark.parametrize("scheme", [{}, {"scheme": "lattice", "key_bits": None}], ids=["with a key", "on a lattice"])
def test_it_predicts_as_the_centralised_model_does(scheme: dict[str, Any]) -> None:
    """Every probability is that of one trainer with all columns, bit for bit; so are those of a copy of the model."""
    model = treetap.FederatedClassifier(PARTIES, "party-2", **{**SMALL, **scheme}, reg_alpha=0.1).fit(
        X, TRUE.astype(int)
    )
    params = BoostingParams(n_estimators=2, max_depth=2, reg_alpha=0.1)
    tables = [
        (party, bin_columns(_table(columns), 32, params.one_hot_below)) for party, columns in reversed(PARTIES.items())
    ]
    oracle = train(tables, TRUE.astype(np.int64), params, 2)
    scores = oracle.predict([(party, bins.encode(_table(PARTIES[party]).features)) for party, bins in tables])
    expected = oracle.ensemble.outcome(scores)
    assert (model.predict_proba(X)[:, 1] == expected).all()
    copied = pickle.loads(pickle.dumps(model))
    assert (copied.report_["federated"], model.report_["federated"]) == (False, True)
    assert (copied.predict_proba(X)[:, 1] == expected).all()
    assert (model.label_holder_, model.columns_) == ("party-2", PARTIES)


@pytest.mark.second_tier
@pytest.mark.parametrize("word", ["withheld", "private"])
def test_a_word_hides_without_loss(word: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The same model, which predicts encrypted unless the caller asks for what would show them."""
    given = {**SMALL, "key_bits": None}
    sent = treetap.FederatedClassifier(PARTIES, "party-2", **given, scheme="lattice").fit(X, TRUE.astype(int))
    given |= {"privacy": word, "pad_trees": True, "verbose": True}
    withheld = treetap.FederatedClassifier(PARTIES, "party-2", **given).fit(X, TRUE.astype(int))
    assert ("the dealer is a stand-in" in capfd.readouterr().err) == (word == "private")
    assert withheld.predict_proba(X) == pytest.approx(sent.predict_proba(X), abs=1e-8)
    with pytest.raises(ValueError, match="prediction = 'interactive': must be one of eini, eini-lattice"):
        treetap.FederatedClassifier(PARTIES, "party-2", **given, prediction="interactive").fit(X, TRUE.astype(int))


@pytest.mark.second_tier
@pytest.mark.parametrize("classes", [(-1, 1), ("no", "yes"), (False, True), (1.0, 2.0), ("z", "a", "m")], ids=str)
def test_predictions_are_the_callers_own_labels(classes: tuple[Any, ...]) -> None:
    """Their values, their type and their order, as scikit-learn sorts them."""
    part = np.digitize(X["a"], [0.0]) if len(classes) == 2 else np.digitize(X["a"], [-0.5, 0.5])
    y = np.array(classes)[part]
    model = treetap.FederatedClassifier(**SMALL).fit(X, y)
    found = model.predict(X)
    assert (found.dtype, model.classes_.tolist()) == (y.dtype, sorted(classes))
    assert (found == y).mean() > 0.95
    assert (found == model.classes_[model.predict_proba(X).argmax(axis=1)]).all()


@pytest.mark.second_tier
def test_parties_with_other_records_train_on_those_that_all_have() -> None:
    """A frame of each party, known by an index; the label is a column of the label holder's frame."""
    bank = X.iloc[:80, :2].assign(owes=TRUE[:80])
    telco = X.iloc[10:, 2:].sample(frac=1, random_state=0)
    model = treetap.FederatedClassifier(**SMALL, label_holder="party-1").fit(
        {"party-1": bank, "party-2": telco}, "owes"
    )
    assert model.columns_ == {"party-1": ["a", "b"], "party-2": ["c", "d"]}
    found = model.predict_frame({"party-1": bank, "party-2": telco})
    assert found.index.tolist() == list(range(10, 80))
    assert "id" not in found.columns
    common = {"party-1": bank.iloc[10:], "party-2": telco}
    one = treetap.FederatedClassifier({"party-1": ["a", "b"], "party-2": ["c", "d"]}, **SMALL).fit(
        X[10:80], TRUE[10:80]
    )
    assert (model.predict_proba(common) == one.predict_proba(X[10:80])).all()
    with pytest.raises(ValueError, match="10 of 80 records of the label holder are not at every party"):
        model.predict({"party-1": bank, "party-2": telco})


@pytest.mark.second_tier
def test_columns_of_text_and_constants() -> None:
    """Text is encoded by its owner as the caller says, and its importance is the column's; constants are named."""
    frame = X.assign(kind=np.where(TRUE, "x", "y"), same=1.0)
    with pytest.raises(
        ValueError, match="column 'kind' holds text; write as parameters of the estimator:\n"
    ) as failure:
        treetap.FederatedClassifier(**SMALL, encode=None).fit(frame, TRUE)
    assert '  encode={"kind": "categorical"}' in str(failure.value)
    with pytest.raises(ValueError, match=r"^party-2: column 'd' holds") as failure:
        treetap.FederatedClassifier(**SMALL, encode="one-hot").fit(X.assign(d=pd.Timestamp(2024, 3, 1)), TRUE)
    assert 'by encode = {"d": "days"} as a parameter of the estimator, or leave' in str(failure.value)
    model = treetap.FederatedClassifier(**SMALL, encode="one-hot").fit(frame, TRUE)
    assert model.constant_columns_ == {"party-1": [], "party-2": ["same"]}
    assert model.feature_importances_.tolist() == [0, 0, 0, 0, 1, 0]
    assert model.score(frame, TRUE) == 1


def test_the_score_of_hazards_is_their_concordance() -> None:
    """What a search maximises, though R² of a hazard beside times has the other order."""
    times = np.exp(-2 * X["a"].to_numpy()) * np.where(np.arange(90) % 4, 1, -1)  # every fourth is censored
    models = [
        treetap.FederatedRegressor(**{**SMALL, "n_estimators": count}, objective="survival:cox", simulate=True)
        for count in (1, 20)
    ]
    few, many = (model.fit(X, times).score(X, times) for model in models)
    assert 0.5 < few < many <= 1
    assert many == survival.concordance(-models[1].predict(X), times)
    assert r2_score(times, models[1].predict(X)) < 0


@pytest.mark.second_tier
def test_constraints_and_encodings_by_column_reach_the_owner() -> None:
    """Predictions only increase in a constrained column; a column that no party has is a ValueError."""
    kind = np.where(RNG.random(90) < 0.5, "x", "y")
    frame = X.assign(kind=kind)
    y = X["a"] + np.sin(4 * X["a"]) * 2 + 3 * (kind == "y")
    given = {**SMALL, "n_estimators": 4, "monotone_constraints": {"a": 1}, "encode": {"kind": "one-hot"}}
    model = treetap.FederatedRegressor(**given).fit(frame, y)
    grid = pd.DataFrame({name: np.zeros(40) for name in "abcd"}).assign(a=np.linspace(-2, 2, 40), kind="x")
    assert (np.diff(model.predict(grid)) >= 0).all()
    free = treetap.FederatedRegressor(**{**given, "monotone_constraints": None}).fit(frame, y)
    assert (np.diff(free.predict(grid)) < 0).any()
    with pytest.raises(ValueError, match="monotone_constraints names 'z', which is a column of no party"):
        treetap.FederatedRegressor(**{**given, "monotone_constraints": {"z": 1}}).fit(frame, y)


@pytest.mark.campaign
def test_a_training_goes_on_from_a_model() -> None:
    """Rounds are added to those of a fitted estimator: the same trees as of one longer training."""
    first = treetap.FederatedClassifier(**{**SMALL, "n_estimators": 1}).fit(X, TRUE)
    both = treetap.FederatedClassifier(**{**SMALL, "n_estimators": 1}).fit(X, TRUE, base_model=first)
    whole = treetap.FederatedClassifier(**SMALL).fit(X, TRUE)
    assert (both.predict_proba(X) == whole.predict_proba(X)).all()
    with pytest.raises(ValueError, match="base_model: must be fitted"):
        whole.fit(X, TRUE, base_model=pickle.loads(pickle.dumps(first)))


def test_what_each_party_received() -> None:
    """The disclosure of training and prediction by class, as a data frame; neither party gets the other's columns."""
    model = treetap.FederatedRegressor(**SMALL).fit(X, X["a"] * 2)
    model.predict(X)
    rows = model.disclosure_
    assert {"job", "from", "to", "step", "class", "messages", "bytes"} == set(rows.columns)
    received = set(rows[(rows["to"] == "party-2") & (rows["job"] == "train")]["class"])
    assert received >= {"CIPHERTEXT", "PUBLIC_KEY", "INSTANCE_SPACE"}
    assert set(rows["job"]) == {"train", "predict"}
    assert model.report_["bytes"] == rows[rows["job"] == "train"]["bytes"].sum()


def test_wrong_input_is_a_value_error_and_leaves_the_federation_up() -> None:
    """Of the caller's table; before a fit, scikit-learn's own error."""
    model = treetap.FederatedClassifier(**SMALL)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match=r"one class only, 1\.0: "):
        model.fit(X, np.ones(90))
    for absent in (None, np.nan, pd.NA):
        with pytest.raises(ValueError, match="y has no label for 2 of 90 records"):
            model.fit(X, pd.Series(["no", absent, absent, *["yes"] * 87], dtype=object))
    apart = {"party-1": X[["a"]].assign(y="no"), "party-2": X[["b"]]}
    for data, y in ((X, ["no", "yes"] * 45), (X.to_numpy(), np.array(["no", "yes"] * 45, object)), (apart, "y")):
        with pytest.raises(ValueError, match=r"y holds targets that are no numbers.* FederatedClassifier is for"):
            treetap.FederatedRegressor(**SMALL).fit(data, y)
    with pytest.raises(ValueError, match="y has no label for 1 of 90 records"):
        treetap.FederatedRegressor(**SMALL).fit(X, pd.Series([pd.NA, *range(89)], dtype=object))
    with pytest.raises(ValueError, match="infinit"):
        model.fit(X.replace(X.iloc[0, 0], np.inf), TRUE)
    assert model.fit(X, TRUE).score(X, TRUE) > 0.7


@pytest.mark.campaign
def test_a_search_uses_one_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all candidates and folds: no process is started for any of them."""
    treetap.FederatedClassifier(**SMALL).fit(X, TRUE)
    monkeypatch.setattr(subprocess, "Popen", _none)
    grid = {"max_depth": np.array([1, 2])}
    search = GridSearchCV(treetap.FederatedClassifier(**SMALL), grid, cv=2, error_score="raise").fit(X, TRUE)
    assert search.best_params_ == {"max_depth": 2}


def _none(*_: object, **__: object) -> None:
    raise AssertionError("a process was started")


def test_a_running_event_loop_is_no_hindrance() -> None:
    """As of a notebook, which runs one in the thread of its cells."""

    async def cell() -> float:
        return float(treetap.FederatedClassifier(**SMALL).fit(X, TRUE).score(X, TRUE))

    assert asyncio.run(cell()) > 0.7


@pytest.mark.second_tier
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("looped", [False, True], ids=["plain", "in a notebook"])
def test_ctrl_c_cancels_the_job(looped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is cancelled at the coordinator, and the federation takes the next one."""
    model = treetap.FederatedClassifier(**{**SMALL, "n_estimators": 500, "verbose": True})

    @contextmanager
    def live(_: str) -> Iterator[Callable[[Any], None]]:
        yield lambda status: os.kill(os.getpid(), signal.SIGINT) if status.phase == "train" else None

    async def cell() -> None:
        model.fit(X, TRUE)

    monkeypatch.setattr(progress_view, "live", live)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell()) if looped else model.fit(X, TRUE)
    running = loopback.kept(loopback.Loopback(("party-1", "party-2"), {"party-1": {}}, {}, 1))
    last = max(running.start().status(), key=lambda status: int(status.job.rpartition("-")[2]))
    assert last.state == "cancelled"
    assert treetap.FederatedClassifier(**SMALL).fit(X, TRUE).score(X, TRUE) > 0.7


@pytest.mark.second_tier
def test_a_federation_of_ones_own() -> None:
    """It runs while the block does, predicts for its models, and leaves nothing behind; its models predict on."""
    iris = load_iris()
    with treetap.federation(workers=1) as running:
        folder = running.folder
        model = treetap.FederatedClassifier(**{**SMALL, "workers": None}, federation=running).fit(
            iris.data, iris.target
        )
        inside = model.predict_proba(iris.data)
        assert (model.report_["federated"], folder.is_dir()) == (True, True)
        with pytest.raises(ValueError, match="federation has parties party-1, party-2, the data has a, b"):
            treetap.FederatedClassifier({"a": [0], "b": [1, 2, 3]}, federation=running).fit(iris.data, iris.target)
        pid = running.pids["party-1"]
    assert (model.report_["federated"], folder.exists()) == (False, False)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert (model.predict_proba(iris.data) == inside).all()


@pytest.mark.second_tier
def test_a_federation_whose_process_died_is_replaced() -> None:
    """A model that it trained predicts in this process; the next fit has a federation again."""
    model = treetap.FederatedClassifier(**SMALL).fit(X, TRUE)
    before = model.predict(X)
    running = loopback.kept(loopback.Loopback(("party-1", "party-2"), {"party-1": {}}, {}, 1))
    pid = running.pids["party-2"]
    os.kill(pid, signal.SIGKILL)
    while running.running:
        pass
    assert (model.predict(X[::-1]) == before[::-1]).all()
    assert treetap.FederatedClassifier(**SMALL).fit(X, TRUE).report_["federated"]


_MODULES = """
import atexit, os, sys
def left():
    path = os.path.join(os.environ["MODULES"], str(os.getpid()))
    with open(path, "w") as out:
        out.write(" ".join(name for name, module in sys.modules.items() if module is not None))
atexit.register(left)
"""


@pytest.mark.second_tier
def test_a_party_loads_nothing_of_the_api(tmp_path: Path) -> None:
    """A real party that has trained and predicted has no scikit-learn, pandas or polars among its modules.

    Its processes end with the interpreter that started them, and their folder goes.
    """
    (tmp_path / "sitecustomize.py").write_text(_MODULES, encoding="utf-8")
    (tmp_path / "modules").mkdir()
    program = f"""
import pandas, treetap
from sklearn.datasets import make_classification
from treetap.lab.api import loopback
from treetap.tables.record_ids import Ids
X, y = make_classification(60, 4, random_state=0)
model = treetap.FederatedClassifier(**{SMALL!r}).fit(pandas.DataFrame(X), y)
model.predict(X)
kept = next(iter(loopback._kept.values()))
print(kept.folder, kept.pids["party-1"], kept.pids["party-2"])
"""
    places = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": places, "MODULES": str(tmp_path / "modules")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    folder, *pids = done.stdout.split()
    assert not Path(folder).exists()
    for pid in pids:
        modules = set((tmp_path / "modules" / pid).read_text().split())
        assert modules & {
            "treetap.party.boosting.label_holder",
            "treetap.party.boosting.feature_party",
        }  # its own role alone
        assert modules.isdisjoint({"sklearn", "pandas", "polars", "treetap.lab.api"})
