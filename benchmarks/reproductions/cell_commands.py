"""The course of a reproduction's command: its cells one after the other with a line of progress, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, TreetapError


class Named(Protocol):
    """A cell."""

    def name(self) -> str:
        """A few words for the line of progress."""


AnyCell = TypeVar("AnyCell", bound=Named)


def run_cells(title: str, cells: Sequence[AnyCell], ask: Callable[[AnyCell], object]) -> None:
    """Call `ask` for each cell, which does nothing where a cell has its result."""
    started = time.monotonic()
    with progress_view.steps(title) as progress:
        for number, cell in enumerate(cells):
            progress(number, len(cells), cell.name())
            ask(cell)
    terminal.err.print(f"{title}: {len(cells)} cells, {time.monotonic() - started:.0f} s", highlight=False)


def show_path(path: Path) -> None:
    """Print the path of what a command has written."""
    terminal.out.print(str(path), highlight=False)


def ended(main: Callable[[], None], command: str) -> NoReturn:
    """Run a command to its exit status: 0, 2 for bad input, 130 for Ctrl-C, 1 for other failures of a federation."""
    try:
        main()
    except KeyboardInterrupt:
        terminal.err.print("stopped; the same command goes on with the trainings that are missing", highlight=False)
        raise SystemExit(130) from None
    except TreetapError as failure:
        terminal.err.print(f"{command}: {failure}", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(2 if isinstance(failure, BadInput) else 1) from None
    raise SystemExit(0)
