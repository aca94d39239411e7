"""A call as it travels to the driver and the workers of a cluster: the kernel by its name with its arguments, and the
value or the error as data.

They unpickle what their party sends. A party reads what they answer as data: a pickle could name any function, and one
from a cluster comes from elsewhere. Allowed are the types of pickle itself (numbers, texts, bytes,
containers), errors of modules that this process has imported, and arrays and scalars of numpy in a form of their own.
Numpy's pickles are refused, since what they call takes offsets, strides and types from the pickle, and reads and writes
memory that is no array's.
"""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from treetap.errors import Malformed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


T = TypeVar("T")
#: Kinds of numpy's types whose values are plain bytes: truth values, numbers, byte strings and texts.
_KINDS = "biufcSU"


class _Writer(pickle.Pickler):
    def reducer_override(self, obj: Any, /) -> Any:
        """Arrays and scalars by type, shape and content; all else as pickle has it."""
        np = sys.modules.get("numpy")  # a worker without it has none of its values
        if np is None or not isinstance(obj, np.ndarray | np.generic):
            return NotImplemented
        if obj.dtype.kind not in _KINDS:
            raise TypeError(f"a kernel returned values of numpy's type {obj.dtype}")
        if isinstance(obj, np.generic):
            return scalar_of, (obj.dtype.str, obj.tobytes())
        order = "F" if obj.flags.fnc else "C"
        return array_of, (obj.dtype.str, obj.shape, order, obj.tobytes(order))


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The type or function that a pickle names; `Malformed` for one that no answer needs."""
        if module_name == __name__ and global_name in _OF_NUMPY:
            return _OF_NUMPY[global_name]
        kind = getattr(sys.modules.get(module_name), global_name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
        refused = Malformed("a compute worker answers with a function or a type that is no value of a kernel")
        refused.add_note(f"{module_name}.{global_name}")  # for the log: what a worker says is not the party's to say
        raise refused


def write_answer(value: Any) -> bytes:
    """The value for `read_answer`; what it raises where that could not read it is pickle's, or a TypeError."""
    data = io.BytesIO()
    _Writer(data, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return data.getvalue()


def read_answer(data: bytes) -> Any:
    """The value that a worker has written.

    Raises:
        Malformed: it names another function or type than values of kernels have, or is no such value.
    """
    try:
        return _Reader(io.BytesIO(data)).load()
    except Malformed:
        raise
    except Exception as failure:  # whatever the bytes lead pickle, or the making of an error, to raise
        raise Malformed(f"a compute worker's answer cannot be read ({type(failure).__name__})") from failure


def array_of(dtype: str, shape: tuple[int, ...], order: str, content: bytes) -> npt.NDArray[Any]:
    """An array of memory of its own; ValueError where the size of `content` is not that of type and shape."""
    return _plain(dtype, content).reshape(shape, order="F" if order == "F" else "C")


def scalar_of(dtype: str, content: bytes) -> np.generic:
    """A scalar; ValueError where its size is not that of the type."""
    (value,) = _plain(dtype, content)
    scalar: np.generic = value
    return scalar


def _plain(dtype: str, content: bytes) -> npt.NDArray[Any]:
    import numpy as np

    kind = np.dtype(dtype)
    if kind.kind not in _KINDS or kind.shape:
        raise ValueError(f"values of type {kind}")
    if kind.kind == "U" and (np.frombuffer(content, f"{kind.str[0]}u4") > sys.maxunicode).any():
        raise ValueError("a text beyond Unicode")
    return np.frombuffer(content, kind).copy()


_OF_NUMPY: dict[str, Callable[..., Any]] = {each.__name__: each for each in (array_of, scalar_of)}


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


def answer(state: dict[str, Any], message: bytes, who: str) -> bytes:
    """Run a call of `pickled_call` on a worker's memory; whatever it raises is part of the answer.

    `who`: the worker, for the traceback that an error carries as a note.
    """
    try:
        kernel, args = pickle.loads(message)  # noqa: S301 - the worker's own party
        return write_answer((False, kernel(state, *args)))
    except Exception as error:  # noqa: BLE001 - it is raised again in the party
        # The exception with its traceback as a note; a RuntimeError where its own type does not survive pickling.
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


def make(state: dict[str, Any], name: str, kind: Callable[..., Any], *args: Any) -> None:
    """A kernel: have `kind(*args)` in a worker's memory by this name."""
    state[name] = kind(*args)


def on(state: dict[str, Any], name: str, method: Callable[..., T], *args: Any) -> T:
    """A kernel: call a method of what a worker's memory has by this name."""
    return method(state[name], *args)
