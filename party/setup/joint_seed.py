"""A seed that no party chooses: all commit to nonces, and open them when every commitment has come."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence

from treetap.errors import BadInput, Malformed
from treetap.lattice.histogram_scheme import NONCE_BYTES, commitment, seed_of, self_test
from treetap.party.runtime.context import StepContext
from treetap.process.together import together
from treetap.wire.v2 import setup_pb2


async def draw_joint_seed(context: StepContext, parties: Sequence[str]) -> bytes:
    """32 bytes that are uniform if one of the parties is honest, the same at each of them; new in every attempt.

    Raises:
        BadInput: a party's kernels give other words than this one's.
        Malformed: a party opens another nonce than the one to which it committed.
    """
    own, me = secrets.token_bytes(NONCE_BYTES), context.party
    others = [party for party in parties if party != me]
    committed = setup_pb2.SeedCommitment(commitment=commitment(me, own), self_test=self_test())
    await together(*(context.outbox.send(party, "seed_commitment", [committed]) for party in others))
    commitments = {party: await context.mailbox.only(party, "seed_commitment") for party in others}
    for party, theirs in commitments.items():
        if theirs.self_test != committed.self_test:
            raise BadInput(
                f"the kernels of {party} and of {me} give other products for equal seeds, so that sums under scheme = "
                "'lattice' would be wrong: run the doctor at both, and install treetap again"
            )
    opened = setup_pb2.SeedNonce(nonce=own)
    await together(*(context.outbox.send(party, "seed_nonce", [opened]) for party in others))
    nonces = {me: own}
    for party in others:
        nonce = (await context.mailbox.only(party, "seed_nonce")).nonce
        if not hmac.compare_digest(commitment(party, nonce), commitments[party].commitment):
            raise Malformed(f"the nonce of {party} is not the one that it has committed to")
        nonces[party] = nonce
    return seed_of(context.job, context.attempt, nonces)
