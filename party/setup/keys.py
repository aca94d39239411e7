"""The key pair of a training job at the label holder: generated for each attempt, held in memory only.

A seed that no party chooses: all commit to nonces, and open them when every commitment has come.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence

import numpy as np
from google.protobuf.message import Message

from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.lattice.histogram_scheme import NONCE_BYTES, commitment, seed_of, self_test
from treetap.party.runtime.context import CiphertextBody, StepContext, required
from treetap.party.setup.steps import make_key, make_proof, send_key
from treetap.process.together import together
from treetap.protocols.key_options import KeyKind
from treetap.tables.labels import Labels
from treetap.trees.slots import Slots
from treetap.wire.v2 import setup_pb2

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def fitting(slots: Slots, labels: Labels, key: KeyKind, remedy: str) -> Slots:
    """The layout of one record; `BadInput` names the remedy if it does not fit a plaintext of the job's key."""
    try:
        slots.groups_per_plaintext(key.plain_bits)
    except PlaintextOverflow as failure:
        holder = f"a Paillier key of {key.bits} bits" if key.bits else f"scheme {key.scheme!r}"
        raise BadInput(
            f"{len(labels.classes)} classes of {len(labels.values)} records need {slots.bits} bits in one plaintext, "
            f"{holder} has {key.plain_bits}: use {remedy}"
        ) from failure
    return slots


class JobKeys:
    """Encrypts for the feature parties and decrypts the sums that they return, for one attempt at a job."""

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._ciphertext_bytes = 0
        self._owner: KeyHolder | None = None

    async def make(self, slots: Slots, *, label_slots: int = 0, own_rounds: int = 0) -> None:
        """Generate the key pair of this attempt.

        The public key goes to every feature party with the layout of a record's plaintext, the secret key to the
        workers. `label_slots` and `own_rounds`: see `send_key`.
        """
        secret = await make_key(self._context, KeyKind.of(self._spec))
        self._ciphertext_bytes = secret.public.ciphertext_bytes
        self._owner = KeyHolder(self._context.engine, secret, slots, self._spec.obfuscation)
        self._context.held.push_async_callback(self._owner.close)
        await self._owner.start()
        parties = list(self._spec.feature_parties)
        proof = await make_proof(self._context, self._owner.prove)
        await send_key(self._context, secret, slots, parties, proof, label_slots=label_slots, own_rounds=own_rounds)

    def fit(self, slots: Slots, labels: Labels, remedy: str) -> None:
        """`BadInput` if plaintexts of this layout do not fit the job's key: see `fitting`."""
        fitting(slots, labels, KeyKind.of(self._spec), remedy)

    async def stream(
        self, values: Ints, kind: str, body: Callable[..., Message], parties: Sequence[str], round: int = 0
    ) -> None:
        """Encrypt records (n, S) once, and send every block to all `parties` while the next blocks are encrypted.

        `kind`: the kind of the messages; `body`: makes one of its `first` record, `count` and `ciphertexts`.
        """
        streams = [self._context.outbox.open(party, kind, round) for party in parties]
        progress, costs = self._context.progress, self._context.costs
        progress.done, progress.total = 0, len(values)
        slots = [values[:, slot] for slot in range(values.shape[1])]  # views; each block is copied on its way
        async for first, ciphertexts in required(self._owner).encrypt_blocks(slots):
            count = len(ciphertexts) // self._ciphertext_bytes
            block = CiphertextBody(body(first=first, count=count), ciphertexts)
            await together(*(stream.put(block) for stream in streams))
            progress.done = first + count
            costs.operations["encryptions"] += count
            costs.ciphertexts[kind] += count * len(streams)
        await together(*(stream.close() for stream in streams))

    async def open(self, packed: bytes, groups: int) -> Ints:
        """Decrypt sums, (groups, S) int64, of ciphertexts that each hold as many groups as fit a plaintext."""
        sums = await required(self._owner).open(packed, groups)
        self._context.costs.operations["decryptions"] += len(packed) // self._ciphertext_bytes
        return sums


async def draw_joint_seed(context: StepContext, parties: Sequence[str]) -> bytes:
    """32 bytes that are uniform if one of the parties is honest, the same at each of them; new in every attempt.

    Raises:
        BadInput: a party's kernels give other words than this one's.
        Malformed: a party opens another nonce than the one to which it committed.
    """
    own, me = secrets.token_bytes(NONCE_BYTES), context.party
    others = [party for party in parties if party != me]
    committed = setup_pb2.SeedCommitment(commitment=commitment(me, own), self_test=self_test())
    await context.outbox.send_each("seed_commitment", dict.fromkeys(others, (committed,)))
    commitments = {party: await context.mailbox.only(party, "seed_commitment") for party in others}
    for party, theirs in commitments.items():
        if theirs.self_test != committed.self_test:
            raise BadInput(
                f"the kernels of {party} and of {me} give other products for equal seeds, so that sums under scheme = "
                "'lattice' would be wrong: run the doctor at both, and install treetap again"
            )
    opened = setup_pb2.SeedNonce(nonce=own)
    await context.outbox.send_each("seed_nonce", dict.fromkeys(others, (opened,)))
    nonces = {me: own}
    for party in others:
        nonce = (await context.mailbox.only(party, "seed_nonce")).nonce
        if not hmac.compare_digest(commitment(party, nonce), commitments[party].commitment):
            raise Malformed(f"the nonce of {party} is not the one that it has committed to")
        nonces[party] = nonce
    return seed_of(context.job, context.attempt, nonces)
