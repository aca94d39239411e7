"""Proofs in a ring of parties that a list came back to its owner raised by one exponent of each, in its order.

Nobody shows the list that it received or sent on. Once its list is back the owner draws numbers, and sends one point
around: the sum of its list, each point times its number. Every party raises that point by its exponent of the lists,
proves it (`treetap.psi.proof`), and sends it on with the points and proofs before. It must come back as the sum of the
list that came back; signs went around with the list, each party's multiplied by those before. As nobody knew the
numbers while the list was on its way, a list that was changed anywhere has that sum with probability 2⁻¹²⁸.
"""

from __future__ import annotations

import secrets

from party.alignment.proofs import AnnouncedKeys
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.psi import proof
from treetap.psi.lists import PointList
from treetap.wire.v2 import alignment_pb2


class RingProofs(AnnouncedKeys):
    """One party's part in the proofs of a ring, for one attempt at a job."""

    _sums: tuple[bytes, bytes] | None = None  # of the own list as it left, and as it came back

    async def sum(self, sent: PointList | None, returned: PointList) -> None:
        """Draw numbers and sum the own list, if this party asks, before any sum goes around.

        `sent`, `returned`: the list as it left, with roots, and as it came back, with roots and signs.
        """
        if sent is not None:
            numbers = secrets.token_bytes(64)
            self._sums = await self._lists.summed(sent, numbers), await self._lists.summed(returned, numbers)

    async def go_around(self) -> None:
        """Send the sum of the own list around, if this party asks, and prove the sums of others that do.

        Raises:
            Malformed: the list is not the one that was sent, or a proof is none; of a proof the message says whose.
        """
        if not self.asking:
            return
        members, place = self._members, self._members.index(self._context.party)
        following, preceding = members[(place + 1) % len(members)], members[place - 1]
        chain = alignment_pb2.SumOfList(points=[] if self._sums is None else self._sums[:1])
        for hop in range(len(members)):
            sending = self._context.outbox.send(following, "sum_of_list", [chain], stage=hop)
            chain, _ = await together(self._context.mailbox.only(preceding, "sum_of_list", 0, hop), sending)
            owner = members[(place - 1 - hop) % len(members)]
            if owner in self.asking and owner != self._context.party:
                self._raise(chain, owner, hop, preceding)
        if self._sums is not None:
            self._check(chain, self._sums, place)

    def _raise(self, chain: alignment_pb2.SumOfList, owner: str, hop: int, sender: str) -> None:
        """Add the raised point and its proof to what came."""
        if len(chain.points) != hop + 1 or not proof.valid_key(chain.points[-1]):
            raise Malformed(f"{sender} sent no point of the group as the sum of the identifiers of {owner}")
        claim, source = self._claim(self._context.party, owner), chain.points[-1]
        challenge, response = proof.prove(self._exponent, claim, claim.statement(hop, ()), source)
        chain.points.append(proof.raised_by(self._exponent, source))
        chain.proofs.append(alignment_pb2.ListProof(challenge=challenge, response=response))

    def _check(self, chain: alignment_pb2.SumOfList, sums: tuple[bytes, bytes], place: int) -> None:
        me, members, points = self._context.party, self._members, chain.points
        if len(points) != len(members) or len(chain.proofs) != len(members) - 1 or points[0] != sums[0]:
            raise Malformed(f"the sum of the identifiers of {me} did not come back from {members[place - 1]}")
        for hop, made in enumerate(chain.proofs):
            prover = members[(place + 1 + hop) % len(members)]
            claim = self._claim(prover, me)
            raised = points[hop], points[hop + 1]
            if not proof.holds(claim, claim.statement(hop, ()), raised, (made.challenge, made.response)):
                raise Malformed(
                    f"{prover} did not prove to {me} that it raised the sum of its identifiers by one exponent; no "
                    f"record counts as common. Settle that with the operator of {prover} before another job with it"
                )
        if points[-1] != sums[1]:
            others = " or ".join(party for party in members if party != me)
            raise Malformed(
                f"the blinded identifiers of {me} did not come back raised by one exponent of each party, in their "
                f"order: {others} has changed them, runs another program than treetap or is not honest; no record "
                "counts as common. Settle that with their operators before another job with them"
            )
