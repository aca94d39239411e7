"""The set-up of a training job, common to all training protocols: table, bins, key.

The label holder generates the key pair and sends the public key with the slot layout of one record's plaintext.

The key pair of a training job at the label holder: generated for each attempt, held in memory only.

A seed that no party chooses: all commit to nonces, and open them when every commitment has come.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from google.protobuf.message import Message

from treetap.additive.paillier.key_proof import check as check_proof
from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import BadInput, DataError, Malformed, PlaintextOverflow, did_you_mean, naming
from treetap.lattice.histogram_scheme import NONCE_BYTES, commitment, seed_of, self_test
from treetap.models.store import JOIN
from treetap.names import check_name
from treetap.party.config import PartyConfig
from treetap.party.runtime.context import CiphertextBody, StepContext, required
from treetap.process.together import together
from treetap.protocols import key_options
from treetap.protocols.job_spec import params_of
from treetap.protocols.key_options import LATTICE_BINS, PAILLIER, KeyKind
from treetap.protocols.registry import training_name
from treetap.tables.binned import bin_columns, refuse_columns
from treetap.tables.categories import Category
from treetap.tables.cells import Shape
from treetap.tables.config import TableConfig
from treetap.tables.labels import Labels
from treetap.tables.reading import Table, read_table
from treetap.trees.binning import BinnedTable
from treetap.trees.params import TreeParams
from treetap.trees.slots import Slots
from treetap.wire.v2 import setup_pb2

log = logging.getLogger(__name__)


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
            worker % context.engine.workers,
            check_proof,
            public.n,
            proof,
            _bound_to(context, prover),
            key_options.PROOF_ROUNDS,
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


#: Outcomes of a feature party's `prepare`.
PUBLISHED = "its model is published already"
UNPUBLISHED = "its model is not published yet"


def table_config(config: PartyConfig, name: str) -> TableConfig:
    """The party's table of that name; `DataError` without one, whose log has the tables that there are."""
    try:
        check_name(name)
    except ValueError as wrong:
        raise DataError(f"{name!r} is no name of a table: {wrong}", party=config.name) from None
    if (table := config.table(name)) is None:
        names = config.table_names()
        log.warning("there is no table %r; there are %s", name, ", ".join(map(repr, names)) or "none")
        fault = f"{config.name} has no table {name!r}{did_you_mean(name, names)}; its log lists those that it has"
        raise DataError(fault, party=config.name)
    return table


async def load_table(
    context: StepContext,
    config: TableConfig,
    *,
    with_label: bool,
    missing: float | None,
    categories: Mapping[str, Category] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    empty: Collection[str] = (),
    streams: bool = False,
    categorical: bool = False,
) -> Table:
    """Read the party's table off the event loop; see `read_table`."""
    with naming(context.party):
        return await context.offload(
            lambda: read_table(
                config,
                with_label=with_label,
                missing=missing,
                categories=categories,
                shapes=shapes,
                empty=empty,
                streams=streams,
                categorical=categorical,
            )
        )


async def load_job_table(
    context: StepContext, config: PartyConfig, spec: setup_pb2.JobSpec, *, with_label: bool, missing: float | None
) -> Table:
    """Read the party's table of a training job, which must be the one that the stored trees were grown on.

    Raises:
        DataError: it cannot be read, is another one, or has columns at which no tree of the job can split.
    """
    params, own = params_of(spec), table_config(config, spec.table)
    own = own if with_label else own.without_offsets
    streams = may_stream(config, spec, with_label=with_label)
    # sets of the label holder's own categories go to no other party
    allowed = with_label or config.policy.columns.splits_categories
    categorical = allowed and params.splits_categories
    table = await load_table(
        context, own, with_label=with_label, missing=missing, streams=streams, categorical=categorical
    )
    await bind_table(context, table)
    if isinstance(params, TreeParams):  # before the other parties hear of any record
        with naming(context.party):
            refuse_columns(table, params.one_hot_below)
            if not with_label:
                refuse_bins(table, KeyKind.of(spec))
    return table


def refuse_bins(table: Table, key: KeyKind) -> None:
    """Raise `DataError` for the first column whose categories are more than the bins that the job's scheme sums."""
    for name, count in table.category_counts.items() if key.on_lattice else ():
        if count > LATTICE_BINS:
            raise DataError(
                f"{table.path}: column {name!r} has {count} categories, and scheme = {key.scheme!r} takes "
                f'{LATTICE_BINS}: use encode = "ordinal" for it, or train with scheme = "paillier"'
            )


def may_stream(config: PartyConfig, spec: setup_pb2.JobSpec, *, with_label: bool) -> bool:
    """True if features may stay in their source: bins of each node, and repairs of noisy labels, need them at once."""
    params = params_of(spec)
    noisy = with_label and config.defences.label_dp is not None
    return isinstance(params, TreeParams) and not params.bins_per_node and not noisy


def without_columns(config: PartyConfig, spec: setup_pb2.JobSpec) -> bool:
    """True if the party's settings of the job's table name no columns."""
    return not table_config(config, spec.table).columns


async def bind_table(context: StepContext, table: Table, key: str = "table", role: str = "table on") -> None:
    """Raise `DataError` if the table differs in any cell from the one that the stored trees were grown on.

    `key`: that of the job that names it. `role`: its part in the growth of the trees, for messages.
    """
    if not context.store.bind(await context.offload(lambda: fingerprint(table)), key):
        raise DataError(
            f"{table.path}: is not the {role} which the stored trees of job {context.job} were grown; "
            "restore that one, or cancel the job and train again"
        ).at(context.party)


def fingerprint(table: Table) -> str:
    """SHA-256 over ids, features, tensors, labels, weights, offsets, constraints, cuts; stays on the party's disk."""
    state = hashlib.sha256(table.ids.digest)
    for part in table.values.digest_parts(table.rows):
        state.update(part)
    for name, cells in table.tensors.items():
        state.update(f"{name}\0{cells.shape}\0".encode())
        state.update(np.ascontiguousarray(cells).data)
    if table.label is not None:
        state.update(table.label.digest_part())
    if table.weights is not None:
        state.update(b"weights" + np.ascontiguousarray(table.weights).data)
    if table.offsets is not None:
        state.update(b"offsets" + np.ascontiguousarray(table.offsets.values).data)
    if table.directions:
        state.update(f"directions{sorted(table.directions.items())}".encode())
    if table.cuts:
        state.update(f"cuts{sorted(table.cuts.items())}".encode())
    return state.hexdigest()


async def bin_features(
    context: StepContext,
    table: Table,
    params: TreeParams,
    training: int | None = None,
    *,
    missing_bins: bool = False,
    lacks: bool = False,
) -> BinnedTable:
    """Bin the party's columns off the event loop; `training`, `missing_bins`, `lacks`: see `bin_columns`."""
    further: dict[str, Any] = {"missing_bins": missing_bins, "lacks": lacks, "scratch": context.scratch.file}
    with naming(context.party):
        return await context.offload(
            lambda: bin_columns(table, params.max_bin, params.one_hot_below, training, **further)
        )


def manifest_of(context: StepContext, spec: setup_pb2.JobSpec, table: Table, missing: float) -> dict[str, Any]:
    """The part of a model's manifest that every party writes: job, protocol and the party's own columns."""
    return {
        "job": context.job,
        "party": context.party,
        "protocol": training_name(spec),
        "missing": None if np.isnan(missing) else missing,
        **({JOIN: spec.join} if spec.join else {}),
        **table.described(),
    }


async def make_key(context: StepContext, key: KeyKind) -> SecretKey:
    """Label holder: a key pair for one attempt at a job, which is never stored on disk."""
    log.info("job %s makes a Paillier key of %d bits", context.job, key.bits)
    if key.breakable:
        log.warning(
            "job %s uses a %d-bit key: it can be broken, and is for tests and for reproducing figures only",
            context.job,
            key.bits,
        )
    return await context.offload(lambda: SecretKey.generate(key.bits, allow_breakable=key.breakable))


async def send_key(
    context: StepContext,
    secret: SecretKey,
    slots: Slots,
    feature_parties: list[str],
    proof: bytes,
    *,
    label_slots: int = 0,
    own_rounds: int = 0,
) -> None:
    """Label holder: send public key and slot widths to every feature party.

    `proof`: of the key's form, see `treetap.party.setup.steps`. `label_slots`: the last slots that hold a record's
    class beside what the protocol sums. `own_rounds`: the rounds from the first that the label holder does alone.
    """
    message = setup_pb2.PublicKeyMessage(
        scheme=PAILLIER,
        modulus=secret.public.to_bytes(),
        slot_widths=list(slots.widths),
        label_slots=label_slots,
        own_rounds=own_rounds,
        proof=proof,
    )
    await context.outbox.send_each("public_key", dict.fromkeys(feature_parties, (message,)))


@dataclass(frozen=True)
class ReceivedKey:
    """The label holder's key, the layout of a record's plaintext, and what else it has said with them.

    `said`: the message. Its `label_slots` are those slots, the last ones, that hold a record's class beside what the
    protocol sums. A lattice has no key, and bounds on the candidates of a party in a node and on the nodes of an
    attempt that are summed; some party may merge its bins, and second halves of all may serve all trees; sets of
    records are hidden by `hiding` bits.
    """

    key: PublicKey | None
    slots: Slots
    said: setup_pb2.PublicKeyMessage

    @property
    def public(self) -> PublicKey:
        """The key, where there is one."""
        return required(self.key)


async def take_key(
    context: StepContext, label_holder: str, expected: KeyKind, implied: Callable[[setup_pb2.PublicKeyMessage], Slots]
) -> ReceivedKey:
    """Feature party: receive public key and slot widths; a key of another scheme or size than the job's is refused.

    `implied`: the message → the layout that the job implies for so many slots, as far as this party knows the job.
    Wider slots would leave room in a plaintext for more than sums, narrower ones would add up what the job keeps apart.
    """
    key: setup_pb2.PublicKeyMessage = await context.mailbox.only(label_holder, "public_key")
    if key.scheme != expected.scheme:
        raise Malformed(f"the key of {label_holder} is one of scheme {key.scheme!r}, the job says {expected.scheme!r}")
    if expected.on_lattice and (key.modulus or key.proof):
        raise Malformed(f"{label_holder} sent a modulus, and scheme {key.scheme!r} has none")
    length = int.from_bytes(key.modulus, "big").bit_length()
    if length != expected.bits:
        raise Malformed(f"the key of {label_holder} has {length} bits, the job says {expected.bits}")
    try:
        public = None
        if not expected.on_lattice:
            public = PublicKey.from_bytes(key.modulus, allow_breakable=expected.breakable)
        slots = Slots(tuple(key.slot_widths))
        slots.groups_per_plaintext(expected.plain_bits)
        layout = implied(key)
    except (BadInput, PlaintextOverflow, Malformed) as failure:
        raise Malformed(f"the key of {label_holder} cannot be used: {failure}") from failure
    if slots != layout:
        raise Malformed(
            f"the key of {label_holder} cannot be used: it comes with slots of {_listed(slots)} bits, the job "
            f"implies {_listed(layout)}"
        )
    if public is not None:
        await check_key_proof(context, label_holder, public, key.proof)
    return ReceivedKey(public, slots, key)


def _listed(slots: Slots) -> str:
    """The widths as runs of equal ones: "2 x 40, 7"."""
    runs = ((width, len(list(run))) for width, run in groupby(slots.widths))
    return ", ".join(f"{count} x {width}" if count > 1 else str(width) for width, count in runs)


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
