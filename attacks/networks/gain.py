"""The gain of a network over the label holder alone, and how much of it a defence leaves."""

from __future__ import annotations

from typing import Any

_OFFLINE = "an audit of files alone has not trained them: say them under [accuracy], as an experiment does"


def gain(together: float | None, alone: float | None, undefended: float | None) -> dict[str, Any]:
    """The figures as the audit document has them.

    Args:
        together: accuracy of the trained model on other records.
        alone: of a model of the label holder's columns alone.
        undefended: of the same training without a defence.
    """
    kept, reason = None, ""
    absent = [
        name for name, value in (("together", together), ("alone", alone), ("undefended", undefended)) if value is None
    ]
    if together is None or alone is None or undefended is None:
        reason = f"{', '.join(absent)}: not at hand; {_OFFLINE}"
    elif undefended <= alone:
        reason = "without a defence the parties together are no better than the label holder alone"
    else:
        kept = (together - alone) / (undefended - alone)
    return {
        "together": together,
        "alone": alone,
        "undefended": undefended,
        "gain": None if together is None or alone is None else together - alone,
        "kept": kept,
        "reason": reason,
    }
