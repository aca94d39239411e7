"""The trail of a party that serves, and the exchanges of heads of the jobs that are under way."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from party.config import PartyConfig
from party.runtime.attempts import SUBMISSIONS, Session
from party.runtime.ledger import DAY_S, ledger_of, utc
from party.runtime.ledger import Kind as Charged
from party.runtime.transcript_recorder import Recorders
from party.trail.exchange import Exchange, Own
from party.trail.journal import Kind, Trail
from treetap.errors import DataError, Refused

if TYPE_CHECKING:
    from party.approvals.ledger import Approvals

log = logging.getLogger(__name__)
#: Most openings of one coordinator in 24 hours beyond those that the ledger has a charge of: each adds lines to the
#: trail, from which none can be taken.
MOST_FREE = 1000


class TrailedJobs:
    """A node's use of the trail: a line for each event of a job, and the exchange of each attempt."""

    def __init__(self, config: PartyConfig, recorders: Recorders, own: Own) -> None:
        self._transport, self._recorders, self._own = config.transport(), recorders, own
        self._ledger = ledger_of(config.state)
        self.trail = Trail(config.name, config.state)
        self._exchanges: dict[tuple[str, int], Exchange] = {}  # by job and attempt

    def check(self, approvals: Approvals, coordinator: str) -> None:
        """Raise unless a job of a coordinator may open.

        Raises:
            DataError: the ledger or the approvals are older than the trail says.
            Refused: too many of its jobs have opened in 24 hours without a charge.
        """
        self.trail.check(self._ledger, approvals.digests())
        opened = sorted(self.trail.openings(coordinator, DAY_S))
        if len(opened) < MOST_FREE:
            return
        charges = self._ledger.charges(Charged.TRAINING, Charged.PREDICTION, Charged.PREVIEW)
        charged = sum(one.seconds > opened[0] and one.occasion.coordinator == coordinator for one in charges)
        if (over := len(opened) - charged - MOST_FREE) >= 0:
            raise Refused(
                f"{self.trail.party} opens no job for {coordinator}: in 24 hours {len(opened)} opened for it, all but "
                f"{charged} without a charge, and {MOST_FREE} may; the next may open after {utc(opened[over] + DAY_S)}"
            )

    def open(self, session: Session, approvals: Approvals) -> None:
        """Note that an attempt opens, and prepare the exchange of heads; `OSError` if the disk refuses the line."""
        context = session.context
        self.trail.begin(self._ledger.head(), approvals.digests())
        self.trail.note(
            Kind.OPENED,
            job=context.job,
            attempt=context.attempt,
            digest=context.digest.hex(),
            coordinator=session.coordinator,
            parties=session.peers,
            operator=approvals.operator(context.digest.hex()),
            ledger=self._ledger.head(),
        )
        self._exchanges[_key(session)] = Exchange(self.trail, context, session.peers, self._transport, self._own)

    def received(self, session: Session, kind: str) -> None:
        """Begin the exchange of an attempt when another party has begun it."""
        if kind == "trail_held" and (exchange := self._exchanges.get(_key(session))) is not None:
            exchange.begin()

    async def before(self, session: Session, step: str) -> None:
        """Wait for the exchange before any step but the one that opens the job; raises as `Exchange.done`."""
        if step not in SUBMISSIONS:
            await self._exchanges[_key(session)].done()

    async def end(self, session: Session) -> None:
        """Send the last head of a job; not of a served model, whose account is asked for all the time."""
        if not session.serves:
            await self._exchanges[_key(session)].end(**self._heads(session.context.job))

    async def leave(self, session: Session, *, discard: bool = False) -> None:
        """Note that an attempt is left, unless it has ended already."""
        if (exchange := self._exchanges.get(_key(session))) is not None:
            await exchange.leave(discard=discard, **self._heads(session.context.job))

    def close(self, session: Session) -> None:
        """Forget the exchange of an attempt that ends, if it has not ended already."""
        if (exchange := self._exchanges.pop(_key(session), None)) is not None:
            exchange.close()

    def _heads(self, job: str) -> dict[str, Any]:
        """Heads of a job's transcript, and of the ledger unless it is older than the trail: the next job says so."""
        heads: dict[str, Any] = {"transcript": self._recorders.head(job)}
        try:
            self.trail.check_ledger(self._ledger)
            return heads | {"ledger": self._ledger.head()}
        except DataError as fault:
            log.error("job %s: no further job opens: %s", job, fault)
            return heads


def _key(session: Session) -> tuple[str, int]:
    return session.context.job, session.context.attempt
