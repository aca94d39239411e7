"""Keys and nonces of all parties: each has a Paillier key of its own, one for masks, and a nonce for the draws.

The nonce is committed to before any is opened, so that no party can choose its own by the others'. It is stored with
the job, and the same in every attempt: a tree that is grown again has the same draws. Keys are made for each attempt,
and stay in memory.
"""

from __future__ import annotations

import hmac
import secrets

import numpy as np

from party.pivodl.setting import Setting
from party.setup.steps import make_key
from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.privacy.masks import MaskKey, PairwiseMasks
from treetap.protocols.key_options import KeyKind
from treetap.trees.role_draws import NONCE_BYTES, RoleDraws, commitment
from treetap.wire.v2 import pivodl_pb2

#: The names under which a party keeps its own nonce, and those of all parties once they are open.
NONCE = "nonce"
NONCES = "nonces"


class PartyKeys:
    """This party's keys, and the public halves of the others'."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._public: dict[str, PublicKey] = {}
        self._commitments: dict[str, bytes] = {}
        self._nonce = b""
        self._holder: KeyHolder | None = None
        self._masks: PairwiseMasks | None = None

    async def exchange(self) -> None:
        """Make this attempt's keys; send the public halves and the commitment, receive the others'."""
        setting = self._setting
        self._nonce = _stored_nonce(setting)
        secret = await make_key(setting.context, KeyKind.of(setting.spec))
        token = f"{setting.context.job}/{setting.context.attempt}"
        try:
            slots = setting.slots()
            self._holder = KeyHolder(setting.context.key_engine, secret, slots, setting.spec.obfuscation, token)
        except PlaintextOverflow as failure:
            raise BadInput(
                f"{len(setting.params.class_names)} classes of {setting.records} records do not fit a plaintext of a "
                f"key of {setting.spec.key_bits} bits: use a longer key ({failure})"
            ) from failure
        await self._holder.start()
        mask_key = MaskKey()
        body = pivodl_pb2.PartyKeys(
            modulus=secret.public.to_bytes(),
            mask_key=mask_key.public,
            nonce_commitment=commitment(setting.me, self._nonce),
        )
        self._public[setting.me] = self._read(setting.me, body.modulus)
        await setting.broadcast("party_keys", [body])
        others = {}
        for party in setting.others:
            keys: pivodl_pb2.PartyKeys = await setting.received_once(party, "party_keys")
            self._public[party] = self._read(party, keys.modulus)
            self._commitments[party] = keys.nonce_commitment
            others[party] = keys.mask_key
        self._masks = PairwiseMasks(setting.me, mask_key, others, token.encode())

    async def open_nonces(self) -> None:
        """Send the nonce, compare the others' with their commitments, and have the parties' roles drawn by all.

        Raises:
            Malformed: a nonce is not the committed one, or not the one of an earlier attempt.
        """
        setting = self._setting
        await setting.broadcast("party_nonce", [pivodl_pb2.PartyNonce(nonce=self._nonce)])
        nonces = {setting.me: self._nonce}
        for party in setting.others:
            nonce = (await setting.received_once(party, "party_nonce")).nonce
            if len(nonce) != NONCE_BYTES or not hmac.compare_digest(commitment(party, nonce), self._commitments[party]):
                raise Malformed(f"the nonce of {party} is not the one that it has committed to")
            nonces[party] = nonce
        _keep(setting, nonces)
        setting.draws = RoleDraws(setting.params.seed, setting.parties, nonces)

    def of(self, party: str) -> PublicKey:
        """A party's public key."""
        return self._public[party]

    @property
    def holder(self) -> KeyHolder:
        """This party's key, in the workers."""
        assert self._holder is not None
        return self._holder

    @property
    def masks(self) -> PairwiseMasks:
        """Masks that cancel in the sum over parties."""
        assert self._masks is not None
        return self._masks

    async def close(self) -> None:
        """Delete the key in the workers."""
        if self._holder is not None:
            holder, self._holder = self._holder, None
            await holder.close()

    def _read(self, party: str, modulus: bytes) -> PublicKey:
        key = KeyKind.of(self._setting.spec)
        length = int.from_bytes(modulus, "big").bit_length()
        if length != key.bits:
            raise Malformed(f"the key of {party} has {length} bits, the job says {key.bits}")
        try:
            return PublicKey.from_bytes(modulus, allow_breakable=key.breakable)
        except BadInput as failure:
            raise Malformed(f"the key of {party} cannot be used: {failure}") from failure


def _stored_nonce(setting: Setting) -> bytes:
    """The nonce of this party in this job, drawn once and stored before it is committed to."""
    store = setting.context.store
    found = store.load_arrays(NONCE)
    if found is None:
        store.save_arrays(NONCE, {"nonce": np.frombuffer(secrets.token_bytes(NONCE_BYTES), dtype=np.uint8)})
        found = store.load_arrays(NONCE)
        assert found is not None
    return found["nonce"].tobytes()


def _keep(setting: Setting, nonces: dict[str, bytes]) -> None:
    """Store the nonces of all parties; `Malformed` if an earlier attempt had others, which gave other draws."""
    store = setting.context.store
    found = {party: np.frombuffer(nonces[party], dtype=np.uint8) for party in setting.parties}
    before = store.load_arrays(NONCES)
    if before is None:
        store.save_arrays(NONCES, found)
        return
    changed = [party for party in setting.parties if not np.array_equal(before[party], found[party])]
    if changed:
        raise Malformed(
            f"the nonce of {' and '.join(changed)} was another one in an earlier attempt: its draws would give sums "
            "that one split party has opened to a second; cancel the job and train again"
        )
