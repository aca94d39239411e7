"""The watch over work that may hang."""

from __future__ import annotations

from treetap.usage import SilenceWatch


def test_silence_counts_from_the_last_change() -> None:
    """A look that finds other signs starts the count again; it is the looks that see a change, not its moment."""
    now, signs = 10.0, 1
    watch = SilenceWatch(lambda: signs, lambda: now)
    assert watch.silent_s() == 0.0
    now = 13.0
    assert watch.silent_s() == 3.0
    now, signs = 14.0, 2
    assert watch.silent_s() == 0.0
    now = 19.5
    assert watch.silent_s() == 5.5
    assert watch.silent_s() == 5.5
