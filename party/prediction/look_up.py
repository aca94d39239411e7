"""Looking up new records at feature parties: blinded ids against a list that each of them has raised.

Once its common records are known a feature party raises H(id) of each of its others to an exponent k, in an order that
it draws, and sends the list. For a new record the label holder draws r, sends H(id)^r, gets (H(id)^r)^k, takes r away
and compares. It names a place of the list where it finds the point, and nothing where it does not. So a feature party
learns which records of its list are asked about, and how many it lacks; the label holder learns of each id that it
looks up whether the feature party has it. Group and hash are those of the alignment (`treetap.psi.group`).

List, exponent and order are of one attempt at serving: what comes late of an earlier one is of no use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from treetap.errors import Malformed, Refused
from treetap.party.alignment.lists import POINTS_PER_MESSAGE, BlindedLists
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.steps import blaming
from treetap.party.runtime.context import REMEDY, Rows, StepContext
from treetap.party.runtime.ledger import Kind
from treetap.party.runtime.step_order import step
from treetap.process.together import together
from treetap.protocols.messages import LEFT
from treetap.psi import lists
from treetap.psi.group import POINT_BYTES, Exponent
from treetap.psi.lists import Points
from treetap.tables.record_ids import Ids
from treetap.wire.frame import content_of
from treetap.wire.v2 import control_pb2, prediction_pb2
from treetap.wire.v2.serving_pb2 import NOT_COMMON, QUERIES_SPENT, RecordPrediction

#: Microseconds in which a point is blinded or raised, at most.
_POINT_US = 300
#: A charge of look-ups is this part of the limit of a day, or what is asked for, if that is more.
_PARTS = 100


class RaisedList:
    """A feature party's list, and its answers."""

    def __init__(self, job: PredictionJob, opened: OpenedModel) -> None:
        """Raises `Refused` if the policy lets the label holder look up nothing, or bounds what scores tell."""
        self._context, self._to, self._opened = job.context, job.opening.recipient, opened
        self._exponent, self._named = Exponent.draw(), set[int]()  # places behind the common records
        self._charged = self._answered = 0  # look-ups
        if not job.opening.look_up:
            return
        opened.then, fault = self._send, ""
        if self._to not in dict(job.context.ledger.daily(Kind.LOOK_UPS)):
            fault = f"has no look_ups_per_day under [partners.{self._to}]"
        elif job.context.policy.columns.min_candidate_bits is not None:
            fault = "has min_candidate_bits, and varied fields show directions one by one"
        if fault:
            me = job.config.name
            raise Refused(f"{me} lets {self._to} look up no records: its policy {fault}; serve without look_up")

    async def _send(self) -> None:
        """Raise the ids that are not common, in their drawn order, and send them."""
        ids, common = self._opened.aligned.ids, len(self._opened.alignment.records)
        made = BlindedLists(self._context, (), self._opened.sizes, ())
        points = await made.blinded(ids, np.arange(common, len(ids)), self._exponent)
        bodies = (prediction_pb2.ListedIds(points=part) for part in points.blocks(POINTS_PER_MESSAGE))
        await self._context.outbox.send(self._to, "listed_ids", bodies)
        points.close()

    @step()
    async def answer_look_ups(self, request: control_pb2.StepRequest) -> None:
        """Raise the points of a block's new records, if the policy permits as many look-ups more.

        Raises:
            Malformed: one is not of the group.
        """
        context, block = self._context, request.round
        points = await _received(context, self._to, "look_ups", block)
        count = len(points) // POINT_BYTES
        if permitted := await context.offload(partial(self._charge, count), whole=True):
            scalar = self._exponent.for_kernel()
            with blaming(self._to, block):
                points = await context.engine.call(0, lists.raise_points, scalar, points, us=_POINT_US * count)
            self._answered += count
        bodies = (prediction_pb2.LookedUp(points=part, spent=not permitted) for part in _parts(points * permitted))
        await context.outbox.send(self._to, "looked_up", bodies, round=block)

    def check(self, rows: Rows) -> None:
        """`Malformed` if more places of the list are named than were looked up: nobody knows a place otherwise."""
        records = rows // self._opened.ways
        self._named.update(records[records >= len(self._opened.alignment.records)].tolist())
        if len(self._named) > self._answered:
            said = f"names {len(self._named)} records of the list after {self._answered} look-ups"
            raise Malformed(f"{self._to} {said}; {REMEDY.format(self._to)}")

    def _charge(self, count: int) -> bool:
        """True if the policy permits so many look-ups; they are charged."""
        ledger = self._context.ledger
        if count > self._charged:
            most = min(limit for _, limit in ledger.daily(Kind.LOOK_UPS))
            more = max(count - self._charged, most // _PARTS)
            try:
                ledger.enter(Kind.LOOK_UPS, more)
            except Refused:
                return False
            self._charged += more
        self._charged -= count
        return True


class AskedRecords(PartnerRecords):
    """A feature party's records that the label holder may ask about: the common ones, and behind them its list.

    Attributes:
        found: new record → its place in the list.
    """

    def __init__(self, opened: OpenedModel, party: str, listed: int) -> None:
        self._opened, self._party, self._listed, self.found = opened, party, listed, dict[int, int]()
        self.apart = True

    @cached_property
    def _common(self) -> PartnerRecords:
        return self._opened.alignment.common_with(self._party, self._opened.ways)

    def __len__(self) -> int:
        return len(self._common) + self._listed * self._opened.ways

    def among(self, rows: Rows) -> Rows:
        """See `PartnerRecords.among`."""
        return rows[np.sort(self.placed(rows)[1])]

    def placed(self, rows: Rows) -> tuple[Rows, Rows]:
        """See `PartnerRecords.placed`."""
        ways = self._opened.ways
        known = int(np.searchsorted(rows, len(self._opened.alignment.records) * ways))
        (own, among), new = self._common.placed(rows[:known]), rows[known:]
        listed = np.array([self.found.get(record, -1) for record in (new // ways).tolist()], dtype=np.int64)
        order = np.argsort(listed, kind="stable")[int((listed < 0).sum()) :]
        behind = len(self._common) + listed[order] * ways + new[order] % ways
        return np.concatenate([own, behind]), np.concatenate([among, order + known])


class Lists:
    """The label holder's side: the lists of feature parties, and questions."""

    def __init__(self, job: PredictionJob, opened: OpenedModel) -> None:
        self._context, self._parties, self._opened = job.context, job.chain, opened
        self._left = job.opening.join == LEFT
        self._lists: dict[str, tuple[Points, Rows, AskedRecords]] = {}  # ascending, and the place of each point
        if job.opening.look_up:
            opened.then = self._take

    async def _take(self) -> None:
        """Take the list of each feature party.

        Raises:
            Malformed: it is longer than its owner's other records, or has a point twice or one outside of the group.
        """
        held, alignment = BlindedLists(self._context, (), self._opened.sizes, ()), self._opened.alignment
        for party in self._parties:
            points, common = await _received(self._context, party, "listed_ids"), alignment.common_with(party)
            stated, made = alignment.listed(party) - len(common), held.empty()
            if len(points) > POINT_BYTES * stated:
                raise Malformed(f"{party} lists {len(points) // POINT_BYTES} ids, and its table has {stated} more")
            made.append(points)
            with blaming(party, 0):
                await held.check(made)
            made.close()
            order = np.argsort(listed := _points(points))
            if (listed[order][1:] == listed[order][:-1]).any():
                raise Malformed(f"{party} lists an id twice; {REMEDY.format(party)}")
            asked = self._opened.asked_of[party] = AskedRecords(self._opened, party, len(order))
            self._lists[party] = listed[order], order, asked
        self._opened.sizes.records += max((len(order) for _, order, _ in self._lists.values()), default=0)

    async def find(
        self, block: int, new: Sequence[tuple[int, str]], waiting: Collection[int]
    ) -> tuple[dict[int, dict[str, None]], dict[int, RecordPrediction]]:
        """Look up new records, by number and id, at all feature parties; `waiting`: all that are still asked about.

        Returns of each the parties that lack it; and answers in place of scores. Records that a party lacks have
        scores by a join from the left alone.
        """
        lacking: dict[int, dict[str, None]] = {record: {} for record, _ in new}
        answers: dict[int, RecordPrediction] = {}
        asking = (self._ask(party, block, [name for _, name in new]) for party in self._parties)
        for party, listed in zip(self._parties, await together(*asking), strict=True):
            asked = self._lists[party][2]
            asked.found = {record: at for record, at in asked.found.items() if record in waiting}
            status = NOT_COMMON if listed else QUERIES_SPENT
            for record, at in zip(lacking, listed or [-1] * len(new), strict=True):
                if at >= 0:
                    asked.found[record] = at
                    continue
                if listed:
                    lacking[record][party] = None
                if not (listed and self._left):
                    answers[record] = RecordPrediction(status=status, party=party)
        return lacking, answers

    async def _ask(self, party: str, block: int, names: Sequence[str]) -> list[int]:
        """The place in a party's list of each id, -1 where it is none; empty: it permits no look-up more."""
        context, exponent, us = self._context, Exponent.draw(), _POINT_US * len(names)
        call = partial(context.engine.call, 0, us=us)
        blinded: bytes = await call(lists.blind, exponent.for_kernel(), *Ids.of(names).packed())
        bodies = (prediction_pb2.LookUps(points=part) for part in _parts(blinded))
        await context.outbox.send(party, "look_ups", bodies, round=block)
        if not (raised := await _received(context, party, "looked_up", block)):
            return []
        with blaming(party, block):
            if len(raised) != len(blinded):
                raise Malformed(f"{len(raised)} bytes answer look-ups of {len(blinded)}")
            points = _points(await call(lists.raise_points, Exponent(1).over(exponent).for_kernel(), raised))
        held, order, _ = self._lists[party]
        places = zip(np.searchsorted(held, points).tolist(), points, strict=True)
        return [int(order[at]) if at < len(held) and held[at] == point else -1 for at, point in places]


async def _received(context: StepContext, sender: str, content: str, block: int = 0) -> bytes:
    """The points of a series; none where its sender's policy permits none."""
    parts = context.mailbox.series(sender, content, block, 0)
    bodies: list[Any] = [content_of(message, content) async for message in parts]
    if content == "looked_up" and not any(body.points or body.spent for body in bodies):
        raise Malformed(f"{sender}, block {block}: no bytes answer look-ups")
    return b"".join(body.points for body in bodies)


def _parts(points: bytes) -> Iterator[bytes]:
    """The points in parts of a message each; one at least."""
    size = POINT_BYTES * POINTS_PER_MESSAGE
    return (points[at : at + size] for at in range(0, max(len(points), 1), size))


def _points(block: bytes) -> Points:
    return np.frombuffer(block, dtype=f"S{POINT_BYTES}")
