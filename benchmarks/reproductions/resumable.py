"""Results that survive an interruption: one JSON line each, on disk before the next one is worked on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from treetap.errors import BadInput


class Results:
    """A file of results, each an object with `trial`, what was asked, as an object, beside what was found.

    A last line without an end was cut off by an interruption: it does not count, and the next result overwrites it.

    Raises:
        BadInput: the file cannot be read or written, or an earlier line is not such an object.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as failure:
            raise BadInput(f"{path}: cannot be read: {failure.strerror}") from None
        self._whole = content.rfind(b"\n") + 1
        self._found: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(content[: self._whole].splitlines(), start=1):
            try:
                result = json.loads(line)
                self._found[_key(result["trial"])] = result
            except (ValueError, KeyError, TypeError):
                raise BadInput(f"{path}: line {number} is no result; name another file, or remove the line") from None

    def get(self, trial: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a trial; the last one, if there are several."""
        return self._found.get(_key(trial))

    def add(self, result: dict[str, Any]) -> None:
        """Append a result; it is on disk when this returns."""
        line = json.dumps(result).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("r+b" if self.path.exists() else "wb") as file:
                file.truncate(self._whole)
                file.seek(self._whole)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as failure:
            raise BadInput(f"{self.path}: cannot be written: {failure.strerror}") from None
        self._whole += len(line)
        self._found[_key(result["trial"])] = result


def _key(trial: dict[str, Any]) -> str:
    return json.dumps(trial, sort_keys=True)
