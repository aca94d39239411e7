"""`treetap data images`: sets of images as tables that parties read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands.command import treetap_here
from treetap.tables.config import TableConfig
from treetap.tables.label_columns import cells_of
from treetap.tables.reading import Table, read_table

COLOUR = np.random.default_rng(3).integers(0, 256, (6, 4, 7, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 0, 2, 1], dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data sets, as the environment names it, with a set in colour."""
    monkeypatch.setenv("TREETAP_DATA", str(tmp_path))
    _save(tmp_path, "cifar10_subset", COLOUR)
    return tmp_path


def _save(folder: Path, name: str, images: np.ndarray[Any, Any], **changes: Any) -> None:
    kinds = {"images": images, "labels": LABELS}
    arrays = {f"{part}_{kind}": each for part in ("train", "test") for kind, each in kinds.items()}
    np.savez(folder / f"{name}.npz", **arrays | changes)


def _read(path: Path, *columns: str) -> Table:
    config = TableConfig(path=path, id="id", columns=list(columns), label="label")
    return read_table(config, with_label=True, missing=None)


def test_images_come_back_channels_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of a part in one column; a set without channels stays without."""
    out = folder / "t.parquet"
    assert treetap_here("data", "images", "cifar10_subset", str(out)) == 0
    assert f"{out}: 6 images" in capsys.readouterr().out
    table = _read(out, "image")
    np.testing.assert_array_equal(table.tensors["image"], COLOUR.transpose(0, 3, 1, 2))
    assert table.ids[:2] == ["train-00000", "train-00001"]
    assert table.label is not None
    assert cells_of(table.label).to_pylist() == LABELS.tolist()
    _save(folder, "fashion_mnist", COLOUR[..., 0])
    assert treetap_here("data", "images", "fashion_mnist", str(out), "--part", "test") == 0
    table = _read(out, "image")
    np.testing.assert_array_equal(table.tensors["image"], COLOUR[..., 0])
    assert table.ids[0] == "test-00000"


def test_halves_are_two_columns(folder: Path) -> None:
    """Together they are the image; `--rows` takes the first ones."""
    out = folder / "t.parquet"
    assert treetap_here("data", "images", "cifar10_subset", str(out), "--halves", "--rows", "4") == 0
    halves = _read(out, "left", "right").tensors
    assert [each.shape for each in halves.values()] == [(4, 3, 4, 3), (4, 3, 4, 4)]
    whole = np.concatenate(list(halves.values()), axis=3)
    np.testing.assert_array_equal(whole, COLOUR[:4].transpose(0, 3, 1, 2))


@pytest.mark.second_tier(but=5)
@pytest.mark.parametrize(
    ("words", "changes", "says"),
    [
        (["fars", "t.parquet"], {}, "fars: no such set of images; there are fashion_mnist, cifar10_subset, cifar100"),
        (["cifar10_subset", "t.csv"], {}, "t.csv: tensors are kept in Parquet"),
        (["cifar10_subset", "t.parquet", "--part", "all"], {}, "--part all: must be one of train, test"),
        (["cifar10_subset", "t.parquet", "--rows", "7"], {}, "--rows 7: the train part has 6 images"),
        (["cifar100_subset", "t.parquet"], {}, "cifar100_subset.npz: there is no such file; `treetap data list` says"),
        (["cifar10_subset", "none/t.parquet"], {}, "t.parquet: cannot be written: No such file"),
        (["cifar10_subset", "t.parquet"], {"train_images": COLOUR / 255}, "train_images is not uint8 of (N,"),
        (["cifar10_subset", "t.parquet"], {"train_images": COLOUR[0, 0]}, "train_images is not uint8 of (N,"),
        (["cifar10_subset", "t.parquet"], {"train_labels": LABELS[:5]}, "train_labels is not a class number for each"),
        (["cifar10_subset", "t.parquet"], {"train_labels": LABELS.astype(object)}, "has no readable arrays train_im"),
    ],
)
def test_faults_are_usage_errors(
    words: list[str], changes: dict[str, Any], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown set or part, a file that is not there or not a set of images: status 2, and nothing is written."""
    _save(folder, "cifar10_subset", COLOUR, **changes)
    assert treetap_here("data", "images", words[0], str(folder / words[1]), *words[2:]) == 2
    assert says in capsys.readouterr().err
    assert not (folder / words[1]).exists()


def test_a_folder_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an option or the environment's variable."""
    monkeypatch.delenv("TREETAP_DATA", raising=False)
    assert treetap_here("data", "images", "fashion_mnist", "t.parquet") == 2
    assert "add --from FOLDER or set TREETAP_DATA" in capsys.readouterr().err
