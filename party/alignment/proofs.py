"""Proofs that a returned list is the one that was sent, raised by one exponent: keys of all parties, proofs of two.

A policy asks for them (`alignment_proof`). Before any list each party tells the others its key, and whether it asks.
Of two, who is asked sends signs with the list that it returns, and a proof after it; who asks checks both before it
compares lists. `treetap.psi.proof` says what holds then, docs/alignment.md what does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from party.alignment.lists import BlindedLists
from party.runtime.context import StepContext, required
from treetap.errors import Malformed, Refused
from treetap.native import arithmetic
from treetap.process.together import together
from treetap.psi import proof
from treetap.psi.group import Exponent
from treetap.psi.lists import PointList
from treetap.psi.proof import Claim
from treetap.wire.v2 import alignment_pb2


class AnnouncedKeys:
    """The keys that parties tell each other before any list, and who of them asks for proofs.

    Attributes:
        asks: this party wants a proof of the list that it gets back.
        asking: all parties that do; known once they have been met.
    """

    def __init__(self, context: StepContext, lists: BlindedLists, members: Sequence[str], exponent: Exponent) -> None:
        """`exponent`: the one that raises the lists which are returned in their order."""
        self._context, self._lists, self._members, self._exponent = context, lists, members, exponent
        me = context.party
        self._others = [party for party in members if party != me]
        self._keys = {me: b"" if arithmetic.form_in_use() is None else proof.key_of(exponent)}
        self.asks = context.policy.alignment_proof
        self.asking = {me} if self.asks else set[str]()

    async def announce(self) -> None:
        """Send every other party the own key, and whether this party asks."""
        own = alignment_pb2.AlignmentKey(key=self._keys[self._context.party], asks=self.asks)
        await together(*(self._context.outbox.send(party, "alignment_key", [own]) for party in self._others))

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

    def _claim(self, prover: str, verifier: str) -> Claim:
        """The claim of a proof, without the lists."""
        context, keys = self._context, self._keys
        return Claim(context.job, context.digest, context.attempt, prover, verifier, keys[prover], keys[verifier])


class ListProofs(AnnouncedKeys):
    """One party's proofs to the other of two, and its checks of the other's, for one attempt at a job."""

    @property
    def asked(self) -> bool:
        """True if the other party asks; known once it has been met."""
        return self._peer in self.asking

    @property
    def _peer(self) -> str:
        return self._others[0]

    async def prove(self, points: PointList, raised: PointList) -> alignment_pb2.ListProof:
        """The proof of a raised list with signs, of which the first one has roots; `Malformed` if they are empty."""
        me = self._context.party
        if not len(points):
            raise Malformed(f"{self._peer} asks {me} for a proof of its list of identifiers, which is empty")
        claim = self._claim(me, self._peer)
        statement = await self._statement(claim, points, raised)
        source = await self._lists.summed(points, statement)
        challenge, response = proof.prove(self._exponent, claim, statement, source)
        return alignment_pb2.ListProof(challenge=challenge, response=response)

    async def send(self, made: alignment_pb2.ListProof, stage: int) -> None:
        """Send the proof of the list that goes back at this turn."""
        await self._context.outbox.send(self._peer, "list_proof", [made], stage=stage)

    async def check(self, points: PointList, raised: PointList, stage: int) -> None:
        """Receive the proof of the list that came back at this turn, and check it; both lists have roots.

        Raises:
            Malformed: the list is not the one that was sent, raised by the exponent of the other party's key.
        """
        given: alignment_pb2.ListProof = await self._context.mailbox.only(self._peer, "list_proof", 0, stage)
        me, peer = self._context.party, self._peer
        claim = self._claim(peer, me)
        statement = await self._statement(claim, points, raised)
        sums = await self._lists.summed(points, statement), await self._lists.summed(raised, statement)
        if not proof.holds(claim, statement, sums, (given.challenge, given.response)):
            raise Malformed(
                f"{peer} did not return the blinded identifiers of {me} raised by one exponent, in their order: its "
                f"proof does not hold; no record counts as common. {peer} runs another program than treetap or is not "
                "honest: settle that with its operator before another job with it"
            )

    async def _statement(self, claim: Claim, points: PointList, raised: PointList) -> bytes:
        """The statement of a claim about these lists, the second one with signs."""
        lists = (points, raised, required(raised.signs))
        digests = await self._context.offload(lambda: [one.digest() for one in lists], whole=True)
        return claim.statement(len(points), digests)
