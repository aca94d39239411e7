"""Reads what a worker answers as data: a pickle could name any function, and one from a cluster comes from elsewhere.

Allowed are the types of pickle itself (numbers, texts, bytes, containers), arrays and scalars of numpy, and errors of
modules that this process has imported.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

from treetap.errors import Malformed

#: What pickles of numpy's arrays and scalars name, under numpy 2 and numpy 1.
_OF_NUMPY = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *((f"numpy.{core}.multiarray", name) for core in ("_core", "core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("_core", "core")),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The type or function that a pickle names; `Malformed` for one that no answer needs."""
        if (module_name, global_name) in _OF_NUMPY:
            return super().find_class(module_name, global_name)
        found = getattr(sys.modules.get(module_name), global_name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
        raise Malformed(f"a compute worker answers with {module_name}.{global_name}, which is no value of a kernel")


def read_answer(data: bytes) -> Any:
    """The value that a worker has pickled.

    Raises:
        Malformed: it names another function or type than values of kernels have, or is no pickle.
    """
    try:
        return _Reader(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, ValueError, TypeError) as failure:
        raise Malformed(f"a compute worker's answer cannot be read ({type(failure).__name__})") from failure
