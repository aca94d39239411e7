"""A federation that notes, in one order, all that crosses: what the coordinator receives and what parties send."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tests.simulator import COORDINATOR, Federation, run
from tests.worlds import Tables, World
from treetap.protocols import agreement
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, exchange_pb2


class Crossed(NamedTuple):
    """A message on its way: an event for the coordinator, or one between parties."""

    sender: str
    to: str
    step: str  # of an event: the step that it is of
    message: control_pb2.StepEvent | exchange_pb2.PeerMessage


class Observed(Federation):
    """Notes every message in `crossed`, in the order in which they crossed."""

    def __init__(self, folder: Path, tables: Tables, **more: Any) -> None:
        self.crossed: list[Crossed] = []
        super().__init__(folder, tables, **more)
        self.tamper = self._delivered

    def start(self, name: str, *args: Any, **more: Any) -> None:
        """See `Federation.start`."""
        super().start(name, *args, **more)
        if name in self.configs:
            self._watch(name)

    def _delivered(self, sender: str, to: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        self.crossed.append(Crossed(sender, to, name_of(message), message))
        return message

    def _watch(self, party: str) -> None:
        node = self.node(party)
        original = node.step

        async def step(caller: str, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
            async for event in original(caller, request):
                self.crossed.append(Crossed(party, COORDINATOR, name_of(request), event))
                yield event

        node.step = step  # type: ignore[method-assign]


#: What is done with a federation, and its result.
Act = Callable[[Observed], Coroutine[Any, Any, Any]]


def observed(
    folder: Path, tables: Tables, act: Act, *, trained: Path | None = None, **more: Any
) -> tuple[list[Crossed], Any]:
    """All that crosses while a federation acts, and what `act` returns.

    The federation is made anew in `folder`, so that two runs have the same paths; `trained`: a copy of the disks on
    which it begins.
    """

    async def main() -> tuple[list[Crossed], Any]:
        shutil.rmtree(folder, ignore_errors=True)
        numbers = count()  # of submissions, which differ between runs, and with them the digests of jobs
        monkeypatch.setattr(agreement, "new_submission", lambda: str(next(numbers)))
        federation = Observed(folder, tables, **more)
        if trained is not None:
            for name in [*tables, COORDINATOR]:
                federation.kill(name)
                state = "journal" if name == COORDINATOR else "state"
                shutil.rmtree(folder / name / state, ignore_errors=True)
                shutil.copytree(trained / name / state, folder / name / state)
                federation.start(name)
        found = await act(federation)
        return federation.crossed, found

    with pytest.MonkeyPatch.context() as monkeypatch:
        return run(main())


def with_cell(here: World, party: str, table: str, record: str, value: float, columns: int | None = None) -> Tables:
    """The tables of a world with another value of one record: in one column of a party, or in all."""
    names, own = here.tables[party]
    changed = own[table]
    (place,) = np.flatnonzero(np.array(changed.column("id").to_pylist()) == record)
    for name in names if columns is None else [names[columns]]:
        cells = changed.column(name).to_numpy().copy()
        cells[place] = value
        changed = changed.set_column(changed.column_names.index(name), name, pa.array(cells))
    return {**here.tables, party: (names, {**own, table: changed})}
