"""Answers of workers are data: values of kernels and errors are read, and nothing is called."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetap.errors import Interrupted, Malformed
from treetap.workers.cluster.calls import array_of, outcome_of, read_answer, scalar_of, write_answer

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
    """Numbers, bytes, containers and arrays come back as they were."""
    found = read_answer(write_answer(value))
    assert type(found) is type(value)
    np.testing.assert_equal(found, value)


def test_arrays_keep_order_type_and_writability() -> None:
    """Sums over an array that was sent are those of the sender, in the same order, and it can be changed."""
    for value in (np.ones((3, 2), order="F"), np.arange(6, dtype=">i2")[::2], np.empty((0, 4), np.uint8)):
        found = read_answer(write_answer([value]))[0]
        assert (found.dtype, found.flags.fnc, found.flags.writeable) == (value.dtype, value.flags.fnc, True)
        np.testing.assert_array_equal(found, value)


def test_errors_are_read_with_their_notes() -> None:
    """An error keeps its type, text and notes."""
    error = Interrupted("the node is gone")
    error.add_note("in worker 1")
    found = read_answer(write_answer((True, error)))[1]
    assert (type(found), str(found), found.__notes__) == (Interrupted, "the node is gone", ["in worker 1"])


class Command:
    """Pickled as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> Any:
        return self._call


def test_no_function_is_called(tmp_path: Path) -> None:
    """A pickle that names a function is refused, also inside an error, before anything is called."""
    made = Command(os.mkdir, str(tmp_path / "made"))
    for value in (made, (True, ValueError(made)), eval, Path("x"), np.arange(3), np.float64(1)):
        with pytest.raises(Malformed, match="no value of a kernel"):
            read_answer(pickle.dumps(value))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "value",
    [
        Command(np.ndarray, (2,), "i8", bytearray(16), -1000),  # numpy reads in front of the buffer
        Command(array_of, "i8", (2,), "C", bytes(8)),
        Command(array_of, "O", (1,), "C", bytes(8)),
        Command(array_of, "i8,O", (1,), "C", bytes(16)),
        Command(array_of, "(2,)i8", (1,), "C", bytes(16)),
        Command(array_of, "i8", (2**62, 4), "C", bytes(0)),
        Command(scalar_of, "i8", bytes(16)),
        Command(array_of, "<U2", (1,), "C", b"a\0\0\0\0\0\x11\0"),
        Command(array_of, ">U1", (2,), "C", b"\0\0\0a\0\x11\0\0"),
        Command(array_of, "=U1", (1,), "C", b"\xff" * 4),
        Command(scalar_of, "<U1", b"\0\0\x11\0"),
    ],
    ids=[
        *("before the buffer", "fewer bytes", "addresses", "some addresses", "rows", "too long"),
        *("a number of 16 bytes", "beyond Unicode", "beyond it, big-endian", "minus one", "a text beyond it"),
    ],
)
def test_arrays_beyond_their_bytes_are_refused(value: Any) -> None:
    """No array is made that lies beyond the bytes that came, or whose bytes are addresses, or texts that are none."""
    with pytest.raises(Malformed, match="a compute worker"):
        read_answer(pickle.dumps(value))


@pytest.mark.parametrize("value", [3, (True, 3), (False, 1, 2), (1, KeyError("x")), (True, KeyError)], ids=repr)
def test_answers_of_no_call_are_refused(value: Any) -> None:
    """A call ends with a value or with an error, and nothing else is raised or returned."""
    with pytest.raises(Malformed, match="neither a value nor an error"):
        outcome_of(pickle.dumps(value))


def test_what_a_worker_says_is_not_what_its_party_says() -> None:
    """Names that it asks for are noted for the log, and are in no error that goes on to a coordinator."""
    for value in (b"csecret of ann\n42\n.", b"cos\nsecret of ann\n."):
        with pytest.raises(Malformed, match="no value of a kernel") as caught:
            read_answer(value)
        assert "secret" not in str(caught.value)
        assert "secret of ann" in caught.value.__notes__[0]


CUT = pickle.dumps([1, 2])[:-3]


@pytest.mark.parametrize("data", [b"", b"\x80", b"no pickle", CUT, b"\x80\x04.", b"h\xff."], ids=repr)
def test_damaged_answers_are_named(data: bytes) -> None:
    """Bytes that are no pickle, or part of one, are the worker's fault."""
    with pytest.raises(Malformed, match="cannot be read"):
        read_answer(data)
