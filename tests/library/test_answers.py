"""Answers of workers are data: values of kernels and errors are read, and nothing is called."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetap.errors import Interrupted, Malformed
from treetap.workers.answers import read_answer

VALUES = [
    None,
    (False, [1, -(2**4000), b"\0" * 70_000, "text", {"key": (1.5, True)}]),
    np.arange(12, dtype=np.int64).reshape(3, 4),
    np.asfortranarray(np.ones((3, 2))),
    np.array([b"ab", b"c"]),
    np.float64(0.25),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_of_kernels_are_read(value: Any) -> None:
    """Numbers, bytes, containers and arrays come back as they were, by every protocol of pickle that is in use."""
    for protocol in (4, 5):
        found = read_answer(pickle.dumps(value, protocol=protocol))
        assert type(found) is type(value)
        np.testing.assert_equal(found, value)


def test_errors_are_read_with_their_notes() -> None:
    """An error keeps its type, text and notes."""
    error = Interrupted("the node is gone")
    error.add_note("in worker 1")
    found = read_answer(pickle.dumps((True, error)))[1]
    assert (type(found), str(found), found.__notes__) == (Interrupted, "the node is gone", ["in worker 1"])


class Command:
    """Pickled as a call that writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def test_no_function_is_called(tmp_path: Path) -> None:
    """A pickle that names a function is refused, also inside an error, before anything is called."""
    for value in (Command(tmp_path / "made"), (True, ValueError(Command(tmp_path / "made"))), eval, Path("x")):
        with pytest.raises(Malformed, match="no value of a kernel"):
            read_answer(pickle.dumps(value))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("data", [b"", b"\x80", b"no pickle", pickle.dumps([1, 2])[:-3], b"\x80\x04."], ids=repr)
def test_damaged_answers_are_named(data: bytes) -> None:
    """What is no pickle, or part of one, is the worker's fault."""
    with pytest.raises(Malformed, match="cannot be read"):
        read_answer(data)
