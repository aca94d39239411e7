"""A job on a lattice over the virtual network, and what only such a job has."""

from __future__ import annotations

from tests.replay import HERE, ORACLE, PARAMS
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, assert_oracles_model, spec
from treetap.protocols.key_options import LATTICE

LABEL_HOLDER, FEATURE, OTHER = PARTIES
JOB = spec(PARAMS, scheme=LATTICE)
N = len(HERE.y)
#: Contents that only a job on a lattice has.
OWN = ("candidate_count", "seed_commitment", "seed_nonce", "encrypted_words")
NO_SUM = "feature-b has offered what is no sum over its columns: "


def flipped(data: bytes) -> bytes:
    """Other bytes of the same number."""
    return bytes([data[0] ^ 1]) + data[1:]


async def resumes(federation: Federation) -> None:
    """Without false contents the job goes on to the oracle's model."""
    federation.tamper = None
    finished(await federation.resume())
    assert_oracles_model(federation.states, ORACLE)
