"""Digests of the ids that a model was trained on."""

from __future__ import annotations

import base64

import pytest

from treetap.errors import DataError
from treetap.models.keyed_ids import any_trained, trained_ids

IDS = [f"r{i}" for i in range(1000)]


def test_an_id_of_the_training_is_recognised() -> None:
    """In whatever order, among whatever others; another one is not."""
    entry = trained_ids(IDS)
    assert entry == trained_ids(reversed(IDS))
    assert any_trained(entry, ["x", "r999"])
    assert not any_trained(entry, ["x", "r1000", ""])
    assert not any_trained(entry, [])
    assert not any_trained(trained_ids([]), IDS)


def test_an_entry_has_no_id() -> None:
    """Eight bytes of each, in an order that is not that of the table."""
    kept = base64.b64decode(trained_ids(IDS))
    assert len(kept) == 8 * len(IDS)
    assert b"r99" not in kept


@pytest.mark.parametrize("entry", [None, 7, "é", "abc", base64.b64encode(b"1234567").decode()])
def test_a_manifest_without_an_entry(entry: object) -> None:
    """Such a model cannot say what it was trained on, so that nothing may be scored by it."""
    with pytest.raises(DataError, match="has no trained_ids"):
        any_trained(entry, IDS)
