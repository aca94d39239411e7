"""A call as it travels to a worker: the kernel by its name with its arguments, and the value or the error.

A worker unpickles what its party sends; a party reads what its workers answer as data (`treetap.workers.answers`).
"""

from __future__ import annotations

import importlib
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from treetap.errors import Malformed
from treetap.native import arithmetic
from treetap.process.signs_of_life import finish_unit
from treetap.workers.answers import read_answer, write_answer


def pickled_call(kernel: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """A call; errors of its arguments, which cannot be pickled, are the caller's."""
    return pickle.dumps((kernel, args), protocol=pickle.HIGHEST_PROTOCOL)


def outcome_of(answer: bytes) -> tuple[bool, Any]:
    """True if the call failed, and its value or exception; `Malformed` for what is neither."""
    match read_answer(answer):
        case (False, value):
            return False, value
        case (True, Exception() as error):
            return True, error
    raise Malformed("a compute worker's answer is neither a value nor an error")


def make_ready(backend: arithmetic.Name, modules: Sequence[str]) -> None:
    """Make a new worker ready: its backend, and the modules of its kernels.

    Raises:
        BadInput: it cannot compute with this backend.
    """
    arithmetic.use(backend)
    for module in modules:
        importlib.import_module(module)
        finish_unit()


def answer(state: dict[str, Any], message: bytes, lacking: Exception | None, who: str) -> bytes:
    """Run a call on a worker's memory; whatever it raises is part of the answer.

    Args:
        message: of `pickled_call`.
        lacking: what the worker lacks to answer any call.
        who: the worker, for the traceback that an error carries as a note.
    """
    try:
        if lacking is not None:
            raise lacking
        kernel, args = pickle.loads(message)  # noqa: S301 - the worker's own party
        return write_answer((False, kernel(state, *args)))
    except Exception as error:  # noqa: BLE001 - it is raised again in the party
        return pickled_error(error, who)


def pickled_error(error: Exception, who: str) -> bytes:
    """The exception with its traceback as a note; a RuntimeError where its own type does not survive pickling."""
    note = f"in {who}:\n{traceback.format_exc()}"
    error.add_note(note)
    try:
        data = write_answer((True, error))
        read_answer(data)
    except Exception:  # noqa: BLE001 - any failure to pickle has the same remedy
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(note)
        data = write_answer((True, plain))
    return data
