"""Metrics of what is on a party's disk: how much of each limit is spent, and how many jobs wait for its people.

They are read once a minute, off the event loop, where the party has metrics at all: a request for metrics touches no
file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from treetap.errors import TreetapError
from treetap.party.runtime.ledger import ledger_of

if TYPE_CHECKING:
    from prometheus_client import Gauge

    from treetap.metrics import ProcessMetrics
    from treetap.party.approvals.ledger import Approvals
    from treetap.party.config import PartyConfig
    from treetap.party.runtime.context import Offload

log = logging.getLogger(__name__)
#: Seconds between two readings.
PERIOD_S = 60.0
#: Labels of a limit (its key in the policy, and whose it is) → an amount in the limit's own unit.
Amounts = Mapping[tuple[str, str], float]


class Watched:
    """The measures, which stay as they were read last. Units of limits: see
    `treetap.party.approvals.overview.spent`.

    `config`: returns what holds now; `approvals`: the party's, raises `DataError` if they are damaged.
    """

    def __init__(
        self, metrics: ProcessMetrics, config: Callable[[], PartyConfig], approvals: Callable[[], Approvals]
    ) -> None:
        self._metrics, self._config, self._approvals = metrics, config, approvals
        limit = "limit", "of"
        self._spent = metrics.gauge("treetap_limit_spent", "What is spent of a limit, or was in 24 hours.", *limit)
        self._most = metrics.gauge("treetap_limit_most", "The limit by the policy, where it has one.", *limit)
        self._read = metrics.gauge(
            "treetap_limits_read", "0: ledger, accounts or approvals could not be read; they are once a minute."
        )
        self._waiting = metrics.gauge("treetap_approvals_waiting", "Jobs that wait for this party's people.")
        self._shown: dict[Gauge, set[tuple[str, str]]] = {self._spent: set(), self._most: set()}

    async def follow(self, offload: Offload) -> None:
        """Read them once a minute until this is cancelled."""
        while True:
            await self.read(offload)
            await asyncio.sleep(PERIOD_S)

    async def read(self, offload: Offload) -> None:
        """Read them once; what cannot be read is logged, and said by `treetap_limits_read`."""
        config = self._config()
        try:
            rows = await offload(lambda: self._rows(config))
            waiting = self._approvals().waiting()
        except (TreetapError, OSError) as fault:
            log.warning("metrics: limits and approvals could not be read: %s", fault)
            self._read.set(0)
        else:
            # Show rows of `spent` and a number of jobs; limits that are in no row any more have no series.
            self._read.set(1)
            self._waiting.set(waiting)
            of_limits = [((row["limit"], row["of"]), row["spent"], row["most"]) for row in rows]
            self._replace(self._spent, {key: used for key, used, _ in of_limits})
            self._replace(self._most, {key: most for key, _, most in of_limits if most is not None})

    def _rows(self, config: PartyConfig) -> list[dict[str, Any]]:
        """Rows of the ledger's limits, and of `max_leakage` for each peer that the label holder measures."""
        from treetap.party.approvals.overview import spent  # with what reads tables

        rows = spent(config, ledger_of(config.state).charges())
        for _, labels, nats in self._metrics.samples("treetap_leakage_bound_nats"):
            of = f"labels, by {labels['peer']}"
            rows.append({"limit": "max_leakage", "of": of, "most": config.policy.labels.max_leakage, "spent": nats})
        return rows

    def _replace(self, gauge: Gauge, amounts: Amounts) -> None:
        for gone in self._shown[gauge] - amounts.keys():
            gauge.remove(*gone)
        for key, amount in amounts.items():
            gauge.labels(*key).set(amount)
        self._shown[gauge] = {*amounts}
