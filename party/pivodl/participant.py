"""One party of a PIVODL job: its part in the job as the specification gives it, and how it sends to the others.

Keys and nonces of all parties: each has a Paillier key of its own, one for masks, and a nonce for the draws.

The nonce is committed to before any is opened, so that no party can choose its own by the others'. It is stored with
the job, and the same in every attempt: a tree that is grown again has the same draws. Keys are made for each attempt,
and stay in memory.

Labels at several parties: those that this party holds, their scores, and which party labels which record.

No other party sees the own labels and scores. Which party labels which records every party learns of all, and checks
that it is a partition.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Iterable
from typing import Any, NoReturn

import numpy as np

from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.arrays import Floats, Ints, Rows
from treetap.errors import BadInput, DataError, Malformed, OutOfOrder, PlaintextOverflow
from treetap.party.growth.stored_trees import SCORES
from treetap.party.runtime.context import Body, StepContext, as_chunk, counted_bodies, counted_items, required
from treetap.party.runtime.job_store import JobStore
from treetap.party.setup.steps import check_key_proof, make_key, make_proof
from treetap.privacy.masks import MaskKey, PairwiseMasks
from treetap.process.together import together
from treetap.protocols.key_options import KeyKind
from treetap.trees.loss import record_bounds
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import NONCE_BYTES, RoleDraws, SharedLabelLoss, commitment, stopped_by
from treetap.trees.slots import Slots, width_for
from treetap.wire.frame import content_of
from treetap.wire.records import rows_of
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
        # The nonce of this party in this job, drawn once and stored before it is committed to.
        store = me.context.store
        stored = store.load_arrays(NONCE)
        if stored is None:
            store.save_arrays(NONCE, {"nonce": np.frombuffer(secrets.token_bytes(NONCE_BYTES), dtype=np.uint8)})
            stored = required(store.load_arrays(NONCE))
        self._nonce = stored["nonce"].tobytes()
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


log = logging.getLogger(__name__)
#: Fewest labelled records with which a party adds a share to the training's metrics.
LEAST_MEASURED = 10


class OwnLabels:
    """Records that this party labels, of N common ones.

    Attributes:
        rows: (m,) their positions in the common order, ascending.
        values: (m,) class numbers, or targets in the unit of their table.
        records: N.
        trees: the number of trees that the scores include.
        metrics: those of the last tree, where this party was its aggregation party.
    """

    #: The loss of these labels, once `begin` has brought it.
    loss: SharedLabelLoss

    def __init__(self, rows: Rows, values: np.ndarray[tuple[int], np.dtype[Any]], records: int) -> None:
        self.rows, self.values, self.records = rows, values, records
        self.trees = 0
        self.metrics: dict[str, float] = {}
        self._place = np.full(records, -1, dtype=np.int64)
        self._place[rows] = np.arange(len(rows))
        self._scaled = values
        self._scores: Floats = np.zeros((len(rows), 1))
        self._before = self._scores  # those before the last tree
        self._derivatives: Ints | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a party's labels do not leave its process")

    def __repr__(self) -> str:
        return f"<OwnLabels of {len(self.rows)} records>"

    def places(self, rows: Rows) -> Rows:
        """The places, 0..m-1, of those of some records that this party labels."""
        places = self._place[rows]
        return places[places >= 0]

    def begin(self, loss: SharedLabelLoss, store: JobStore) -> None:
        """Scale the labels, and set the scores to those after the last stored tree."""
        self.loss = loss
        self._scaled = loss.scaled(self.values)
        self._scores = np.tile(loss.base, (len(self.rows), 1))
        self._before = self._scores.copy()
        arrays = store.load_arrays(SCORES)
        if arrays is None:
            return
        if arrays["scores"].shape != self._scores.shape:
            raise DataError(
                f"the table has labels of {len(self.rows)} records, the interrupted job had {len(arrays['scores'])}: "
                "restore that table, or cancel the job and train again"
            )
        self.trees, self._scores, self._before = int(arrays["trees"]), arrays["scores"], arrays["before"]
        names, values = arrays["metric_names"].tolist(), arrays["metric_values"].tolist()
        self.metrics = dict(zip(names, values, strict=True))

    def open_tree(self, t: int) -> None:
        """Begin tree `t`, the next one or the last stored one again: the party that stores last may lack it.

        Raises:
            OutOfOrder: the scores are those after another tree.
        """
        if t == self.trees - 1:
            self.trees, self._scores = t, self._before
        if t != self.trees:
            raise OutOfOrder(f"tree {t} cannot be grown on the scores after {self.trees} trees")
        self._before = self._scores.copy()
        self._derivatives = None

    @property
    def rounds(self) -> range:
        """The trees that may be grown next: see `open_tree`."""
        return range(max(self.trees - 1, 0), self.trees + 1)

    @property
    def derivatives(self) -> Ints:
        """(m, 2K) g and h at the present scores."""
        if self._derivatives is None:
            self._derivatives = self.loss.gradients(self._scores, self._scaled)
        return self._derivatives

    def add(self, places: Rows, weight: Floats) -> None:
        """Add a leaf's weight (K,) to the scores of its records."""
        self._scores[places] += weight

    def figures(self) -> tuple[float, float]:
        """Sums over the own records of their loss and of correct classes: `SharedLabelLoss.figures`."""
        return self.loss.figures(self._scores, self._scaled)

    def save(self, store: JobStore, trees: int) -> None:
        """Store the scores, which include the first `trees` trees, atomically."""
        self.trees = trees
        store.save_arrays(
            SCORES,
            {
                "trees": np.array(trees),
                "scores": self._scores,
                "before": self._before,
                "metric_names": np.array(list(self.metrics), dtype=np.str_),
                "metric_values": np.array(list(self.metrics.values()), dtype=np.float64),
            },
        )


class Ownership:
    """The records that each party labels, of N common ones.

    Attributes:
        rows: party → the positions of its labelled records, in the order of the job.
        records: N.
        owners: the parties that label some.
        measured: those with labels enough for a share of the training's metrics; none if there is only one.
    """

    def __init__(self, rows: dict[str, Rows], records: int) -> None:
        self.rows, self.records = rows, records
        self.owners = [party for party, labelled in rows.items() if len(labelled)]
        measured = [party for party, labelled in rows.items() if len(labelled) >= LEAST_MEASURED]
        self.measured = measured if len(measured) > 1 else []

    def labelled_by(self, party: str, rows: Rows) -> Rows:
        return np.intersect1d(rows, self.rows[party], assume_unique=True)

    def counts(self, rows: Rows) -> dict[str, int]:
        """The number of records among these that each party with labels labels."""
        inside = np.zeros(self.records, dtype=bool)
        inside[rows] = True
        return {party: int(inside[self.rows[party]].sum()) for party in self.owners}


async def share_ownership(me: Participant, own: OwnLabels) -> Ownership:
    """Send every party the records that this one labels, and receive theirs.

    Raises:
        DataError: two parties label a record, or none does.
        BadInput: the thresholds permit no split of the root.
    """
    items = counted_items(as_chunk, own.rows, own.records)
    bodies = counted_bodies(lambda chunks: pivodl_pb2.LabelledRecords(chunks=chunks), items)
    await me.broadcast("labelled_records", bodies)
    labelled = {me.name: own.rows}
    for party in me.others:
        chunks = [chunk async for part in me.received(party, "labelled_records") for chunk in part.chunks]
        labelled[party] = rows_of(chunks, own.records)
    ownership = Ownership({party: labelled[party] for party in me.parties}, own.records)
    # `DataError` unless each record is labelled by one party.
    times = np.zeros(ownership.records, dtype=np.int64)
    for rows in ownership.rows.values():
        times[rows] += 1
    twice = np.flatnonzero(times > 1)
    if len(twice):
        both = [party for party, rows in ownership.rows.items() if np.isin(rows, twice).any()]
        raise DataError(
            f"{len(twice)} of {ownership.records} records are labelled by more than one party ({', '.join(both)}): "
            "empty the label cells of all but one of them"
        )
    if without := int((times == 0).sum()):
        raise DataError(
            f"{without} of {ownership.records} records are labelled by no party: add their labels to one party's "
            "table, or leave these records out of a table, so that they are not common"
        )
    # `BadInput` if no split of the root can pass the thresholds.
    counts = ownership.counts(np.arange(ownership.records))
    if ownership.records < me.params.min_samples:
        raise BadInput(
            f"min_samples = {me.params.min_samples} is larger than every node: there are {ownership.records} records"
        )
    if me.params.as_published:
        least = me.params.instance_threshold
        short = [party for party, count in counts.items() if count < least]
        # A source's own threshold does not hold for its candidates: one party may be short, as the source.
        stopped = short if all(set(short) - {source} for source in ownership.rows) else []
    else:
        least = 2 * me.params.instance_threshold
        stopped = stopped_by(counts, me.params.instance_threshold)
    if stopped:
        raise BadInput(
            f"instance_threshold = {me.params.instance_threshold} stops every node: {', '.join(stopped)} label fewer "
            f"than {least} records; use a lower threshold, or give their labels to another party's table"
        )
    if len(ownership.owners) < 3:
        log.warning(
            "job %s: %d parties have labels; with fewer than three, a sum over them less the own share is another "
            "party's alone",
            me.context.job,
            len(ownership.owners),
        )
    return ownership
