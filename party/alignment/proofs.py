"""Proofs between two parties that a returned list is the one that was sent, raised by one exponent.

A policy asks for them (`alignment_proof`). Before any list each party tells the other its key, and whether it asks.
Who is asked sends signs with the list that it returns, and a proof after it; who asks checks both before it compares
lists. `treetap.psi.proof` says what holds then, docs/alignment.md what does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from party.alignment.lists import BlindedLists
from party.runtime.context import StepContext
from treetap.errors import Malformed, Refused
from treetap.native import arithmetic
from treetap.psi import proof
from treetap.psi.group import Exponent
from treetap.psi.lists import PointList
from treetap.psi.proof import Claim
from treetap.wire.v2 import alignment_pb2


class ListProofs:
    """One party's proofs to the other of two, and its checks of the other's, for one attempt at a job.

    Attributes:
        asks: this party wants a proof of the list that it gets back.
        asked: the other does; known once it has been met.
    """

    asked = False

    def __init__(self, context: StepContext, lists: BlindedLists, peer: str, exponent: Exponent) -> None:
        self._context, self._lists, self._peer, self._exponent = context, lists, peer, exponent
        self._key = b"" if arithmetic.form_in_use() is None else proof.key_of(exponent)
        self._peer_key = b""
        self.asks = context.policy.alignment_proof

    async def announce(self) -> None:
        """Send the other party the own key, and whether this one asks."""
        await self._context.outbox.send(
            self._peer, "alignment_key", [alignment_pb2.AlignmentKey(key=self._key, asks=self.asks)]
        )

    async def meet(self) -> None:
        """Receive the other party's key, and whether it asks.

        Raises:
            Refused: one of both asks for a proof which the other's arithmetic does not make.
            Malformed: the key is none of the group, or the own one.
        """
        me, peer = self._context.party, self._peer
        theirs: alignment_pb2.AlignmentKey = await self._context.mailbox.only(peer, "alignment_key")
        self._peer_key, self.asked = theirs.key, theirs.asks
        for asks, asker, other, key in ((self.asks, me, peer, self._peer_key), (self.asked, peer, me, self._key)):
            if asks and not key:
                raise Refused(
                    f"the policy of {asker} asks for proofs of alignments (alignment_proof), which {other} cannot "
                    f'give: they need compiled kernels; set arithmetic = "native" in the file of {other}, or take the '
                    f"line out of the policy of {asker}"
                )
        if self._peer_key and (self._peer_key == self._key or not proof.valid_key(self._peer_key)):
            which = "this party's own" if self._peer_key == self._key else "no point of the group"
            raise Malformed(f"the key that {peer} sent {me} before its identifiers is {which}")

    async def prove(self, points: PointList, raised: PointList) -> alignment_pb2.ListProof:
        """The proof of a raised list with signs, of which the first one has roots; `Malformed` if they are empty."""
        me = self._context.party
        if not len(points):
            raise Malformed(f"{self._peer} asks {me} for a proof of its list of identifiers, which is empty")
        claim, statement = await self._claim(me, self._peer, points, raised)
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
        claim, statement = await self._claim(peer, me, points, raised)
        sums = await self._lists.summed(points, statement), await self._lists.summed(raised, statement)
        if not proof.holds(claim, statement, sums, (given.challenge, given.response)):
            raise Malformed(
                f"{peer} did not return the blinded identifiers of {me} raised by one exponent, in their order: its "
                f"proof does not hold; no record counts as common. {peer} runs another program than treetap or is not "
                "honest: settle that with its operator before another job with it"
            )

    async def _claim(self, prover: str, verifier: str, points: PointList, raised: PointList) -> tuple[Claim, bytes]:
        """What a proof is about, and its statement."""
        context, keys = self._context, {self._context.party: self._key, self._peer: self._peer_key}
        claim = Claim(context.job, context.digest, context.attempt, prover, verifier, keys[prover], keys[verifier])
        assert raised.signs is not None
        lists: Sequence[PointList] = (points, raised, raised.signs)
        digests = await context.offload(lambda: [one.digest() for one in lists], whole=True)
        return claim, claim.statement(len(points), digests)
