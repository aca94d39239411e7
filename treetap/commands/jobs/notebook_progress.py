"""Progress in a notebook: one line of a cell's output, which each update replaces."""

from __future__ import annotations

import html
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds between two updates: each is a message to the page.
PAUSE_S = 0.2
#: Given the share that is done, None where it is not known, and what is going on.
Show = Callable[[float | None, str], None]


@contextmanager
def line(title: str) -> Iterator[Show]:
    """A line with title, bar, seconds and what is going on; empty at the end, so that no bar stays in the file."""
    shown: Any = importlib.import_module("IPython.display")  # of notebooks alone
    began = time.monotonic()
    shown_at = 0.0
    handle: Any = shown.display(shown.HTML(_line(title, None, 0.0, "")), display_id=True)

    def show(share: float | None, what: str) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at >= PAUSE_S:
            shown_at = now
            handle.update(shown.HTML(_line(title, share, now - began, what)))

    try:
        yield show
    finally:
        handle.update(shown.HTML(""))


def _line(title: str, share: float | None, seconds: float, what: str) -> str:
    value = "" if share is None else f' value="{share:.3f}"'
    return f"<b>{html.escape(title)}</b> <progress{value}></progress> {seconds:.0f} s {html.escape(what)}"
