"""Predictions while a feature party does not answer (docs/protocol-boosting.md, "When a party is away").

fail      The prediction is interrupted; its error names the party that does not answer.
retry     The coordinator waits for the party, then a new attempt continues with the records that have no score yet.
degrade   As retry, but a party that stays away is left out of the new attempt.

An attempt always begins from the opening, so that no party keeps half a block and the records are aligned among the
present parties.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from coordinator.prediction import predict
from coordinator.runtime.answers import answered
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from treetap.errors import Incompatible, Interrupted, UnknownJob
from treetap.wire.v2 import prediction_pb2, setup_pb2

log = logging.getLogger(__name__)
#: Most attempts of one prediction that may break down in a row.
MOST_ATTEMPTS = 10
#: Seconds to wait for a party when a job is over.
LEAVE_S = 3.0


async def conduct(
    opening: prediction_pb2.OpenModel,
    progress: Progress,
    begin: Callable[[Sequence[str]], Roster],
    again: Callable[[], None],
) -> tuple[Roster, prediction_pb2.WrittenPredictions]:
    """Conduct a prediction under its policy; returns the roster of its last attempt, and the outcome.

    `begin` makes the roster of an attempt with the given parties, `again` counts a new attempt.
    """
    parties = [opening.recipient, *opening.feature_parties]
    number = 0
    while True:
        number, progress.served = number + 1, False
        roster = begin([party for party in parties if party not in opening.away])
        del opening.peers[:]
        opening.peers.extend(roster.peers())
        try:
            return roster, await predict(roster, opening, progress)
        except Incompatible:
            raise
        except (Interrupted, UnknownJob) as failure:
            if progress.served:
                number = 0  # it has served: a job of months may break down more than a few times
            if opening.away_policy == "fail" or number == MOST_ATTEMPTS:
                raise
            await _wait_or_go_without(roster, opening, progress, failure)
        again()


async def accounts(roster: Roster, *, all_of_them: bool) -> dict[str, setup_pb2.Accounted]:
    """The cost of the job at each party, which then leaves it; without `all_of_them`, of the parties that answer."""
    if all_of_them:
        answers = await roster.ask_all(roster.names, "account", setup_pb2.Account())
        await roster.leave_all()
        return {party: answered(party, answer, "accounted") for party, answer in answers.items()}
    asked = (roster.ask(party, "account", setup_pb2.Account()) for party in roster.names)
    found = {}
    for party, answer in zip(roster.names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(answer, BaseException):
            log.warning("%s: the cost of the job at this party is not known: %s", party, answer)
        else:
            found[party] = answered(party, answer, "accounted")
    await roster.leave(LEAVE_S)
    return found


async def _wait_or_go_without(
    roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress, failure: Exception
) -> None:
    """Have every party leave the attempt that broke down; a party that does not confirm it in time is away."""
    log.warning("%s; parties that do not answer within %g s count as away", failure, opening.away_deadline_s)
    progress.phase("wait")
    lost = await roster.leave(opening.away_deadline_s)
    if not lost:
        return
    names = ", ".join(lost)
    if opening.away_policy == "retry" or opening.recipient in lost:
        raise Interrupted(f"{names} did not answer for {opening.away_deadline_s:g} s ({failure})") from failure
    log.warning("%s: away, the prediction continues without", names)
    opening.away.extend(lost)
    progress.away(opening.away)
