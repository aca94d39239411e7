"""Feature parties that a served model goes on without, and their return (docs/serving.md).

They are asked by the step `leave`, which needs no session at the party, opens none, and ends one that an attempt before
has left there. The service of the parties that are present goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from treetap.protocols.prediction import AWAY_DEADLINES, degrades_serving
from treetap.wire.v2 import prediction_pb2

log = logging.getLogger(__name__)
#: Seconds that a party which is asked again has for its answer.
ANSWER_S = 3.0


class Returns:
    """The parties that a prediction's opening lists as away; the list is changed in place.

    A party that is back is on trial until an attempt with it has served. If the attempt breaks down before, the party
    counts as away again, and the time until it is asked again doubles.
    """

    def __init__(
        self, opening: prediction_pb2.OpenModel, progress: Progress, begin: Callable[[Sequence[str]], Roster]
    ) -> None:
        """`begin`: makes the roster of the present attempt with the given parties."""
        self._opening, self._progress, self._begin = opening, progress, begin
        self._on_trial: list[str] = []
        self._in_vain = 0  # returns in a row that ended in a breakdown

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Within the block, ask the parties without which a model is served, until one answers: `Progress.back`."""
        self._progress.back = []
        asking = degrades_serving(self._opening) and bool(self._opening.away)
        task = asyncio.ensure_future(self._ask()) if asking else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def take_back(self) -> None:
        """Have the next attempt begin with the parties that are back."""
        self._judge()
        self._on_trial += self._progress.back
        away = [party for party in self._opening.away if party not in self._on_trial]
        log.info("%s: back; a new attempt includes it", ", ".join(self._progress.back))
        self._opening.away[:] = away
        self._progress.away(away)

    def broke_down(self) -> list[str]:
        """The parties on trial in an attempt that has broken down: they count as away again."""
        self._judge()
        parties, self._on_trial = self._on_trial, []
        self._in_vain += bool(parties)
        return parties

    def _judge(self) -> None:
        """End the trial of parties with which an attempt has served."""
        if self._progress.served and self._on_trial:
            self._on_trial, self._in_vain = [], 0

    async def _ask(self) -> None:
        while not self._progress.back:
            await asyncio.sleep(min(self._opening.away_deadline_s * 2.0**self._in_vain, AWAY_DEADLINES[1]))
            away = list(self._opening.away)
            lost = await self._begin(away).leave(ANSWER_S)
            self._progress.back = [party for party in away if party not in lost]
