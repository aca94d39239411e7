"""Proofs of a key's form: made once an attempt where the key is, checked by every receiver before it uses the key.

A proof is bound to the job's digest, the attempt's number and the prover: one of another job, attempt or party is
refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from treetap.additive.paillier.key_proof import check_in_worker
from treetap.additive.paillier.public_key import PublicKey
from treetap.errors import Malformed
from treetap.party.runtime.context import StepContext


async def make_proof(context: StepContext, prove: Callable[[bytes], Awaitable[bytes]]) -> bytes:
    """The proof of the own key's form in this attempt; `prove`: of the key's holder, which has a worker make it."""
    return await prove(_bound_to(context, context.party))


async def check_key_proof(context: StepContext, prover: str, public: PublicKey, proof: bytes, worker: int = 0) -> None:
    """Check another party's proof in one of the workers.

    Raises:
        Malformed: it does not fit the key, or it is of another job, attempt or party.
    """
    try:
        await context.engine.call(
            worker % context.engine.workers, check_in_worker, public.to_bytes(), proof, _bound_to(context, prover)
        )
    except Malformed as failure:
        raise Malformed(
            f"{prover} sent a Paillier modulus that its proof does not fit: {failure}; {context.party} has not "
            f"used the key. Compare the releases of treetap at both: if they are the same, {prover} departs from the "
            "protocol"
        ) from failure


def _bound_to(context: StepContext, prover: str) -> bytes:
    """Parts of fixed lengths and a name."""
    return context.digest + context.attempt.to_bytes(8, "big") + prover.encode()
