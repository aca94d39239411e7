"""A party's inputs: standardised numbers, indicators, categories as they are, pixels by channel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from treetap.errors import DataError  # noqa: E402
from treetap.neural.inputs import InputScaler  # noqa: E402
from treetap.tables.categories import Category  # noqa: E402
from treetap.tables.features import Held  # noqa: E402
from treetap.tables.reading import Table  # noqa: E402
from treetap.tables.record_ids import Ids  # noqa: E402

pytestmark = pytest.mark.second_tier

NAN = float("nan")


def table(columns: dict[str, list[float]], records: int | None = None, **more: Any) -> Table:
    """A table of these columns."""
    count = len(next(iter(columns.values()))) if records is None else records
    values = np.array(list(columns.values()), dtype=np.float64).reshape(len(columns), count).T
    ids = [str(number) for number in range(count)]
    return Table(Path("own.csv"), Ids.of(ids), list(columns), Held(values), None, np.arange(count), **more)


def every(which: Table) -> np.ndarray:
    """Places of all records."""
    return np.arange(len(which.ids))


def scaled(which: Table, records: list[int] | None = None) -> np.ndarray:
    """All records of a table, as its scaler on some of them makes them."""
    fitted = every(which) if records is None else np.array(records)
    return np.asarray(InputScaler.fit(which, fitted).apply(which).batch(every(which)).numpy())


RED = Category("one-hot", ["red"], ["colour=red"])
BOTH = Category("one-hot", ["blue", "red"], ["colour=blue", "colour=red"])
SCALED: list[tuple[dict[str, list[float]], Category | None, list[int] | None, list[list[float]]]] = [
    # by the mean and the deviation of the records of the training
    ({"x": [1.0, 5.0, 11.0]}, None, [0, 1], [[-1.0], [1.0], [4.0]]),
    # a missing cell is the mean beside an indicator, one that is missing later only the mean
    ({"x": [1.0, NAN, 5.0]}, None, None, [[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]),
    ({"x": [1.0, 5.0, NAN]}, None, [0, 1], [[-1.0], [1.0], [0.0]]),
    ({"x": [NAN, NAN]}, None, None, [[0.0, 1.0], [0.0, 1.0]]),
    # categories stay as they are, and a missing text has one indicator
    (
        {"colour=red": [1.0, 0.0, 0.0, 0.0], "x": [1.0, 5.0, 1.0, 5.0]},
        RED,
        None,
        [[1.0, -1.0], [0.0, 1.0], [0.0, -1.0], [0.0, 1.0]],
    ),
    (
        {"colour=blue": [1.0, NAN], "colour=red": [0.0, NAN], "x": [NAN, 1.0]},
        BOTH,
        None,
        [[1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0, 0.0]],
    ),
]


@pytest.mark.parametrize(("columns", "category", "records", "expected"), SCALED)
def test_numbers_by_hand(
    columns: dict[str, list[float]], category: Category | None, records: list[int] | None, expected: list[list[float]]
) -> None:
    which = table(columns, categories={} if category is None else {"colour": category})
    assert which.made == set([] if category is None else category.features)
    assert scaled(which, records).tolist() == expected


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1, -1e300])
def test_a_constant_column_is_zero(value: float) -> None:
    """Rounding gives equal numbers a deviation that is not quite 0, by which nothing may be divided."""
    train, later = table({"x": [value] * 1000}), table({"x": [value + 0.5]})
    scaler = InputScaler.fit(train, every(train))
    assert scaler.deviation == (1.0,)
    assert not scaler.apply(train).batch(every(train)).any()
    assert scaler.apply(later).batch(every(later)).tolist() == [[np.float32(value + 0.5 - value)]]


def test_a_table_without_columns() -> None:
    """Records without numbers: a party that has only ids takes part."""
    which = table({}, 4)
    inputs = InputScaler.fit(which, every(which)).apply(which)
    assert (len(inputs), inputs.shape.numbers) == (4, 0)
    assert inputs.batch(np.array([1, 2, 3])).shape == (3, 0)


def test_pixels_are_standardised_by_channel() -> None:
    """Each channel has its own mean and deviation, over the records of the training alone."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 5), dtype=np.uint8)
    pixels[:, 2] = 51
    which = table({}, 6, tensors={"photo": pixels})
    inputs = InputScaler.fit(which, np.arange(4)).apply(which)
    assert inputs.shape.images == ((3, 4, 5),)
    expected = pixels.astype(np.float64)
    for channel in range(2):
        of_training = expected[:4, channel]
        expected[:, channel] = (expected[:, channel] - of_training.mean()) / of_training.std()
    expected[:, 2] = 0.0
    found = inputs.batch(np.array([5, 0])).numpy()
    assert found == pytest.approx(expected[[5, 0]], abs=1e-5)


@pytest.mark.parametrize("level", [0, 51, 85, 255])
def test_images_of_one_grey_are_zero(level: int) -> None:
    """Equal pixels have deviation 1, whatever rounding says, and without channels there is one."""
    which = table({}, 3, tensors={"photo": np.full((3, 28, 28), level, dtype=np.uint8)})
    scaler = InputScaler.fit(which, every(which))
    assert scaler.images["photo"].deviation == (1.0,)
    found = scaler.apply(which).batch(every(which))
    assert found.shape == (3, 1, 28, 28)
    assert float(found.abs().max()) < 1e-4


def test_pixels_stay_bytes_until_a_batch_needs_them() -> None:
    """No copy of the images is made when they become inputs."""
    pixels = np.zeros((5, 4, 4), dtype=np.uint8)
    which = table({}, 5, tensors={"photo": pixels})
    inputs = InputScaler.fit(which, every(which)).apply(which)
    pixels[3] = 255
    assert inputs.batch(np.array([3])).abs().sum() > 0
    assert inputs.batch(np.array([2])).abs().sum() == 0


def test_numbers_and_images_are_joined_in_a_row() -> None:
    """Numbers, indicators, then the pixels of each column of images."""
    images = {"a": np.zeros((2, 2, 3), dtype=np.uint8), "b": np.zeros((2, 3, 1, 1), dtype=np.uint8)}
    which = table({"x": [1.0, NAN]}, tensors=images)
    inputs = InputScaler.fit(which, every(which)).apply(which)
    assert inputs.shape.numbers == 2 + 6 + 3
    assert inputs.batch(every(which)).shape == (2, 11)


def test_a_scaler_survives_its_manifest() -> None:
    """JSON and back: the same scaler, which makes the same inputs bit by bit."""
    images = {"b": np.random.default_rng(1).integers(0, 256, (3, 2, 2), dtype=np.uint8)}
    which = table({"x": [0.1, NAN, 0.7], "y": [1.0, 2.0, 4.0]}, tensors=images)
    scaler = InputScaler.fit(which, every(which))
    again = InputScaler.from_dict(json.loads(json.dumps(scaler.to_dict())))
    assert again == scaler
    one, other = (each.apply(which).batch(every(which)) for each in (scaler, again))
    assert torch.equal(one, other)


def _pixels(*shape: int) -> dict[str, Any]:
    return {"photo": np.zeros(shape, dtype=np.uint8)}


OTHER = "has other columns than the table on which the model was trained"
REFUSED: list[tuple[Table, Table, str]] = [
    (table({"x": [1e200, -1e200]}), table({}, 1), "column 'x': the numbers are too large to standardise; rescale"),
    (
        table({"y": [0.0, 1.0], "x": [0.0, 1.0]}),
        table({"y": [0.0], "x": [1e40]}),
        "column 'x' has a number too far from those of the training",
    ),
    *[
        (table({"x": [1.0, 2.0]}, tensors=_pixels(2, 2, 2)), other, OTHER)
        for other in (
            table({"y": [1.0]}, tensors=_pixels(1, 2, 2)),
            table({"x": [1.0]}),
            table({"x": [1.0]}, tensors={"other": np.zeros((1, 2, 2), dtype=np.uint8)}),
        )
    ],
    (
        table({}, 2, tensors=_pixels(2, 28, 14)),
        table({}, 2, tensors=_pixels(2, 3, 28, 28)),
        "column 'photo' has images of 3 × 28 × 28, and those of the training have 1 × 28",
    ),
]


@pytest.mark.parametrize(("trained", "later", "said"), REFUSED)
def test_tables_that_do_not_fit(trained: Table, later: Table, said: str) -> None:
    """File and column are named; small numbers are no fault."""
    with pytest.raises(DataError, match=rf"own\.csv: {said}"):
        InputScaler.fit(trained, every(trained)).apply(later)
    assert np.isfinite(scaled(table({"x": [1e-200, 2e-200]}))).all()
