"""The parties of the coordinator's configuration, and the rosters by which attempts at jobs reach them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.failover import LEAVE_S
from coordinator.runtime.metrics import CoordinatorMetrics
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from coordinator.runtime.submission import Submitted
from treetap.errors import ConfigError
from treetap.names import did_you_mean
from treetap.wire.disclosure import ByteCounts
from treetap.wire.ports import Address, Dialer
from treetap.wire.timeouts import Timeouts
from treetap.wire.v2 import control_pb2


class Parties:
    """Makes the rosters of attempts. `parties`: name → address; `dialer` hides the transport to them."""

    def __init__(
        self, name: str, parties: Mapping[str, str], dialer: Dialer, silence_s: float, metrics: CoordinatorMetrics
    ) -> None:
        self.coordinator = name
        self.addresses = {party: Address(party, location) for party, location in parties.items()}
        self._dialer, self._silence_s, self._metrics = dialer, silence_s, metrics

    def check(self, names: Sequence[str]) -> None:
        """`ConfigError` for a party that the coordinator does not know."""
        unknown = [name for name in names if name not in self.addresses]
        if unknown:
            known, meant = ", ".join(self.addresses), did_you_mean(unknown[0], self.addresses)
            raise ConfigError(f"the coordinator knows no party {unknown[0]!r} (its [parties] are: {known}){meant}")

    def byte_counts(self) -> ByteCounts:
        """The counters of one attempt's bytes."""
        return ByteCounts(self.coordinator, self._metrics.sent)

    def roster(
        self,
        job: str,
        attempt: int,
        submitted: Submitted,
        members: Sequence[str],
        byte_counts: ByteCounts,
        progress: Progress | None,
        waits_s: float | None = None,
    ) -> Roster:
        """The roster of an attempt. `waits_s`: most seconds of waiting for a party; `progress`: None to report none."""
        self.check(members)
        on_progress, on_loss = (
            (ignore_progress, ignore_loss) if progress is None else (progress.on_progress, progress.on_loss)
        )
        parties = {name: self.addresses[name] for name in members}
        timeouts = Timeouts(self._silence_s if waits_s is None else min(self._silence_s, waits_s))
        return Roster(
            job,
            attempt,
            submitted.submission,
            parties,
            self._dialer,
            timeouts,
            byte_counts,
            self._metrics,
            on_progress,
            on_loss,
        )

    async def leave(self, job: str, attempt: int, submitted: Submitted, *, discard: bool) -> list[str]:
        """Have a job's parties leave it; returns those that did not confirm it in time."""
        members = [party for party in submitted.members if party in self.addresses]  # the configuration may lack one
        roster = self.roster(job, attempt, submitted, members, self.byte_counts(), None)
        return await roster.leave(LEAVE_S, discard=discard)


def ignore_progress(_party: str, _progress: control_pb2.Progress) -> None:
    """Ignore progress: no operator watches a job that the parties leave."""


def ignore_loss(_party: str) -> None:
    """Ignore a party that does not answer: `Roster.leave` returns it."""
