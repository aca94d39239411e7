"""JSON from files of any origin."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for one that is none, or is nested too deeply to be ours."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
