"""Which column, label, weight and prediction belongs to which: by names, by an index and by ids, never by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import treetap
from treetap.lab.api.frames import ID, InvalidInput, arrow_of
from treetap.lab.api.party_tables import of_several

pytestmark = pytest.mark.xdist_group("api")
SMALL: dict[str, Any] = {"n_estimators": 1, "max_depth": 2, "key_bits": 1024, "workers": 1, "verbose": False}
RNG = np.random.default_rng(3)
X = pd.DataFrame(RNG.normal(size=(40, 4)).round(3), columns=[3, 2, 1, 0], index=[f"r{row:02d}" for row in range(40)])
TRUE = (X[0] + X[1] > 0).astype(int)
FRAMES = {"party-1": X[[0, 1]], "party-2": X[[2, 3]]}
VALUES = pd.Series([0.0, 1.0, 2.0], index=["a", "b", "c"])


def _several(index: Any, **more: Any) -> dict[str, Any]:
    return {name: pd.DataFrame({name: [1.0, 2.0, 3.0], **more}, index=index) for name in ("one", "two")}


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (pd.DataFrame([[1, 2]], columns=[10, 20]), ["10", "20"]),
        (pd.DataFrame([[1, 2]], columns=[0.5, True]), ["0.5", "True"]),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])), ["('a', 1)", "('a', 2)"]),
        (pd.DataFrame([[1, 2]], columns=pd.to_datetime(["2024-01-01", "2024-02-01"])), None),
        (pl.DataFrame({"0": [1], "1": [2]}), ["0", "1"]),
        (pa.record_batch({"0": [1], "1": [2]}), ["0", "1"]),
    ],
    ids=["whole", "mixed", "levels", "dates", "polars", "batch"],
)
def test_a_column_is_called_by_the_text_of_its_label(frame: Any, names: list[str] | None) -> None:
    """Of every library; the labels may be of any type, also of several."""
    assert arrow_of(frame).column_names == (names or [str(label) for label in frame.columns])


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1, 2]], columns=[1, "1"]),
        pd.DataFrame([[1, 2]], columns=["1", "1"]),
        pa.table([[1], [2]], names=["1", "1"]),
        pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["1", "1"]),
    ],
    ids=["types", "pandas", "arrow", "batch"],
)
def test_two_columns_of_one_name_are_refused(frame: Any) -> None:
    """Also where their labels differ in type alone."""
    with pytest.raises(InvalidInput, match="has column '1' more than once"):
        arrow_of(frame)


def test_an_index_is_compared_as_ids_are_written() -> None:
    """Blanks around them and their type do not count; of a frame of labels too; what has no index goes by place."""
    rows = of_several(_several(["c", " a ", "b"]), "one", None).rows
    assert np.ravel(rows.aligned(VALUES.to_frame(), "y")).tolist() == [2.0, 0.0, 1.0]
    numbered = of_several(_several([2, 0, 1]), "one", None).rows
    assert numbered.aligned(pd.Series([5, 6, 7], index=["0", "1", "2"]), "y").tolist() == [7, 5, 6]
    for other in ([0.0, 1.0, 2.0], pd.MultiIndex.from_arrays([list("abc")] * 2)):
        with pytest.raises(InvalidInput, match=r"^y has another index than the rows of X.* y\.to_numpy\(\)"):
            rows.aligned(pd.Series([0, 1, 2], index=other), "y")
    for plain in ([0, 1, 2], np.arange(3), pl.Series([0, 1, 2]), pa.array([0, 1, 2])):
        assert list(rows.aligned(plain, "y")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        (lambda: _several(pd.MultiIndex.from_arrays([[1, 2, 3], [1, 2, 3]])), "its index has 2 levels"),
        (lambda: _several(pd.Index([1, "a", 2.5], dtype=object)), "its index holds values of several types"),
        (lambda: _several([0.5, 1.5, 2.5]), "the frame of one: the index holds double; ids are whole numbers or text"),
        (lambda: _several(["a", "b", " a"]), "the id is there already"),
        (lambda: _several(["a", None, "b"]), "the id is missing"),
        (lambda: {name: each.iloc[:0] for name, each in _several(range(3)).items()}, "the frame of one has no records"),
        (lambda: {"one": np.array([["a"]]), "two": np.zeros((1, 1))}, "no data frame and no array of numbers"),
        (lambda: {"one": np.zeros(3), "two": np.zeros(3)}, "no data frame and no array of numbers"),
    ],
)
def test_indexes_that_are_no_ids(frames: Callable[[], dict[str, Any]], fault: str) -> None:
    """One sentence that names the frame and the remedy, and nothing raw of Arrow."""
    with pytest.raises(InvalidInput, match=fault):
        of_several(frames(), "one", None)


def test_a_frame_without_columns_has_records_all_the_same() -> None:
    """A label holder may have labels alone, in every kind of frame that counts its records."""
    for bare in (pd.DataFrame(index=range(3)), np.zeros((3, 0)), pa.table({"a": [1, 2, 3]}).select([])):
        tables = of_several({"one": bare, "two": np.zeros((3, 2))}, "one", None).tables
        assert tables["one"].column_names == [ID]
        assert tables["one"].num_rows == 3


@pytest.mark.parametrize("name", ["prediction", "score", "probability_yes"])
def test_an_id_column_that_would_be_one_of_the_predictions(name: str) -> None:
    """The ids come as `id`, said in a warning; no two columns have one name."""
    data = of_several(_several(range(3), **{name: [1, 2, 3]}), "one", name)
    found = pa.table({ID: data.rows.ids.array, name: [0.1, 0.2, 0.3]})
    with pytest.warns(UserWarning, match=f"column '{name}' has the predictions: the ids are in column 'id'"):
        frame = data.rows.framed(found)
    assert (list(frame.columns), frame["id"].tolist()) == (["id", name], [1, 2, 3])


@pytest.mark.second_tier
def test_labels_that_are_numbers_name_columns() -> None:
    """Parties, their importance and a model's predictions go by the label, whatever the order."""
    parties = {"party-1": [0, 1], "party-2": [2, 3]}
    model = treetap.FederatedClassifier(parties, **SMALL, monotone_constraints={0: 1}).fit(X, TRUE)
    assert model.columns_ == {"party-1": ["0", "1"], "party-2": ["2", "3"]}
    assert model.feature_importances_[:2].sum() == 0  # the columns are 3, 2, 1, 0
    right = model.predict_proba(X)
    for other in (X[[0, 1, 2, 3]], X.assign(more=1.0)[["more", 2, 0, 1, 3]], pl.from_pandas(X.rename(columns=str))):
        assert (model.predict_proba(other) == right).all()
    with pytest.raises(ValueError, match="X lacks column '2', which the model was trained on"):
        model.predict(X[[0, 1, 3]])
    with pytest.raises(ValueError, match="party-1 has column 4, which the table lacks"):
        treetap.FederatedClassifier({"party-1": [4], "party-2": [0, 1, 2, 3]}, **SMALL).fit(X, TRUE)
    found = model.predict_frame(X[::-1])
    assert found.index.tolist() == X.index[::-1].tolist()
    assert found["id"].tolist() == X.index[::-1].tolist()
    assert (found["probability_1"].to_numpy() == right[::-1, 1]).all()


@pytest.mark.second_tier
def test_a_saved_model_reads_the_frame_that_it_was_trained_on(tmp_path: Any) -> None:
    """By the same names, and with its index."""
    model = treetap.FederatedClassifier({"party-1": [0, 1], "party-2": [2, 3]}, **SMALL).fit(X, TRUE)
    loaded = treetap.load_model(model.save(tmp_path / "saved"))
    assert isinstance(loaded, treetap.lab.api.models.LoadedModel)
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
    assert loaded.predict_frame(X[::-1]).index.tolist() == X.index[::-1].tolist()
    assert (loaded.predict(FRAMES) == model.predict(FRAMES)).all()


@pytest.mark.second_tier
def test_places_of_an_array_name_its_columns() -> None:
    """Parties, constraints and predictions; a frame has none of its places as names."""
    numbers = X.to_numpy()
    constraints = {"monotone_constraints": {2: 1}}
    model = treetap.FederatedClassifier({"party-1": [3, 2], "party-2": [1, 0]}, **SMALL, **constraints)
    model.fit(numbers, TRUE[::-1].to_numpy())
    assert (hasattr(model, "feature_names_in_"), type(model.predict_frame(numbers))) == (False, pd.DataFrame)
    assert model.columns_ == {"party-1": ["x3", "x2"], "party-2": ["x1", "x0"]}
    with pytest.raises(ValueError, match="trained on an array, whose columns have places alone"):
        model.predict(X)
    with pytest.raises(ValueError, match="X has 3 features"):
        model.predict(numbers[:, :3])
    apart = treetap.FederatedClassifier(**SMALL).fit([numbers[:, :2], numbers[:, 2:]], TRUE.to_numpy())
    with pytest.raises(ValueError, match="columns of several parties have one name"):
        apart.predict(numbers)


@pytest.mark.second_tier
@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_an_id_column_is_kept_and_is_no_feature(library: str) -> None:
    """Of one frame and of one of each party, with its type; by place where there is none."""
    plain = X.rename(columns=str).assign(key=np.arange(40)[::-1] + 100)
    as_library: dict[str, Callable[[pd.DataFrame], Any]] = {
        "pandas": lambda each: each,
        "polars": pl.from_pandas,
        "arrow": lambda each: pa.Table.from_pandas(each, preserve_index=False),
    }
    made = as_library[library]
    parts = {"party-1": made(plain[["0", "1", "key"]]), "party-2": made(plain[["key", "2", "3"]])}
    for data, names in ((made(plain), "3210"), (parts, "0123")):
        model = treetap.FederatedClassifier(id_column="key", **SMALL).fit(data, TRUE.to_numpy())
        assert "key" not in [name for own in model.columns_.values() for name in own]
        found = model.predict_frame(data)
        assert type(found) is type(made(plain))
        assert (model.n_features_in_, model.feature_names_in_.tolist()) == (4, list(names))
        assert np.asarray(found["key"]).tolist() == plain["key"].tolist()
        assert np.asarray(found["key"]).dtype.kind == "i"
        assert (np.asarray(found["probability_1"]) == model.predict_proba(data)[:, 1]).all()
    bare = treetap.FederatedClassifier(**SMALL).fit(
        {"party-1": made(plain[["0", "1"]]), "party-2": made(plain[["2", "3"]])}, TRUE.to_numpy()
    )
    assert bare.columns_ == {"party-1": ["0", "1"], "party-2": ["2", "3"]}
