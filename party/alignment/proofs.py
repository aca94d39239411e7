"""Proofs that a list came back to its owner raised by one exponent of each other party, in its order.

A policy asks for them (`alignment_proof`). Before any list each party tells the others its key, and if it asks. Who
asks draws numbers, and sums its list as it leaves, each point times its number, and as it comes back, with signs that
each party on the way multiplied. Once the list is back the owner sends the first sum around. Every party raises that
point by its exponent of the lists, proves it (`treetap.psi.proof`), and sends it on with the points and proofs before;
nobody shows a list. It must come back as the second sum. As nobody knew the numbers while the list was on its way, a
list that was changed anywhere has that sum with probability 2⁻¹²⁸. docs/alignment.md says what this leaves open.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from treetap.errors import Malformed, Refused
from treetap.native import arithmetic
from treetap.party.runtime.context import StepContext, required
from treetap.process.together import together
from treetap.psi import proof
from treetap.psi.group import Exponent
from treetap.psi.proof import Claim, Sums
from treetap.wire.v2 import alignment_pb2


class ListProofs:
    """One party's part in the proofs of an alignment, for one attempt at a job.

    Attributes:
        sent, returned: of a party that wants a proof, the sums of its list as it left, and as it came back.
        asking: all parties that want one; known once they have been met.
    """

    sent: Sums | None = None
    returned: Sums | None = None
    _chain: alignment_pb2.SumOfList | None = None  # what came back of the own sum

    def __init__(self, context: StepContext, members: Sequence[str], exponent: Exponent) -> None:
        """`exponent`: the one that raises the lists which are returned in their order."""
        self._context, self._members, self._exponent = context, members, exponent
        me = context.party
        self._others = [party for party in members if party != me]
        self._keys = {me: b"" if arithmetic.form_in_use() is None else proof.key_of(exponent)}
        self.asking = set[str]()
        if context.policy.keys.alignment_proof:
            numbers = secrets.token_bytes(64)
            self.sent, self.returned, self.asking = Sums(numbers), Sums(numbers), {me}

    @property
    def asks(self) -> bool:
        """True if this party wants a proof."""
        return self.sent is not None

    async def announce(self) -> None:
        """Send every other party the own key, and whether this party asks."""
        own = alignment_pb2.AlignmentKey(key=self._keys[self._context.party], asks=self.asks)
        await self._context.outbox.send_each("alignment_key", dict.fromkeys(self._others, (own,)))

    async def meet(self) -> None:
        """Receive the other parties' keys, and who asks.

        Raises:
            Refused: a party asks for a proof which another's arithmetic does not make.
            Malformed: a key is none of the group, or another party's too, or its negative.
        """
        for party in self._others:
            theirs: alignment_pb2.AlignmentKey = await self._context.mailbox.only(party, "alignment_key")
            taken = any(proof.same_but_for_sign(theirs.key, key) for key in self._keys.values())
            if theirs.key and (taken or not proof.valid_key(theirs.key)):
                which = "another party's too, or its negative" if taken else "no point of the group"
                raise Malformed(f"the key that {party} sent {self._context.party} before its identifiers is {which}")
            self._keys[party] = theirs.key
            self.asking |= {party} if theirs.asks else set()
        lacking = [party for party, key in self._keys.items() if not key]
        if self.asking and lacking:
            raise Refused(
                f"the policy of {min(self.asking)} asks for proofs of alignments (alignment_proof), which {lacking[0]} "
                f'cannot give: they need compiled kernels; set arithmetic = "native" in the file of {lacking[0]}, or '
                f"take the line out of the policy of {min(self.asking)}"
            )

    async def go_around(self) -> None:
        """Send the sum of the own list around, if this party asks, and prove the sums of others that do.

        Raises:
            Malformed: another party sent no point as its sum.
        """
        if not self.asking:
            return
        members, place = self._members, self._members.index(self._context.party)
        following, preceding = members[(place + 1) % len(members)], members[place - 1]
        chain = alignment_pb2.SumOfList(points=[] if self.sent is None else [self.sent.encoded()])
        for hop in range(len(members)):
            sending = self._context.outbox.send(following, "sum_of_list", [chain], stage=hop)
            chain, _ = await together(self._context.mailbox.only(preceding, "sum_of_list", 0, hop), sending)
            owner = members[(place - 1 - hop) % len(members)]
            if owner in self.asking and owner != self._context.party:
                self._raise(chain, owner, hop, preceding)
        self._chain = chain

    def _raise(self, chain: alignment_pb2.SumOfList, owner: str, hop: int, sender: str) -> None:
        """Add the raised point and its proof to what came."""
        if len(chain.points) != hop + 1 or not proof.valid_key(chain.points[-1]):
            raise Malformed(f"{sender} sent no point of the group as the sum of the identifiers of {owner}")
        claim, source = self._claim(self._context.party, owner), chain.points[-1]
        challenge, response = proof.prove(self._exponent, claim, claim.statement(hop), source)
        chain.points.append(proof.raised_by(self._exponent, source))
        chain.proofs.append(alignment_pb2.ListProof(challenge=challenge, response=response))

    def check(self) -> None:
        """Compare what came back of the own sum with the list that came back, if this party asks.

        Raises:
            Malformed: the list is not the one that was sent, or a proof is none; of a proof the message says whose.
        """
        if self.sent is None or self.returned is None:
            return
        me, members, place = self._context.party, self._members, self._members.index(self._context.party)
        chain = required(self._chain)
        points = chain.points
        if len(points) != len(members) or len(chain.proofs) != len(members) - 1 or points[0] != self.sent.encoded():
            raise Malformed(f"the sum of the identifiers of {me} did not come back from {members[place - 1]}")
        for hop, made in enumerate(chain.proofs):
            prover = members[(place + 1 + hop) % len(members)]
            claim = self._claim(prover, me)
            raised = points[hop], points[hop + 1]
            if not proof.holds(claim, claim.statement(hop), raised, (made.challenge, made.response)):
                raise Malformed(
                    f"{prover} did not prove to {me} that it raised the sum of its identifiers by one exponent; no "
                    f"record counts as common. Settle that with the operator of {prover} before another job with it"
                )
        if points[-1] != self.returned.encoded():
            others = " or ".join(self._others)
            raise Malformed(
                f"the blinded identifiers of {me} did not come back raised by one exponent of each party, in their "
                f"order: {others} has changed them, runs another program than treetap or is not honest; no record "
                "counts as common. Settle that with their operators before another job with them"
            )

    def _claim(self, prover: str, verifier: str) -> Claim:
        """The claim of a proof, without the sum."""
        context, keys = self._context, self._keys
        return Claim(context.job, context.digest, context.attempt, prover, verifier, keys[prover], keys[verifier])
