"""Standard output that fails with one message, as on a full disk."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from treetap.errors import TreetapError


class Output(io.TextIOWrapper):
    """Text on a file descriptor; `TreetapError` where it cannot be written.

    A reader that has closed the pipe, as `head` does, stays a BrokenPipeError: no message is needed.
    """

    failure: TreetapError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as failure:
            raise self._give_up(failure) from None

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as failure:
            raise self._give_up(failure) from None

    def drop(self) -> None:
        """Discard buffered text: Python would try to write it again at exit, in vain and with a traceback."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)

    def _give_up(self, failure: OSError) -> TreetapError:
        self.drop()
        self.failure = TreetapError(f"standard output cannot be written: {failure.strerror}")
        return self.failure


@contextmanager
def guarded() -> Iterator[None]:
    """Make standard output an `Output` within the block and flush it at the end; a closed one stays closed."""
    plain = sys.stdout
    if type(plain) is not io.TextIOWrapper:  # a test or a notebook has put something of its own there
        yield
        return
    look = (plain.encoding, plain.errors, None, plain.line_buffering, plain.write_through)
    sys.stdout = output = Output(plain.detach(), *look)
    try:
        yield
    finally:
        try:
            output.flush()
        except BrokenPipeError:
            output.drop()
            raise SystemExit(1) from None
        if output.failure is not None:  # also where a library wrote to standard output and ignored the error
            raise output.failure
