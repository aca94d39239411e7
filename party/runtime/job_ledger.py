"""A party's ledger as one attempt at a job charges to it, with the limits that the policy sets on each partner."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treetap.errors import LimitReached, Refused
from treetap.names import ALL
from treetap.party.runtime.ledger import DAY_S, Charge, Kind, Ledger, Occasion, utc

if TYPE_CHECKING:
    from treetap.party.policy import Policy
    from treetap.protocols.limits import Partner

log = logging.getLogger(__name__)
#: Kind of a charge → the key of a policy that limits it a day.
DAILY: Mapping[str, str] = {
    Kind.TRAINING: "jobs_per_day",
    Kind.PREDICTION: "predictions_per_day",
    Kind.PREVIEW: "previews_per_day",
    Kind.RECORDS: "records_per_day",
    Kind.LOOK_UPS: "look_ups_per_day",
}


@dataclass(frozen=True)
class JobLedger:
    """The ledger of `party` for one attempt."""

    ledger: Ledger
    occasion: Occasion
    party: str
    policy: Policy

    def enter(self, kind: Kind, amount: float = 1, **details: Any) -> int:
        """Enter a charge of this attempt, and return its number among those of its kind.

        Raises:
            Refused: the charges of a day with a partner would be more than the policy lets them be.
            DataError, OSError: see `Ledger.enter`.
        """
        charge = Charge(kind, self.occasion, amount, details)
        return self.ledger.enter(charge, lambda: self._check_day(charge))

    def check_opening(self, kind: Kind, protocol: str, tables: Sequence[str]) -> None:
        """Raise `Refused` if a partner's limits forbid a job of this kind; nothing is charged.

        `protocol`: empty for a preview. `tables`: names of the own ones that the job uses.
        """
        for partner, rules in self._rules():
            for key, used in (("tables", tables), ("protocols", [protocol] if protocol else [])):
                allowed: list[str] | None = getattr(rules, key)
                if outside := [name for name in used if allowed is not None and name not in allowed]:
                    raise Refused(
                        f"{self.party} takes no part in a job with {partner} that uses {key[:-1]} {outside[0]!r}: its "
                        f"policy says {key} = {json.dumps(allowed)} under [partners.{partner}]; if it should, add the "
                        f"name there and send {self.party} SIGHUP"
                    )
        for counted in (kind,) if kind is Kind.PREVIEW else (kind, Kind.RECORDS):  # a count has no records
            self._check_day(Charge(counted, self.occasion))

    def check_list(self, owner: str, ids: int) -> None:
        """Raise `LimitReached` if a party's list of blinded ids is longer than the policy lets it be."""
        for partner, rules in self._rules():
            if partner == owner and rules.largest_list is not None and ids > rules.largest_list:
                raise LimitReached(
                    f"{self.party} does not raise a list of {owner} with more than {rules.largest_list} ids: its "
                    f"policy says largest_list = {rules.largest_list} under [partners.{owner}]; align a smaller table, "
                    f"or change it in {self.party}'s policy file and send {self.party} SIGHUP"
                )

    def queries_per_record(self) -> Iterator[tuple[str, int]]:
        """The partners whose queries of one record are limited, and the limit of each."""
        for partner, rules in self._rules():
            if rules.queries_per_record is not None:
                yield partner, rules.queries_per_record

    def daily(self, kind: str) -> Iterator[tuple[str, int]]:
        """The partners with a limit a day on charges of this kind, and the limit of each."""
        key = DAILY.get(kind)
        if key is None:
            return
        limits = {partner: getattr(rules, key) for partner, rules in self._rules()}
        if kind is Kind.PREVIEW:
            general = self.policy.previews_per_day
            limits |= {party: general for party in self.occasion.parties if limits.get(party) is None}
        yield from ((partner, most) for partner, most in limits.items() if most is not None)

    def _rules(self) -> Iterator[tuple[str, Partner]]:
        """The partners of this attempt that have limits; those under "*" are of parties alone."""
        named = self.policy.partners
        others = named.get(ALL)
        for party in self.occasion.parties:
            if (rules := named.get(party, others)) is not None:
                yield party, rules
        if self.occasion.coordinator in named:
            yield self.occasion.coordinator, named[self.occasion.coordinator]

    def of_day(self, kind: str, partner: str, now: float) -> list[Charge]:
        """The charges of 24 hours with a partner, the oldest one first.

        One of the future, by a clock that was set back, counts too.
        """
        every = self.ledger.charges(kind)
        past = (one for one in every if one.seconds > now - DAY_S and partner in one.occasion.partners)
        return sorted(past, key=lambda one: one.seconds)

    def _check_day(self, charge: Charge) -> None:
        for partner, most in self.daily(charge.kind):
            past = self.of_day(charge.kind, partner, charge.seconds)
            over = sum(one.amount for one in past) + charge.amount - most
            if over > 0:
                key = DAILY[charge.kind]
                log.warning(
                    "job %s: refused: the policy says %s = %d, and in 24 hours there were as many with %s; the next "
                    "may come %s, or with a greater number in the policy file",
                    *(self.occasion.job, key, most, partner, _again(past, over)),
                )
                # no more than this is said: other coordinators may have asked for them
                raise LimitReached(
                    f"{self.party} takes no part: the {key} of its policy are used up; its log says until when"
                )


def _again(past: Sequence[Charge], over: float) -> str:
    """The time at which charges that exceed a limit by `over` will do so no more, as far as time helps."""
    for one in past:
        over -= one.amount
        if over <= 0:
            return f"after {utc(one.seconds + DAY_S)}"
    return "never, since it alone is more"
