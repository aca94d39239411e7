"""One party of a PIVODL job: its part in the job as the specification gives it, and how it sends to the others.

Keys and nonces of all parties: each has a Paillier key of its own, one for masks, and a nonce for the draws.

The nonce is committed to before any is opened, so that no party can choose its own by the others'. It is stored with
the job, and the same in every attempt: a tree that is grown again has the same draws. Keys are made for each attempt,
and stay in memory.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncIterator, Iterable
from typing import Any

import numpy as np

from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.party.runtime.context import Body, StepContext, required
from treetap.party.setup.steps import check_key_proof, make_key, make_proof
from treetap.privacy.masks import MaskKey, PairwiseMasks
from treetap.process.together import together
from treetap.protocols.key_options import KeyKind
from treetap.trees.loss import record_bounds
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import NONCE_BYTES, RoleDraws, commitment
from treetap.trees.slots import Slots, width_for
from treetap.wire.frame import content_of
from treetap.wire.v2 import pivodl_pb2, setup_pb2

#: The names under which a party keeps its own nonce, and those of all parties once they are open.
NONCE = "nonce"
NONCES = "nonces"


class Participant:
    """One party in one attempt at a job; nothing here changes while the job runs.

    Attributes:
        name: of the party.
        parties: all parties, in the order of the job, which is the order of ties.
        others: all but this one.
    """

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec, params: PivodlParams) -> None:
        self.context, self.spec, self.params = context, spec, params
        self.name = context.party
        self.parties = [spec.aggregator, *spec.feature_parties]
        self.others = [party for party in self.parties if party != self.name]

    async def broadcast(self, kind: str, bodies: Iterable[Body], t: int = 0, stage: int = 0) -> None:
        """Send the same series to every other party."""
        await self.context.outbox.send_each(kind, dict.fromkeys(self.others, tuple(bodies)), t, stage)

    async def received(self, sender: str, kind: str, t: int = 0, stage: int = 0) -> AsyncIterator[Any]:
        """The contents of a series, in order."""
        async for message in self.context.mailbox.series(sender, kind, t, stage):
            yield content_of(message, kind)


class PartyKeys:
    """This party's keys, and the public halves of the others'."""

    #: The layout of one candidate's sums in a plaintext: g of each output, then h.
    holder: KeyHolder
    slots: Slots

    #: Masks that cancel in the sum over parties.
    masks: PairwiseMasks

    #: The parties' roles, once all nonces are open.
    draws: RoleDraws

    def __init__(self, me: Participant) -> None:
        self._me = me
        self._public: dict[str, PublicKey] = {}
        self._commitments: dict[str, bytes] = {}
        self._nonce = b""

    async def exchange(self, records: int) -> None:
        """Make this attempt's keys; send the public halves and the commitment, receive and check the others'.

        Args:
            records: the number of common ones, over which sums must fit their slots.

        Raises:
            BadInput: sums over the records do not fit a plaintext.
            Malformed: another party's key is not the job's, or its proof does not fit.
        """
        me = self._me
        self._nonce = _stored_nonce(me)
        secret = await make_key(me.context, KeyKind.of(me.spec))
        try:
            self.slots = slots = slots_of(me.params, records)
            self.holder = KeyHolder(me.context.engine, secret, slots, me.spec.obfuscation)
        except PlaintextOverflow as failure:
            raise BadInput(
                f"{len(me.params.class_names)} classes of {records} records do not fit a plaintext of a key of "
                f"{me.spec.key_bits} bits: use a longer key ({failure})"
            ) from failure
        me.context.held.push_async_callback(self.holder.close)
        await self.holder.start()
        mask_key = MaskKey()
        body = pivodl_pb2.PartyKeys(
            modulus=secret.public.to_bytes(),
            mask_key=mask_key.public,
            nonce_commitment=commitment(me.name, self._nonce),
            proof=await make_proof(me.context, self.holder.prove),
        )
        self._public[me.name] = self._read(me.name, body.modulus)
        await me.broadcast("party_keys", [body])
        others, proofs = {}, {}
        for party in me.others:
            keys: pivodl_pb2.PartyKeys = await me.context.mailbox.only(party, "party_keys")
            self._public[party] = self._read(party, keys.modulus)
            self._commitments[party] = keys.nonce_commitment
            others[party] = keys.mask_key
            proofs[party] = keys.proof
        await together(
            *(
                check_key_proof(me.context, party, self._public[party], proof, worker)
                for worker, (party, proof) in enumerate(proofs.items())
            )
        )
        self.masks = PairwiseMasks(me.name, mask_key, others, f"{me.context.job}/{me.context.attempt}".encode())

    async def open_nonces(self) -> None:
        """Send the nonce, compare the others' with their commitments, and have the parties' roles drawn by all.

        Raises:
            Malformed: a nonce is not the committed one, or not the one of an earlier attempt.
        """
        me = self._me
        await me.broadcast("party_nonce", [pivodl_pb2.PartyNonce(nonce=self._nonce)])
        nonces = {me.name: self._nonce}
        for party in me.others:
            nonce = (await me.context.mailbox.only(party, "party_nonce")).nonce
            if len(nonce) != NONCE_BYTES or not hmac.compare_digest(commitment(party, nonce), self._commitments[party]):
                raise Malformed(f"the nonce of {party} is not the one that it has committed to")
            nonces[party] = nonce
        _keep(me, nonces)
        self.draws = RoleDraws(me.params.seed, me.parties, nonces)

    def of(self, party: str) -> PublicKey:
        return self._public[party]

    def _read(self, party: str, modulus: bytes) -> PublicKey:
        key = KeyKind.of(self._me.spec)
        length = int.from_bytes(modulus, "big").bit_length()
        if length != key.bits:
            raise Malformed(f"the key of {party} has {length} bits, the job says {key.bits}")
        try:
            return PublicKey.from_bytes(modulus, allow_breakable=key.breakable)
        except BadInput as failure:
            raise Malformed(f"the key of {party} cannot be used: {failure}") from failure


def slots_of(params: PivodlParams, records: int) -> Slots:
    """The layout g_0.., h_0.., each wide enough for the sum over all records.

    Raises:
        PlaintextOverflow: such sums need wider slots than there are.
    """
    g_most, h_most = record_bounds(params.objective)
    return Slots((width_for(records, g_most),) * params.width + (width_for(records, h_most),) * params.width)


def _stored_nonce(me: Participant) -> bytes:
    """The nonce of this party in this job, drawn once and stored before it is committed to."""
    store = me.context.store
    stored = store.load_arrays(NONCE)
    if stored is None:
        store.save_arrays(NONCE, {"nonce": np.frombuffer(secrets.token_bytes(NONCE_BYTES), dtype=np.uint8)})
        stored = required(store.load_arrays(NONCE))
    return stored["nonce"].tobytes()


def _keep(me: Participant, nonces: dict[str, bytes]) -> None:
    """Store the nonces of all parties; `Malformed` if an earlier attempt had others, which gave other draws."""
    store = me.context.store
    now = {party: np.frombuffer(nonces[party], dtype=np.uint8) for party in me.parties}
    before = store.load_arrays(NONCES)
    if before is None:
        store.save_arrays(NONCES, now)
        return
    changed = [party for party in me.parties if not np.array_equal(before[party], now[party])]
    if changed:
        raise Malformed(
            f"the nonce of {' and '.join(changed)} was another one in an earlier attempt: its draws would give sums "
            "that one split party has opened to a second; cancel the job and train again"
        )
