"""A call as it travels to a worker: the kernel by its name with its arguments, and the value or the error.

A worker unpickles what its party sends; a party reads what its workers answer as data (`treetap.workers.answers`).
"""

from __future__ import annotations

import importlib
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from treetap.native import arithmetic
from treetap.process.units import finish_unit
from treetap.workers.answers import read_answer


def pickled_call(kernel: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """A call; errors of its arguments, which cannot be pickled, are the caller's."""
    return pickle.dumps((kernel, args), protocol=pickle.HIGHEST_PROTOCOL)


def outcome_of(answer: bytes) -> tuple[bool, Any]:
    """Whether the call failed, and its value or exception; `Malformed` for what is neither."""
    outcome: tuple[bool, Any] = read_answer(answer)
    return outcome


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
        return pickle.dumps((False, kernel(state, *args)), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - it is raised again in the party
        return pickled_error(error, who)


def pickled_error(error: Exception, who: str) -> bytes:
    """The exception with its traceback as a note; a RuntimeError where its own type does not survive pickling."""
    note = f"in {who}:\n{traceback.format_exc()}"
    error.add_note(note)
    try:
        data = pickle.dumps((True, error), protocol=pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)  # noqa: S301 - made on the line above
    except Exception:  # noqa: BLE001 - any failure to pickle has the same remedy
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(note)
        data = pickle.dumps((True, plain), protocol=pickle.HIGHEST_PROTOCOL)
    return data
