"""Alignment: the records that all parties hold, in one common order (docs/alignment.md).

sorted-ids   send_digest (feature party), compare_digests (label holder): for tables that were aligned beforehand
psi          the turns of `treetap.protocols.alignment`; between two turns a party keeps its lists in files

Ids of several keys are aligned by one key after another, each in a round of these turns, by exponents of its own; a
list has the records that no key before has matched. Between two parties alone both know which these are.

The outcome is row numbers: the places of the common records in the party's own table, in the common order.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from treetap.errors import ConfigError, DataError, Malformed
from treetap.party.alignment.lists import ListProofs, RaisedLists, check_form, own_steps
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.ledger import Kind
from treetap.party.runtime.step_order import StepId, step
from treetap.party.setup.labelled_table import check_evaluated
from treetap.protocols.alignment import owners, turns
from treetap.protocols.messages import JobSizes
from treetap.psi.group import Exponent
from treetap.psi.lists import PointList
from treetap.tables.binned import MARK, JobRecords, unmarked
from treetap.tables.normalised import keys_in_words
from treetap.tables.record_ids import Ids, KeyIds
from treetap.tables.source import Origin
from treetap.wire.v2 import alignment_pb2, control_pb2

if TYPE_CHECKING:
    from treetap.wire.own_rows import OwnRows

log = logging.getLogger(__name__)
STORED = "alignment"
#: Rules of a policy: of trainings, and of predictions.
CommonRecords = Literal["min_common_records", "min_prediction_records"]


def alignment_steps(members: Sequence[str], mode: str, party: str) -> list[StepId]:
    """The steps of a party in order; none if there is no other party. `members`: the label holder comes first.

    Raises:
        ConfigError: an unknown mode.
    """
    if mode == "sorted-ids":
        return [("compare_digests" if party == members[0] else "send_digest", 0, 0)]
    if mode == "psi":
        return own_steps(turns(len(members)), members.index(party))
    raise ConfigError(f"alignment = {mode!r}: this party supports psi and sorted-ids")


def begin_alignment(alignment: Alignment, records: JobRecords) -> int:
    """Begin to align the records of a training job; see `Alignment.begin`."""
    table, training = records.table, records.training if records.marked else None
    return alignment.begin(records.ids, table.rows, table.path, keep=True, training=training)


class Alignment(RaisedLists):
    """One party's part in finding the common records, for one attempt at a job."""

    def __init__(
        self,
        context: StepContext,
        mode: str,
        rule: CommonRecords,
        sizes: JobSizes,
        then: Callable[[], Awaitable[None]] | None = None,
        partner: str = "",
    ) -> None:
        """`rule`: the one of the policy that says how many records must be common. `sizes`: of the role's job.

        `then`: done in the last step, once these records are known. `partner`: of a label holder that aligns with each
        feature party apart, the one of this part.
        """
        members = sizes.members.aligned(partner or context.party)
        super().__init__(context, turns(len(members)), sizes, members)
        self._stored = f"{STORED}-{partner}" if partner else STORED
        other = partner or (members[0] if sizes.members.pairwise else "")
        self._partner, self._whose = partner, f"common with {other}" if other else "common to all parties"
        self._then = then
        self._rule = rule
        self.sequence = alignment_steps(self._members, mode, context.party)
        self._in_pairs = mode == "psi" and (sizes.members.pairwise or len(members) == 2)
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self._path: Origin = Path()
        self._keep = False
        self._training: int | None = None  # records of the training, the first ones, of a job with an eval table
        self._records: Rows | None = None
        self._keys: list[KeyIds] = []
        self._matched: list[Rows] = []  # the records that each key has found
        self._digest = b""  # of the last of them
        self._first = next((turn.stage for turn in self._turns if turn.step == "pass_ids"), 0)

    def begin(self, ids: Ids, rows: Rows, path: Origin, *, keep: bool, training: int | None = None) -> int:
        """Set the ids of the party's own table; returns the earlier attempt that aligned them, or 0.

        `rows`: the row of each record in the file `path`, for the party's own transcript. `keep`: store the outcome,
        so that a resumed job has the same records in the same order. `training`: the number of the records of the
        training, the first ones, where those of an eval table come behind them.

        Raises:
            DataError: the table holds other ids than when the job was aligned.
            ConfigError: the policy asks for a proof, which that alignment did not have; or the ids have several keys,
                and parties are not aligned in pairs.
        """
        self._own, self._rows, self._path, self._keep, self._training = ids, rows, path, keep, training
        self._sizes.ids = len(ids)
        if not self.sequence:  # there is no other party
            self._finish(np.arange(len(ids)))
            self._keep_rows(self._own_rows())
            return self._context.attempt
        if ids.keys and not self._in_pairs:
            raise ConfigError(
                f"{path}: {keys_in_words(ids.columns_of_keys)} is for alignment = 'psi' between two parties: a key is "
                "for records that no key before it has matched, which more parties do not know of each other; train "
                "with one other party or with join = 'left', or name an id of one key"
            ).at(self._context.party)
        self._keys = ids.by_key(0 if training is None else MARK)
        self._sizes.keys = len(self._keys)
        # in place: the role's order of steps has this list
        self.sequence += [(name, key, stage) for key in range(1, len(self._keys)) for name, _, stage in self.sequence]
        stored = self._context.store.load_arrays(self._stored) if keep else None
        if stored is None:
            return 0
        if stored["digest"].tobytes() != ids.digest:
            raise DataError(
                f"{path}: holds other ids than when job {self._context.job} was aligned; "
                "restore that file, or cancel the job and train again"
            ).at(self._context.party)
        if self._context.policy.keys.alignment_proof and not stored.get("proven", False):
            raise ConfigError(
                f"the policy says alignment_proof = true, and job {self._context.job} was aligned without a proof to "
                f"{self._context.party}; take that line out of the policy, or cancel the job and train again"
            ).at(self._context.party)
        self._enough_of(stored["records"])
        self._set_records(stored["records"])
        self._keep_rows(self._own_rows())
        return int(stored["attempt"])

    def common_with(self, party: str, ways: int = 1) -> PartnerRecords:
        """Those of the job's records that a feature party has; `ways`: see `PartnerRecords`."""
        del party
        return PartnerRecords(len(self.records), ways=ways)

    def listed(self, party: str) -> int:
        """The number of ids that another party's list had, which came here."""
        return self._sizes.lists[self._members.index(party)]

    @property
    def records(self) -> Rows:
        """The places of the common records in the party's own table, in the common order; the eval table's last."""
        return required(self._records)

    # ---- sorted-ids

    @step()
    async def send_digest(self) -> None:
        """Send the digest of the sorted ids to the label holder, if there are enough, and compare its own."""
        self._enough_of(np.arange(len(self._own)))
        await self._send_digest(self._own.digest, len(self._own), self._members[:1])
        async for party, records in self._differing(self._own.digest, self._members[:1]):
            raise self._other_ids(party, records)
        await self._agreed(np.arange(len(self._own)))

    @step()
    async def compare_digests(self) -> None:
        """Compare the parties' digests, and answer with the own; `DataError` unless every party holds the same ids.

        By the answer each party knows, before it sends anything of its columns, that its peers have the same job.
        """
        async for party, records in self._differing(self._own.digest, self._members[1:]):
            raise self._other_ids(party, records)
        await self._send_digest(self._own.digest, len(self._own), self._members[1:])
        await self._agreed(np.arange(len(self._own)))

    # ---- psi

    @step()
    async def blind_ids(self) -> None:
        """Send the others the key of this party's exponent, drawn for the key of ids at hand; then as in a count."""
        self._begin_key()
        await self._proofs.announce(self._own)
        await super().blind_ids()

    @step()
    async def pass_ids(self, request: control_pb2.StepRequest) -> None:
        """As in a count; receive the others' keys before any list."""
        if request.stage == self._first:
            await self._proofs.meet(self._own)
            self._lists.signed_at = self._signed()
        await super().pass_ids(request)

    @step()
    async def raise_ids(self, request: control_pb2.StepRequest) -> None:
        """Raise the received list in its order: by the first exponent with two parties, by the fresh one in a ring.

        In a ring the own list comes last, and loses the one-time exponent; who asks for proofs sums it.
        """
        (points,), parties = self._held, len(self._members)
        # whose list this party gets from the one before it at this turn
        place = owners(turns(parties), self._place)[(self._place - 1) % parties, request.stage - 1]
        owner, ring = self._members[required(place)], parties > 2
        if owner == self._context.party:
            self._check_length(points)
            raised = await self._lists.raised(points, self._fresh.over(self._once), sums=self._proofs.returned)
        else:
            exponent, asked = self._fresh if ring else self._exponent, owner in self._proofs.asking
            raised = await self._lists.raised(points, exponent, signed=asked)
        if not ring:
            self._common = raised
        self._hold(raised)

    @step()
    async def combine_ids(self) -> None:
        """Combiner: intersect all lists. It cannot link a point to an id, and learns only the sizes of overlaps."""
        # Raising has checked the points of its own list, the first; the others are only compared.
        for points in self._held[1:]:
            await self._lists.check(points)
        joint = self._lists.empty()
        await self._lists.common(*self._held, kept=lambda points, _: joint.append(points))
        self._hold(joint)
        self._enough(len(joint))
        await self._refresh(joint)

    @step()
    async def refresh_ids(self) -> None:
        """Replace this party's exponent on the common points by a fresh one."""
        (points,) = self._held
        await self._refresh(points)

    @step()
    async def trace_ids(self) -> None:
        """Blind the party's own list again, under a one-time exponent.

        That exponent stays on the list until the list returns: otherwise the last party before the owner would see the
        points that the owner finally sees, and could find its own ids among them (docs/adr/0013-one-time-exponent.md).
        """
        (self._common,) = self._held
        self._hold(await self._lists.blinded(self._ids, self._shuffle, self._once, self._proofs.sent))

    @step()
    async def prove_ids(self) -> None:
        """Prove the lists of those who ask, before anybody compares one."""
        await self._proofs.go_around()

    @step()
    async def match_ids(self) -> None:
        """Find the common records: the points of the party's own list, raised by every party, in the common list."""
        (own,), common, ring = self._held, required(self._common), len(self._members) > 2
        if ring:
            await self._lists.check(common)
        else:
            self._check_length(own)
            await self._lists.check(own, self._proofs.returned)
        self._proofs.check()
        state, parts = hashlib.sha256(), [np.zeros(0, dtype=np.int64)]

        def kept(points: bytes, places: Rows) -> None:
            state.update(points)
            parts.append(places)

        await self._lists.common(own, common, kept=kept)
        places, self._digest = np.concatenate(parts), state.digest()
        if ring and len(places) != len(common):
            raise Malformed(f"{self._context.party} does not hold all of the common identifiers")
        of = self._keys[len(self._matched)]
        self._matched.append(self._places[self._shuffle[places]])
        if self._own.keys:
            log.info(
                "job %s: key %d of %d: %d records match, of %d that no key before has matched; %d lack a part of it, "
                "%d have that of another record, which are in no list",
                *(self._context.job, len(self._matched), len(self._keys), len(places), len(self._ids)),
                *(of.lacking, of.shared),
            )
        if self._last_key:
            self._enough_of(np.concatenate(self._matched))
        # Feature party: send the label holder the digest of the common points.
        if self._place:
            await self._send_digest(self._digest, len(self._matched[-1]), self._members[:1], self._lists.key)
            await self._agreed_on_key()

    @step()
    async def agree_ids(self) -> alignment_pb2.AgreedIds:
        """Label holder: check that every party has found the same points; detects a party that changed a list."""
        records = len(self._matched[-1])
        async for party, theirs in self._differing(self._digest, self._members[1:]):
            raise Malformed(
                f"{party} found {theirs} common records, {self._context.party} {records}, or others: a party has "
                "changed a list of blinded identifiers"
            )
        return await self._agreed_on_key()

    # ---- parts of the steps

    def _begin_key(self) -> None:
        """Take the next key's ids of the records that none before it has matched, and exponents of its own."""
        key, ring = len(self._matched), len(self._members) > 2
        self._ids, self._places, *_ = self._keys[key]
        if key:
            left = np.flatnonzero(~np.isin(self._places, np.concatenate(self._matched)))
            self._ids, self._places = self._ids.take(left), self._places[left]
        self._lists.key = key
        self._sizes.lists.clear()
        self._exponent, self._fresh, self._once = Exponent.draw(), Exponent.draw(), Exponent.draw()
        raising = self._fresh if ring else self._exponent
        self._proofs = ListProofs(self._context, self._members, raising, key, len(self._ids))
        self._sums = None if ring else self._proofs.sent

    @property
    def _last_key(self) -> bool:
        return len(self._matched) == len(self._keys)

    async def _agreed_on_key(self) -> alignment_pb2.AgreedIds:
        """Delete the lists of the key, and end the phase if it was the last one."""
        if self._common is not None:
            self._common.close()
        self._common, self._shuffle = None, self._shuffle[:0]
        self._hold()
        another = not self._last_key
        if not another:
            await self._agreed(np.concatenate(self._matched))
        return alignment_pb2.AgreedIds(another_key=another)

    def _check_length(self, own: PointList) -> None:
        """Raise `Malformed` unless as many points came back as were sent."""
        if len(own) != len(self._shuffle):
            others = " or ".join(party for party in self._members if party != self._context.party)
            raise Malformed(
                f"{self._context.party} sent {len(self._shuffle)} blinded identifiers, {len(own)} came back: "
                f"{others} has changed them; no record counts as common. Settle that with the operator there"
            )

    def _signed(self) -> list[int]:
        """The turns at which a list comes to this party that another one has raised, and its owner asks for a proof."""
        started = [turn.stage for turn in self._turns if turn.step in ("blind_ids", "trace_ids")][-1]
        passes = owners(turns(len(self._members)), self._place).items()
        return [
            stage
            for (sender, stage), owner in passes
            if stage > started and owner not in (None, sender) and self._members[required(owner)] in self._proofs.asking
        ]

    async def _send_digest(self, digest: bytes, records: int, to: Sequence[str], key: int = 0) -> None:
        body = alignment_pb2.RecordDigest(digest=digest, records=records, **self._own.form)
        await self._context.outbox.send_each("record_digest", dict.fromkeys(to, (body,)), key)

    def _other_ids(self, party: str, records: int) -> DataError:
        return DataError(
            f"the ids of {party} ({records} records) are not those of {self._context.party} ({len(self._own)} "
            f'records, {self._path}); sorted-ids needs the same ids at every party, alignment = "psi" finds the '
            "common ones"
        )

    async def _differing(self, digest: bytes, parties: Sequence[str]) -> AsyncIterator[tuple[str, int]]:
        """Those of the parties with a different digest, each with its number of records; raises as `check_form`."""
        for party in parties:
            async for message in self._context.mailbox.series(party, "record_digest", self._lists.key, 0):
                theirs = message.alignment.record_digest
                check_form(self._context.party, self._own, party, theirs)
                if theirs.digest != digest:
                    yield party, theirs.records

    async def _refresh(self, points: PointList) -> None:
        raised = await self._lists.raised(points, self._fresh.over(self._exponent))
        self._hold(await self._lists.shuffled(raised))

    def _enough(self, count: int) -> None:
        if count == 0:
            raise DataError(
                f"no record is {self._whose}: do all id columns hold the same ids, written alike (normalise in the "
                "table's settings), and several columns in the same order?"
            )
        context = self._context
        context.policy.check(context.party, self._rule, count, records=f"records are {self._whose}")

    def _enough_of(self, records: Rows) -> None:
        """Check the number of common records, and of a job with an eval table the numbers of each kind."""
        if self._training is None:
            self._enough(len(records))
            return
        training = int((records < self._training).sum())
        self._enough(training)
        check_evaluated(self._context, len(records) - training, scores=self._place == 0 and not self._partner)

    async def _agreed(self, records: Rows) -> None:
        """End the phase, at a party that has the common records."""
        self._finish(records)
        self._keep_rows(await self._context.offload(self._own_rows))
        if self._then is not None:
            await self._then()

    def _finish(self, records: Rows) -> None:
        """Set the outcome, and store it if the job keeps it."""
        self._enough_of(records)
        if self._training is not None:
            records = np.concatenate([records[records < self._training], records[records >= self._training]])
        log.info("job %s: %d of %d records are %s", self._context.job, len(records), len(self._own), self._whose)
        if self._keep:
            self._context.store.save_arrays(
                self._stored,
                {
                    "records": records,
                    "digest": np.frombuffer(self._own.digest, dtype=np.uint8),
                    "attempt": np.array(self._context.attempt),
                    "proven": np.array(self._context.policy.keys.alignment_proof),
                },
            )
        self._set_records(records)
        self._keys, self._matched = [], []

    def _set_records(self, records: Rows) -> None:
        """Charge and set the outcome, before anything of these records is sent."""
        self._context.ledger.enter(Kind.RECORDS, len(records))
        self._records = records

    def _own_rows(self) -> OwnRows | None:
        """The common records' rows in the party's own table, for its transcript, if it has one."""
        if self._partner or not self._context.recorder.on:  # parts of one alignment have one entry
            return None
        from treetap.wire.own_rows import OwnRows  # a party that records nothing needs none

        ids = self._own.take(self.records)
        own = OwnRows.of(self._rows[self.records], ids if self._training is None else map(unmarked, ids))
        _ = own.digest  # here, where it keeps nothing waiting
        return own

    def _keep_rows(self, own: OwnRows | None) -> None:
        if own is not None:
            self._context.recorder.own_alignment(self._context.attempt, own)
