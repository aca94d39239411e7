"""Data frames: a column's type and its cells say how it is encoded, in the words of the estimator where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import treetap
from treetap.lab.api import party_tables
from treetap.lab.api.frames import InvalidInput, arrow_of, column_in

pytestmark = pytest.mark.xdist_group("api")
ROWS = 90
DAYS = pd.date_range("2019-01-20", periods=ROWS, freq="9D")
FRAME = pd.DataFrame(
    {
        "grade": pd.Categorical([(3, 1, 2)[row % 3] for row in range(ROWS)]),
        "job": pd.Series([("clerk", "nurse", None)[row % 3] for row in range(ROWS)]),
        "opened": DAYS,
        "start": DAYS.strftime("%d.%m.%Y"),
        "flag": np.arange(ROWS) % 2 == 0,
        "x": np.sin(np.arange(ROWS)),
    }
)
PARTIES = {"party-1": ["grade", "job", "opened"], "party-2": ["start", "flag", "x"]}
SMALL: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, "key_bits": 1024, "workers": 1, "verbose": False}


def _keys(frame: Any, encode: Any = "auto", date_format: Any = None, *, categorical: bool = True) -> dict[str, Any]:
    """The keys that say the encodings of each party's columns."""
    data = party_tables.of_one(frame, arrow_of(frame), PARTIES)
    made = party_tables.settled(data, encode, date_format, missing=float("nan"), categorical=categorical, has_ids=False)
    return {party: made.keys(party) for party in made.tables}


def test_types_of_every_library_are_as_they_are() -> None:
    """Categories of any type are categories, times are days, booleans and numbers need nothing."""
    taken = {
        "party-1": {"encode": {"grade": "categorical", "job": "categorical", "opened": "days"}},
        "party-2": {"encode": {"start": "days"}, "date_format": {"start": "%d.%m.%Y"}},
    }
    assert _keys(FRAME) == taken
    assert _keys(pa.Table.from_pandas(FRAME)) == taken
    assert _keys(pl.from_pandas(FRAME.astype({"grade": str}).astype({"grade": "category"}))) == taken
    hot = {"grade": "one-hot", "job": "one-hot", "opened": "days"}
    assert _keys(FRAME, categorical=False)["party-1"] == {"encode": hot}
    named = taken["party-1"]["encode"] | {"job": "ordinal"}
    assert _keys(FRAME, {"job": "ordinal"})["party-1"] == {"encode": named}


def test_labels_of_a_category_are_their_values() -> None:
    """A column of labels is not one of codes."""
    assert column_in(FRAME, "grade").to_pylist()[:3] == [3, 1, 2]


def test_columns_that_need_a_word() -> None:
    """All in one message, with the parameters to write; without auto those that hold text or dates are such ones."""
    frame = FRAME.assign(job=[f"n{row}" for row in range(ROWS)], start="01.02.2019")
    with pytest.raises(InvalidInput) as refused:
        _keys(frame)
    said = str(refused.value)
    assert said.startswith("the columns of party-1 and party-2: 2 columns need a word as parameters of the estimator:")
    assert 'if it identifies records, id_column="job"; else X.drop(columns=["job"])' in said
    assert '  date_format={"start": "%d.%m.%Y"}  # as in 31.01.2024\n' in said
    assert _keys(frame.assign(job="a"), date_format="%m.%d.%Y")["party-2"]["date_format"] == {"start": "%m.%d.%Y"}
    with pytest.raises(InvalidInput) as refused:
        _keys(FRAME, None)
    assert '  encode={"job": "categorical", "opened": "days", "start": "days"}\n' in str(refused.value)


@pytest.mark.second_tier
def test_a_frame_is_trained_on_as_it_is() -> None:
    """Columns go by name in any order, and a new frame is read by the formats and the categories of the first."""
    y = np.asarray((FRAME["grade"] == 1) ^ (FRAME["x"] > 0.5))
    model = treetap.FederatedClassifier(PARTIES, **SMALL).fit(FRAME, y)
    assert model.encodings_ == _keys(FRAME)
    assert model.score(FRAME, y) > 0.8
    first = model.predict_proba(FRAME)
    np.testing.assert_array_equal(model.predict_proba(FRAME[FRAME.columns[::-1]]), first)
    plain = FRAME.astype({"grade": int}).assign(opened=FRAME["opened"].dt.strftime("%Y-%m-%d"))
    np.testing.assert_array_equal(model.predict_proba(plain), first)
    strict = {**SMALL, "policy": {"columns": {"category_partitions": False}}}
    barred = treetap.FederatedClassifier(PARTIES, **strict).fit(FRAME, y)
    assert barred.encodings_ == _keys(FRAME, categorical=False)


def test_a_simulated_model_reads_other_formats_too() -> None:
    """A format that is given after the training holds for what is predicted then, also of records predicted before."""
    frame, parties = FRAME[["x", "flag", "start"]], {"party-1": ["x", "flag"], "party-2": ["start"]}
    model = treetap.FederatedClassifier(parties, "party-2", **SMALL, simulate=True)
    first = model.fit(frame, np.arange(ROWS) > 20).predict_proba(frame)
    iso = frame.assign(start=DAYS.strftime("%Y-%m-%d"))
    assert (model.set_params(date_format={"start": "%Y-%m-%d"}).predict_proba(iso) == first).all()
    ambiguous = frame.assign(start="01.12.2019")
    days_first = model.set_params(date_format=None).predict_proba(ambiguous)
    months_first = model.set_params(date_format={"start": "%m.%d.%Y"}).predict_proba(ambiguous)
    assert (days_first != months_first).all()
