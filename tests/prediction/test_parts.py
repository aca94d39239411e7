"""The parts of a prediction: those that every protocol shares know objective and classes, and no trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import treetap.party.prediction
from treetap.party.prediction.scores_on_disk import Outcome

HERE = Path(str(treetap.party.prediction.__file__)).parent
#: What a model of trees is made of: files of the library and of a party.
TREES = ("treetap.trees.ensemble", "treetap.trees.paths", "treetap.models.own_split", "treetap.party.prediction.tree_")


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_the_shared_parts_need_no_trees() -> None:
    """A record source, and whatever of this package it imports, could serve a model of another kind."""
    seen: set[str] = set()
    waiting = ["treetap.party.prediction.records"]
    while waiting:
        module = waiting.pop()
        seen.add(module)
        found = set(imports(HERE / f"{module.rpartition('.')[2]}.py"))
        assert [name for name in found if name.startswith(TREES)] == [], module
        waiting += [name for name in found if name.startswith("treetap.party.prediction.") and name not in seen]
    shared = (
        "applicants",
        "look_up",
        "reasons",
        "records",
        "steps",
        "opened_model",
        "batch",
        "scores_on_disk",
        "query_counts",
    )
    assert seen == {f"treetap.party.prediction.{name}" for name in shared}


@pytest.mark.parametrize(
    ("objective", "classes", "scores", "expected"),
    [
        ("binary:logistic", ["no", "yes"], [[0.0], [2.0]], {"prediction": ["no", "yes"], "score": [0.0, 2.0]}),
        ("binary:logistic", ["no", "50%\n"], [[0.0]], {"probability_50%25%0A": [0.5], "score": [0.0]}),
        ("reg:squarederror", [], [[1.5], [-2.0]], {"prediction": [1.5, -2.0], "score": [1.5, -2.0]}),
        ("squared_error", [], [[0.25]], {"prediction": [0.25], "score": [0.25]}),
        ("gini", ["a", "b"], [[0.75, 0.25]], {"prediction": ["a"], "probability_a": [0.75], "score_b": [0.25]}),
        ("multi:softprob", ["a", "b", "c"], [[0.0, 9.0, 0.0]], {"prediction": ["b"], "score_b": [9.0]}),
    ],
)
def test_an_objective_says_what_scores_mean(
    objective: str, classes: list[str], scores: list[list[float]], expected: dict[str, list[object]]
) -> None:
    """Columns of a file of predictions follow from objective and classes alone."""
    columns = pa.table(Outcome.of(objective, classes, np.array(scores)).columns(classes, pa.string()))
    assert {name: columns.column(name).to_pylist() for name in expected} == expected
