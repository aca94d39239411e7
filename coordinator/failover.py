"""Predictions without a party that does not answer, and its return (docs/protocol-boosting.md, "When a party is away").

fail      The prediction is interrupted; its error names the party that does not answer.
retry     The coordinator waits for the party, then a new attempt continues with the records that have no score yet.
degrade   As retry, but a party that stays away is left out of the new attempt. Of a served model it is asked again,
          and once it is back a new attempt with it begins (docs/serving.md). It is asked by the step `leave`, which
          needs no session at the party, opens none, and ends one that an attempt before has left there. The service
          of the parties that are present goes on meanwhile.

An attempt always begins from the opening, so that no party keeps half a block and the records are aligned among the
present parties.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from treetap.coordinator.prediction import predict
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import LEAVE_S, Roster, answered
from treetap.errors import Incompatible, Interrupted, TreetapError, UnknownJob
from treetap.protocols.prediction import AWAY_DEADLINES, degrades_serving
from treetap.wire.v2 import prediction_pb2, setup_pb2

log = logging.getLogger(__name__)
#: Most attempts of one prediction that may break down in a row.
MOST_ATTEMPTS = 10
#: Seconds that a party which is asked again has for its answer.
ANSWER_S = 3.0


async def conduct(
    opening: prediction_pb2.OpenModel,
    progress: Progress,
    begin: Callable[[Sequence[str], Progress | None], Roster],
    again: Callable[[], None],
) -> tuple[Roster, prediction_pb2.WrittenPredictions]:
    """Conduct a prediction under its policy; returns the roster of its last attempt, and the outcome.

    `begin` makes the roster of an attempt with the given parties, which reports progress; `again` counts a new attempt.
    """
    parties = [opening.recipient, *opening.feature_parties]
    returns = Returns(opening, progress, lambda away: begin(away, None))
    failures = 0  # in a row
    while True:
        progress.served = False
        roster = begin([party for party in parties if party not in opening.away], progress)
        del opening.peers[:]
        opening.peers.extend(roster.peers())
        try:
            async with returns.watched():
                written = await predict(roster, opening, progress)
            if written is not None:
                return roster, written
            await roster.leave(LEAVE_S)
            returns.take_back()
        except TreetapError as failure:
            on_trial = returns.broke_down()
            if not on_trial:
                # a job of months may break down more than a few times, if it serves in between
                failures = 0 if progress.served else failures + 1
                if opening.away_policy == "fail" or failures == MOST_ATTEMPTS or not _passes(failure):
                    raise
            await _wait_or_go_without(roster, opening, progress, failure, on_trial)
        again()


async def accounts(roster: Roster, *, all_of_them: bool) -> dict[str, setup_pb2.Accounted]:
    """The cost of the job at each party; without `all_of_them`, of the parties that answer."""
    if all_of_them:
        answers = await roster.ask_all(roster.names, "account", setup_pb2.Account())
        return {party: answered(party, answer, "accounted") for party, answer in answers.items()}
    asked = (roster.ask(party, "account", setup_pb2.Account()) for party in roster.names)
    costs = {}
    for party, answer in zip(roster.names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(answer, BaseException):
            log.warning("%s: the cost of the job at this party is not known: %s", party, answer)
        else:
            costs[party] = answered(party, answer, "accounted")
    return costs


def _passes(failure: TreetapError) -> bool:
    """True for a failure after which another attempt may succeed without a person's help."""
    return isinstance(failure, Interrupted | UnknownJob) and not isinstance(failure, Incompatible)


async def _wait_or_go_without(
    roster: Roster,
    opening: prediction_pb2.OpenModel,
    progress: Progress,
    failure: TreetapError,
    on_trial: Sequence[str],
) -> None:
    """Have every party leave the attempt that broke down; a party that does not confirm it in time is away.

    `on_trial`: parties that count as away also if they confirm it.
    """
    log.warning("%s; parties that do not answer within %g s count as away", failure, opening.away_deadline_s)
    progress.phase("wait")
    lost = await roster.leave(opening.away_deadline_s)
    if lost and (opening.away_policy == "retry" or opening.recipient in lost):
        names = ", ".join(lost)
        raise Interrupted(f"{names} did not answer for {opening.away_deadline_s:g} s ({failure})") from failure
    gone = [party for party in roster.names if party in lost or party in on_trial]
    if gone:
        log.warning("%s: away, the prediction continues without", ", ".join(gone))
        opening.away.extend(gone)
        progress.away(opening.away)


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
        """Have the next attempt begin with the parties that are back, if any are."""
        self._judge()
        self._on_trial += self._progress.back
        away = [party for party in self._opening.away if party not in self._on_trial]
        if self._progress.back:
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
