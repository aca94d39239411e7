"""Warnings of predictions whose tables have cells that the model takes for unknown or missing."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

import treetap

pytestmark = pytest.mark.second_tier
SETTINGS = {"n_estimators": 2, "max_depth": 2, "key_bits": 1024, "verbose": False, "min_child_weight": 0.0}


def _frames(words: list[str]) -> dict[str, pa.Table]:
    count = len(words)
    numbers = np.linspace(-1.0, 1.0, count)
    return {"bank": pa.table({"x": numbers}), "telco": pa.table({"k": words, "z": numbers**2})}


def test_a_federation_and_a_loaded_model_warn(tmp_path: object) -> None:
    """By party and count; a table that is like that of the training warns of nothing."""
    words, labels = ["red", "blue", "green", "red"] * 12, np.array([0, 1, 1, 0] * 12)
    with treetap.federation(["bank", "telco"], workers=1, policy={"keys": {"min_key_bits": 1024}}) as running:
        model = treetap.FederatedClassifier(federation=running, encode={"k": "categorical"}, **SETTINGS)
        model.fit(_frames(words), labels)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            model.predict(_frames(words))
        with pytest.warns(UserWarning, match="telco: 3 cells of no category of the training in the table to predict"):
            model.predict(_frames(["Red", "azure", "x", "red"]))
        loaded = treetap.load_model(model.save(f"{tmp_path}/model"))
    with pytest.warns(UserWarning, match="telco: 1 cell of no category.*; columns 'k'$"):
        loaded.predict(_frames(["Red", "blue"]))
    with pytest.raises(ValueError, match="column 'k': all 2 cells are of no category of the training"):
        loaded.predict(_frames(["Red", "Blue"]))
