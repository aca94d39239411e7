"""Columns as attributes: texts in either encoding, missing cells, classes that are few, many, unknown or only one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.attacks.features.planted import planted, table_of
from tests.attacks.present import present
from treetap.attacks.features.attributes import classes_of
from treetap.attacks.features.evidence import RealBottom, Records, RecordSpace, columns_of
from treetap.attacks.networks.schema import Attribute
from treetap.neural.architectures import bottom_to_load
from treetap.neural.inputs import InputScaler
from treetap.neural.params import Bottom

pytestmark = pytest.mark.second_tier

KNOWN, VICTIMS = 60, 20


def attribute(cells: Any, tells: Any, **changes: Any) -> tuple[Attribute, dict[str, str]]:
    """The attribute of one column whose embeddings are one of 0 and 1 for each value of `tells`, and the reasons."""
    embeddings = np.eye(int(np.max(tells)) + 1)[tells]
    found = planted({"column": cells}, embeddings, KNOWN, **changes).figures("attributes")
    return found.attributes[0], found.reasons


def test_missing_cells_are_left_out() -> None:
    """Of auxiliary records and of victims, and counted; a column of text is one attribute."""
    tells = np.arange(KNOWN + VICTIMS) % 3
    cells = np.array(["a", "b", "c"], dtype=object)[tells]
    cells[:6] = cells[-5:] = None
    found, reasons = attribute(cells, tells)
    assert (found.kind, found.classes, found.auxiliary, found.records, found.left_out) == ("class", 3, 54, 15, 5)
    assert (present(found.raw).accuracy, reasons) == (1.0, {})


def test_a_column_is_the_same_in_either_encoding() -> None:
    """Texts as numbers of categories, or one feature each; a missing cell stays one."""
    cells = np.array(["b", None, "a", "b"], dtype=object)
    hot, ordinal = (columns_of(table_of({"c": cells}, encode=encode))["c"] for encode in ("one-hot", "ordinal"))
    assert hot.values() == ordinal.values() == cells.tolist()
    expected = [[0, 1], [np.nan, np.nan], [1, 0], [0, 1]]
    assert np.array_equal(hot.hot(("a", "b")), np.array(expected), equal_nan=True)
    assert hot.hot(("c",))[[0, 2, 3]].tolist() == [[0], [0], [0]]


def test_a_class_that_only_victims_have_is_scored_as_wrong() -> None:
    """As fewer auxiliary records than classes are: those that are there are guessed."""
    tells = np.concatenate([np.arange(KNOWN) % 30, np.arange(VICTIMS) * 3])
    found, _ = attribute(np.array([f"v{number}" for number in tells], dtype=object), tells)
    right = float(np.mean(tells[KNOWN:] < 30))
    assert found.classes == 30
    assert present(found.raw).accuracy == pytest.approx(right)
    assert present(found.raw).recall < 1.0


@pytest.mark.parametrize("value", [7.0, 0.5])
def test_a_constant_attribute_gives_the_floor(value: float) -> None:
    """With a reason; whole or not."""
    cells = np.full(KNOWN + VICTIMS, value)
    cells[-4:] = 9.0
    found, reasons = attribute(cells, np.arange(KNOWN + VICTIMS) % 3)
    assert found.raw == found.standardised == found.floor
    assert present(found.raw).accuracy == 0.8
    assert "all auxiliary records have the same value" in reasons["attributes, column"]


def test_columns_without_values() -> None:
    """None among the auxiliary records, or the victims: nothing is scored, with a reason for the former."""
    tells = np.arange(KNOWN + VICTIMS) % 3
    unknown = np.where(np.arange(KNOWN + VICTIMS) < KNOWN, np.nan, 1.0)
    found, reasons = attribute(unknown, tells)
    assert (found.auxiliary, found.raw, found.raw_r2) == (0, None, None)
    assert reasons == {"attributes, column": "no auxiliary record has a value"}
    found, reasons = attribute(np.where(np.isnan(unknown), 0.0, np.nan), tells)
    assert (found.records, found.left_out, found.raw, reasons["attributes, column"]) == (
        0,
        VICTIMS,
        None,
        "all auxiliary records have the same value, which is guessed of every victim",
    )


def test_kinds_of_columns() -> None:
    """Whole numbers with few different values are classes, others numbers, texts always classes."""
    draw = np.random.default_rng(0)
    given = columns_of(
        table_of(
            {
                "few": draw.integers(0, 5, 200),
                "many": draw.integers(0, 50, 200),
                "fractions": draw.choice([0.5, 1.5], 200),
                "names": np.array([f"n{number}" for number in range(200)], dtype=object),
            }
        )
    )
    found = {name: classes_of(column, 20) for name, column in given.items()}
    assert (found["few"], found["many"], found["fractions"]) == ((0.0, 1.0, 2.0, 3.0, 4.0), None, None)
    assert len(found["names"] or ()) == 200


def test_records_of_a_partys_model_in_the_attackers_space() -> None:
    """Its own encoding, means and order of columns are undone; of a column that it does not have there is the floor."""
    job, age = np.array(["x", "y", None, "z", "x"], dtype=object), np.array([1.0, 2.0, 3.0, np.nan, 9.0])
    own = table_of({"job": job, "age": age}, encode="ordinal")
    scaler = InputScaler.fit(own, np.arange(3))
    real = RealBottom(bottom_to_load(Bottom(width=2), scaler.shape), scaler, own.categories)
    assert not real.bottom.training  # its statistics stay as they were published
    auxiliary = table_of({"age": 2 * age, "other": np.arange(5.0), "job": job[[0, 1, 2, 4, 4]]})
    space = RecordSpace.of(auxiliary)
    inputs = scaler.apply(own).batch(np.arange(5)).numpy()[:, :2]
    found = real.in_space(Records(inputs, {}), space).numbers
    expected = space.records(replace(table_of({"age": age, "other": np.full(5, 2.0), "job": job}))).numbers
    known = ~np.isnan(expected)
    assert np.allclose(found[known], expected[known], atol=1e-6)
    assert known.sum() == 5 * 4 - 3


def test_missing_cells_are_no_part_of_records() -> None:
    """The mean record is that of the others, and so are the fit of an inverse network and its error."""
    text = np.array(["x", None, "x", "y"], dtype=object)
    space = RecordSpace.of(table_of({"age": np.array([1.0, np.nan, 2.0, 6.0]), "job": text}))
    assert np.allclose(space.floor(2).numbers, [[0.0, 2 / 3, 1 / 3]] * 2)
    age = np.random.default_rng(0).normal(size=KNOWN + VICTIMS)
    cells = np.where(np.arange(KNOWN + VICTIMS) % 5 == 0, np.nan, age)
    (decode,) = planted({"age": cells}, np.stack([age, -age], axis=1), KNOWN).figures("decode").reconstructions
    assert present(decode.raw).mse < 0.1 < 0.5 < present(decode.floor).mse
