"""What belongs to rows goes by their names: each public method, each argument that has rows, each kind of frame."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import treetap
from treetap.lab.api.fitted import Fitted
from treetap.lab.api.frames import ID, Library

COUNT = 16
DRAW = np.random.default_rng(5)
ORDER = DRAW.permutation(COUNT)
NAMES = [f"k{(5 * row) % COUNT:02d}" for row in range(COUNT)]
TABLE = pd.DataFrame(DRAW.normal(size=(COUNT, 4)).round(3), columns=list("abcd")).assign(key=NAMES)
SHUFFLED = [NAMES[row] for row in ORDER]
PARTIES = {"party-1": ["a", "b"], "party-2": ["c", "d"]}
SMALL: dict[str, Any] = {"n_estimators": 1, "max_depth": 2, "verbose": False}
MADE: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "array": pd.DataFrame.to_numpy,
}


class Kind(NamedTuple):
    """Frames of a library, or of one for each party.

    `names`: of the rows, by "ids" in a column, an "index", or "none". `shuffled`: what becomes of a pandas Series in
    another order than the rows: it is "aligned", "refused", or taken "by place".
    """

    libraries: str | tuple[str, str]
    names: str
    shuffled: str

    def of(self, rows: pd.DataFrame, second: pd.DataFrame | None = None) -> Any:
        """Rows of `TABLE` as this kind. `second`: those of the second party."""
        if isinstance(self.libraries, str):
            return self._made(self.libraries, rows, [*"abcd"])
        each = zip(PARTIES.items(), self.libraries, (rows, rows if second is None else second), strict=True)
        return {party: self._made(library, frame, columns) for (party, columns), library, frame in each}

    def _made(self, library: str, rows: pd.DataFrame, columns: list[str]) -> Any:
        if self.names == "ids":
            return MADE[library](rows[[*columns, "key"]])
        return MADE[library](rows.set_index("key")[columns] if self.names == "index" else rows[columns])

    @property
    def given(self) -> dict[str, str]:
        """The keyword that names the column of ids."""
        return {"id_column": "key"} if self.names == "ids" else {}

    @property
    def joined(self) -> bool:
        """True if the frames of two parties are joined by names, and may be in two orders."""
        return not isinstance(self.libraries, str) and (self.names == "ids" or self.libraries == ("pandas", "pandas"))

    def series(self, values: Any) -> pd.Series[Any]:
        """A value of each row, under its name where it has one."""
        return pd.Series(values, index=pd.RangeIndex(COUNT) if self.names == "none" else NAMES)


KINDS = [
    *(Kind(one, "ids", "aligned") for one in ("pandas", "polars", "arrow")),
    *(Kind((one, one), "ids", "aligned") for one in ("pandas", "polars", "arrow")),
    *(Kind(one, "none", "by place") for one in ("polars", "arrow", "array")),
    *(Kind((one, one), "none", "by place") for one in ("polars", "arrow", "array")),
    Kind("pandas", "index", "aligned"),
    Kind("pandas", "none", "refused"),
    Kind(("pandas", "pandas"), "index", "aligned"),
    Kind(("pandas", "pandas"), "none", "aligned"),
    Kind(("polars", "pandas"), "index", "aligned"),
    Kind(("pandas", "array"), "index", "aligned"),
]
#: The kind with which all is tried in the first tier.
FIRST = Kind("polars", "ids", "aligned")


class _Taken(Exception):
    """The records of a training are known, which are all that a test wants."""


def _cells(tables: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The cells of all parties by record, in an order that is not that of their ids."""
    joined: dict[str, list[Any]] = {}
    for own in tables.values():
        for row in own.records.to_pylist():
            joined.setdefault(row.pop(ID), []).extend(row.values())
    return sorted(map(tuple, joined.values()))


def _usual(estimator: str) -> Any:
    return TABLE["a"].to_numpy() if estimator == "FederatedRegressor" else (TABLE["a"] > 0).astype(int).to_numpy()


def _fit(estimator: str, argument: str, kind: Kind, data: Any, values: Any) -> Any:
    """The records with which a fit would train and be measured, and what belongs to them."""
    taken: list[Any] = []

    def train(tables: Any, job: Any, holder: str, evaluated: Any, *, verbose: bool) -> None:
        taken.extend([_cells(tables), evaluated and _cells(evaluated)])
        raise _Taken

    usual, protocol = kind.series(_usual(estimator)), "boosting"
    if kind.shuffled == "by place":
        usual = usual.to_numpy()
    y: Any = usual
    further: dict[str, Any] = {}
    if argument in ("X", "y"):
        y = values
    elif argument == "y of each party":  # of classes 0 to 3 the first two are labels of the first party
        protocol, holds = "pivodl", values < 2
        apart = (values % 2).where if isinstance(values, pd.Series) else lambda has: np.where(has, values % 2, np.nan)
        y = {"party-1": apart(holds), "party-2": apart(~holds)}
    elif argument == "sample_weight":
        further = {argument: values}
    else:
        further = {"eval_set": [(data, values if argument == "eval_set" else usual)]}
        further |= {argument: [values]} if argument == "sample_weight_eval_set" else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treetap.lab.api.loopback.kept", lambda _: SimpleNamespace(train=train))
        with pytest.raises(_Taken):
            getattr(treetap, estimator)(protocol=protocol, **SMALL, **kind.given).fit(data, y, **further)
    return taken


@cache
def _fitted(estimator: str, kind: Kind) -> Any:
    model = getattr(treetap, estimator)(simulate=True, base_score=0.5, **SMALL, **kind.given)
    return model.fit(kind.of(TABLE), _usual(estimator))


@cache
def _loaded(kind: Kind) -> Any:
    folder = TemporaryDirectory()
    model = treetap.load_model(_fitted("FederatedClassifier", kind).save(Path(folder.name) / "model"))
    model.folder = folder  # type: ignore[union-attr]  # it stays as long
    return model


def _score(estimator: str, argument: str, kind: Kind, data: Any, values: Any) -> Any:
    model = _fitted(estimator, kind)
    if argument == "sample_weight":
        y = kind.series(_usual(estimator)[::-1])
        return round(model.score(data, y.to_numpy() if kind.shuffled == "by place" else y, values), 9)
    return round(model.score(data, values), 9)


#: Method → the arguments that have a value for each row, and what each is tried with.
VALUES: dict[str, Callable[[str], Any]] = {
    "y": _usual,
    "eval_set": _usual,
    "sample_weight": lambda _: np.arange(1.0, COUNT + 1),
    "sample_weight_eval_set": lambda _: np.arange(1.0, COUNT + 1),
    "y of each party": lambda _: np.arange(COUNT) % 4,
}
ESTIMATORS = ("FederatedClassifier", "FederatedRegressor")
BY_ROW = [
    *((name, "fit", argument) for name in ESTIMATORS for argument in VALUES if argument != "y of each party"),
    ("FederatedClassifier", "fit", "y of each party"),
    *((name, "score", argument) for name in ESTIMATORS for argument in ("y", "sample_weight")),
]


def _tried(trials: Sequence[Any], every: Any = None) -> pytest.MarkDecorator:
    """Each trial with each kind of frames; of the first tier are those with `FIRST`, and `every` with all kinds."""
    later = pytest.mark.second_tier
    return pytest.mark.parametrize(
        ("kind", "trial"),
        [
            pytest.param(kind, trial, id=f"{trial}-{kind[:2]}", marks=() if kind == FIRST or trial == every else later)
            for kind in KINDS
            for trial in trials
        ],
    )


#: Methods whose `X` is records to predict.
PREDICT = ("predict", "predict_proba", "predict_frame", "explain")
#: Arguments that hold no rows: names, settings, places.
NO_ROWS = {
    *("address", "ax", "attacks", "base_model", "certs", "client", "content", "coordinator", "deadline_s", "defences"),
    *(
        "evaluated",
        "federated",
        "folder",
        "importance_type",
        "normalise",
        "job",
        "label_holder",
        "max_num_features",
        "look_up",
        "metric",
        "model",
        "overwrite",
        "reasons",
        "records",
    ),
    *(
        "dealer",
        "operator_file",
        "options",
        "others",
        "parties",
        "party",
        "policy",
        "protocol",
        "run",
        "serve",
        "table",
        "verbose",
    ),
    *("workdir", "workers", "timeout", "number", "file", "attack", "attributed", "by_tree", "name"),
    *("frame", "tables"),  # one table with its labels; tables of parties with their ids
}


def _classes(kind: Any) -> Iterator[type]:
    """The classes of treetap in a type."""
    if inspect.isclass(kind) and kind.__module__.startswith("treetap"):
        yield kind
    for part in typing.get_args(kind):
        yield from _classes(part)


def test_each_argument_with_rows_has_its_trial() -> None:
    """By the signatures of all that is public: a new method, argument or library fails here until it has its row."""
    faces = [getattr(treetap, name) for name in treetap.__all__]
    returned = [
        it for face in faces if not inspect.isclass(face) for it in _classes(typing.get_type_hints(face)["return"])
    ]
    methods = {face.__name__: face for face in faces if not inspect.isclass(face)}
    for face in {*returned, *filter(inspect.isclass, faces)}:
        own = inspect.getmembers(face, lambda it: inspect.isfunction(it) and it.__module__.startswith("treetap"))
        methods |= {f"{face.__name__}.{name}": method for name, method in own if not name.startswith("_")}
    found = {
        (name, argument)
        for name, method in methods.items()
        for argument in set(inspect.signature(method).parameters) - NO_ROWS - {"self"}
    }
    tried = {(f"{name}.{method}", argument) for name, method, argument in BY_ROW if argument in VALUES}
    tried -= {("FederatedClassifier.fit", "y of each party")}
    tried |= {(f"{name}.{method}", "X") for name in ESTIMATORS for method in ("fit", "score", "serve", *PREDICT)}
    tried |= {(f"LoadedModel.{method}", argument) for method in PREDICT for argument in ("X", "id_column")}
    tried |= {("Client.predict", "ids"), ("PartyModel.predict", "X"), ("PartyModel.predict_proba", "X")}
    assert found == tried - {("FederatedRegressor.predict_proba", "X")}
    libraries = {library for kind in KINDS for library in np.ravel(kind.libraries)}
    assert libraries == set(MADE) == {*typing.get_args(Library), "array"}


@pytest.mark.second_tier(but=12)
@_tried(BY_ROW, every=BY_ROW[0])
def test_values_of_rows(kind: Kind, trial: tuple[str, str, str]) -> None:
    """In any order under the rows' names; refused under others; by place where nothing has names."""
    estimator, method, argument = trial
    of = _fit if method == "fit" else _score
    data, series = kind.of(TABLE), kind.series(VALUES[argument](estimator))
    right = of(estimator, argument, kind, data, series.to_numpy())
    assert of(estimator, argument, kind, data, series) == right
    shuffled = series.iloc[ORDER]
    own = list(series.index)
    wrong = [series.set_axis(index) for index in ([*own[1:], "k99"], [own[1], *own[1:]], [f"x{row}" for row in own])]
    if kind.shuffled == "by place":
        for values in (shuffled, *wrong):
            assert of(estimator, argument, kind, data, values) == of(estimator, argument, kind, data, values.to_numpy())
        return
    for values in wrong + [shuffled] * (kind.shuffled == "refused"):
        with pytest.raises(ValueError, match="has another index than the rows of X"):
            of(estimator, argument, kind, data, values)
    if kind.shuffled == "aligned":
        assert of(estimator, argument, kind, data, shuffled) == right
        other = kind.of(TABLE.iloc[ORDER], TABLE[::-1] if kind.joined else None)
        assert of(estimator, argument, kind, other, series) == right


def _plain(found: Any) -> Any:
    """What a method says of each row."""
    if hasattr(found, "values") and not isinstance(found, pd.DataFrame):
        return found.values
    return found if isinstance(found, np.ndarray) else np.asarray(found["prediction"])


@_tried(["FederatedClassifier", "FederatedRegressor", "LoadedModel"])
def test_records_to_predict(kind: Kind, trial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer for each row of X in its order, whatever the order of other parties; ids are kept, or missed."""
    monkeypatch.setattr(
        "treetap.lab.api.explanations._imported", lambda *_: SimpleNamespace(Explanation=SimpleNamespace)
    )
    model, given = (_loaded(kind), kind.given) if trial == "LoadedModel" else (_fitted(trial, kind), {})
    if trial == "LoadedModel" and kind.libraries == "array":
        with pytest.raises(ValueError, match="X must be a data frame"):
            model.predict(kind.of(TABLE))
        return
    for method in (getattr(model, name) for name in PREDICT if hasattr(model, name)):
        found = _plain(method(kind.of(TABLE), **given))
        assert len(np.unique(found, axis=0)) > 1
        assert (_plain(method(kind.of(TABLE.iloc[ORDER]), **given)) == found[ORDER]).all()
        if kind.joined:
            assert (_plain(method(kind.of(TABLE, TABLE.iloc[ORDER]), **given)) == found).all()
        if kind.given:
            with pytest.raises(ValueError, match=r"id_column = 'key': .* no such column"):
                method(kind._replace(names="none").of(TABLE), **given)
    if kind.given:
        assert np.asarray(model.predict_frame(kind.of(TABLE.iloc[ORDER]), **given)["key"]).tolist() == SHUFFLED


@_tried(["serve"])
def test_a_served_record_is_asked_for_by_its_name(kind: Kind, trial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of what is served are the rows' own, and each has its own cells."""
    served: list[Any] = []

    @contextmanager
    def serve(job: str, tables: Any, protocol: str, **_: bool) -> Iterator[str]:
        records = tables["party-1"].records
        served.append(dict(zip(*(column.to_pylist() for column in records.columns[:2]), strict=True)))
        yield "127.0.0.1:1"

    fake = SimpleNamespace(serve=serve, client="app")
    model = _fitted("FederatedClassifier", kind)
    monkeypatch.setattr(Fitted, "loopback", fake)
    with getattr(model, trial)(kind.of(TABLE.iloc[ORDER])) as found:
        assert served == [dict(zip(found.ids, TABLE["a"].iloc[ORDER], strict=True))]
        if kind.names != "none":
            assert found.ids == SHUFFLED


def test_ids_that_a_client_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are in the order of the ids, in every kind of list; an index beside them says nothing."""

    def ask(_: Any, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        if method == "GET":
            return 200, {"most_ids": 5}
        return 200, {"away": [], "predictions": [{"id": one, "prediction": int(one[1:])} for one in body["ids"]]}

    monkeypatch.setattr(treetap.Client, "_ask", ask)
    client = treetap.Client("http://127.0.0.1:1", client="app")
    for ids in (NAMES, np.array(NAMES), pd.Series(NAMES, index=ORDER), pl.Series(NAMES), pa.array(NAMES)):
        assert client.predict(ids)["prediction"].tolist() == [int(name[1:]) for name in NAMES]


def test_two_meanings_of_an_index_are_refused() -> None:
    """Whole numbers may be a row's number and another row's id; the index of X itself is no doubt."""
    ids, y = TABLE.assign(key=ORDER), (TABLE["a"] > 0).astype(int)
    for name, data in {"polars": pl.from_pandas(ids), "pandas": ids}.items():
        with pytest.raises(ValueError, match="y: its index could be the rows' index or their ids, which differ"):
            _fit("FederatedClassifier", "y", KINDS[0], data, y.set_axis(list(range(COUNT))))
        if name == "pandas":
            right = _fit("FederatedClassifier", "y", KINDS[0], data, y.to_numpy())
            assert _fit("FederatedClassifier", "y", KINDS[0], data, y) == right


def test_frames_by_place_whose_indexes_differ_are_refused() -> None:
    """An array beside two frames of pandas: their rows have names, which contradict their places."""
    three = {
        "one": TABLE.set_index("key")[["a"]],
        "two": TABLE.iloc[ORDER].set_index("key")[["b"]],
        "three": np.eye(COUNT),
    }
    with pytest.raises(ValueError, match="the index of two is another than that of one: set id_column"):
        treetap.FederatedClassifier(**SMALL, simulate=True).fit(three, _usual("FederatedClassifier"))


@pytest.mark.second_tier
def test_a_local_prediction_names_the_columns_itself() -> None:
    """There is no party's log: one warning says all, and no line of the log comes beside it."""
    program = f"""
import pandas as pd, treetap
X = pd.DataFrame({{"a": range(20), "kind": list("uv") * 10}})
model = treetap.FederatedClassifier(encode={{"kind": "categorical"}}, simulate=True, **{SMALL}).fit(X, X["a"] > 9)
model.predict(X.assign(kind=["w"] + ["u"] * 19))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    (said,) = [line for line in done.stderr.splitlines() if "category" in line]
    assert "UserWarning: party-2: 1 cell of no category of the training in the table to predict" in said
    assert said.endswith("; columns 'kind'")
