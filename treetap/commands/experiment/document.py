"""The document of an experiment: its runs and their summary, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treetap.commands.experiment.summary import summary


def document(
    runs: Sequence[Mapping[str, Any]], folder: Path | None = None, mlflow: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Runs and their summary; a value that JSON cannot represent (no AUC of one class, an overflow) is None.

    `folder`: where the results are kept; None: nowhere. `mlflow`: where they were logged to, if they should be.
    """
    found: dict[str, Any] = {"runs": list(runs), "summary": summary(runs)}
    found["folder"] = None if folder is None else str(folder)
    found |= {} if mlflow is None else {"mlflow": mlflow}
    return {key: finite(value) for key, value in found.items()}


def as_json(content: Mapping[str, Any]) -> str:
    """A document as it is printed and stored."""
    return json.dumps(content, indent=1, allow_nan=False)


def finite(content: Any) -> Any:
    """Content as JSON has it: a number that is infinite or none is null."""
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
