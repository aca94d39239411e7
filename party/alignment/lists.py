"""A party's work with whole lists of blinded identifiers: over its workers, from and to other parties, in files.

A list is in memory a few messages or calls at a time only.

Proofs that a list came back to its owner raised by one exponent of each other party, in its order.

A policy asks for them (`alignment_proof`). Before any list each party tells the others its key, and if it asks. Who
asks draws numbers, and sums its list as it leaves, each point times its number, and as it comes back, with signs that
each party on the way multiplied. Once the list is back the owner sends the first sum around. Every party raises that
point by its exponent of the lists, proves it (`treetap.psi.proof`), and sends it on with the points and proofs before;
nobody shows a list. It must come back as the second sum. As nobody knew the numbers while the list was on its way, a
list that was changed anywhere has that sum with probability 2⁻¹²⁸. docs/alignment.md says what this leaves open.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from treetap.arrays import Rows
from treetap.errors import ConfigError, Malformed, Refused
from treetap.names import MOST_KEYS
from treetap.native import arithmetic
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.step_order import StepId, step
from treetap.process.together import together
from treetap.protocols.alignment import Plan, owners
from treetap.protocols.messages import JobSizes
from treetap.psi import lists, proof
from treetap.psi.group import POINT_BYTES, Exponent
from treetap.psi.lists import PointList, common, permutation, shuffled
from treetap.psi.proof import Claim, Sums
from treetap.tables.normalised import in_words, keys_in_words
from treetap.tables.record_ids import Ids
from treetap.wire.v2 import alignment_pb2, control_pb2
from treetap.wire.v2.alignment_pb2 import AlignmentKey, LeastCount, RecordDigest

T = TypeVar("T")
#: Points in one message: 1 MiB.
POINTS_PER_MESSAGE = 32_768
#: Points in one call to a worker: some tenths of a second of work, so that progress is reported often.
POINTS_PER_CALL = 4_096
#: Calls that wait at a worker or run there: one is sent while another is at work.
CALLS_PER_WORKER = 2
_LONGEST = 64  # characters of another party's rules of an id column that a message shows


class BlindedLists:
    """Makes, checks, raises, sends and receives lists for one attempt at a job."""

    def __init__(self, context: StepContext, plan: Plan, sizes: JobSizes, members: Sequence[str]) -> None:
        """`sizes`: take the lengths of the others' lists, once they have been here. `members`: of the alignment."""
        self._context, self._plan, self._sizes, self._members = context, plan, sizes, members
        self.signed_at: Collection[int] = ()  #: the turns whose lists come with signs, for a proof
        self.key = 0  #: of ids, whose lists these are

    async def blinded(self, ids: Ids, order: Rows, exponent: Exponent, sums: Sums | None = None) -> PointList:
        """The ids at these places, in this order, hashed to the group and raised; `sums`: get those of the list."""

        def call(first: int, last: int) -> tuple[Any, ...]:
            packed = exponent.for_kernel(), *ids.take(order[first:last]).packed()
            return packed if sums is None else (*packed, sums.numbers, first)

        made = self._new(len(order))
        kernel: Callable[..., Any] = lists.blind if sums is None else lists.blind_summed
        put: Callable[[int, Any], None] = made.put if sums is None else _and_sums(made, sums)
        await self._spread(kernel, call, len(order), "raised identifiers", put)
        return made

    async def raised(
        self, points: PointList, exponent: Exponent, *, signed: bool = False, sums: Sums | None = None
    ) -> PointList:
        """A new list of all points, checked and raised, in their order.

        `signed`: the new list gets signs, times those of the former one if that has some. `sums`: get those of the
        former list, which has signs.
        """

        def call(first: int, last: int) -> tuple[Any, ...]:
            block = exponent.for_kernel(), points.take(first, last - first)
            return block if sums is None else (*block, *_numbered(points, sums, first, last))

        made, total = self._new(len(points)), len(points)
        kernel: Callable[..., Any] = lists.raise_points
        put: Callable[[int, Any], None] = made.put
        if sums is not None:
            kernel, put = lists.raise_summed, _and_sums(made, sums)
        elif signed:
            made.signs = self._new(total, width=1)
            kernel, put = lists.raise_signed, _and_signs(made, made.signs, points.signs)
        await self._spread(kernel, call, total, "raised identifiers", put)
        return made

    async def check(self, points: PointList, sums: Sums | None = None) -> None:
        """Raise `Malformed` for invalid points, in lists that are only compared; raising a list checks it too.

        `sums`: get those of the list, which has signs.
        """

        def call(first: int, last: int) -> tuple[Any, ...]:
            block = points.take(first, last - first)
            return (block,) if sums is None else (block, *_numbered(points, sums, first, last))

        def put(_first: int, block: bytes) -> None:
            if sums is not None:
                sums.add(block)

        kernel: Callable[..., bytes] = lists.check_points if sums is None else lists.check_summed
        await self._spread(kernel, call, len(points), "checked identifiers", put)

    async def shuffled(self, points: PointList) -> PointList:
        """The points in a new order; the list is closed."""
        return await self._context.offload(lambda: shuffled(points, self._context.scratch.file), whole=True)

    async def common(self, own: PointList, *others: PointList, kept: Callable[[bytes, Rows], None]) -> None:
        """Give `kept` the points that all lists hold, in order and by parts, and their places in the first."""

        def work() -> None:
            for points, places in common(self._context.scratch.file, own, *others):
                kept(points.tobytes(), places)

        await self._context.offload(work, whole=True)

    def empty(self) -> PointList:
        return PointList(self._context.scratch.file())

    async def send(self, to: str, points: PointList | None, stage: int) -> list[PointList]:
        """Send a list, with its signs; returns none, so that sending and taking can be awaited together."""

        def bodies() -> Iterator[alignment_pb2.BlindedIds]:
            if points is None:
                return
            for first in range(0, len(points), POINTS_PER_MESSAGE):
                signs = b"" if points.signs is None else points.signs.take(first, POINTS_PER_MESSAGE)
                packed = np.packbits(np.frombuffer(signs, dtype=np.uint8)).tobytes()
                yield alignment_pb2.BlindedIds(points=points.take(first, POINTS_PER_MESSAGE), signs=packed)

        await self._context.outbox.send(to, "blinded_ids", bodies(), self.key, stage)
        return []

    async def take_all(self, senders: Sequence[int], stage: int) -> list[PointList]:
        """The lists that these members send, by their places."""
        return await together(*(self._take(self._members[sender], stage) for sender in senders))

    async def _take(self, sender: str, stage: int) -> PointList:
        made, rest = self.empty(), b""
        if stage in self.signed_at:
            made.signs = PointList(self._context.scratch.file(), width=1)
        place = self._members.index(self._context.party)
        owner = owners(self._plan, place).get((self._members.index(sender), stage))
        async for message in self._context.mailbox.series(sender, "blinded_ids", self.key, stage):
            ids = message.alignment.blinded_ids
            block = rest + ids.points
            whole = len(block) // POINT_BYTES * POINT_BYTES
            made.append(block[:whole])
            rest = block[whole:]
            if made.signs is not None:
                bits = np.unpackbits(np.frombuffer(ids.signs, dtype=np.uint8))
                made.signs.append(bits[: len(made) - len(made.signs)].tobytes())
            if owner is not None:
                self._context.ledger.check_list(self._members[owner], len(made))
        if rest:
            size = len(made) * POINT_BYTES + len(rest)
            raise Malformed(f"{sender} sent {size} bytes of blinded identifiers, no whole number of points")
        if made.signs is not None and len(made.signs) != len(made):
            raise Malformed(
                f"{sender} sent {len(made.signs)} signs for {len(made)} identifiers: a proof needs one each"
            )
        if owner is not None and owner != place:  # the own list is compared with the own ids
            before = self._sizes.lists.setdefault(owner, len(made))
            if len(made) != before:
                whose = f"blinded identifiers of {self._members[owner]}: they were {before} before"
                raise Malformed(f"{sender} sent {len(made)} {whose}")
        return made

    def _new(self, points: int, width: int = POINT_BYTES) -> PointList:
        return PointList(self._context.scratch.file(), points, width)

    async def _spread(
        self,
        kernel: Callable[..., T],
        call: Callable[[int, int], tuple[Any, ...]],
        total: int,
        operation: str,
        put: Callable[[int, T], None],
    ) -> None:
        """Distribute `total` points over the workers, and report progress.

        `call`: the kernel's arguments for the points from the first to before the last. `put`: takes the place of the
        first, and the kernel's result.
        """
        progress, engine = self._context.progress, self._context.engine
        progress.done, progress.total = 0, total
        parts = iter(range(0, total, POINTS_PER_CALL))

        async def work(worker: int) -> None:
            for first in parts:
                last = min(first + POINTS_PER_CALL, total)
                put(first, await engine.call(worker, kernel, *call(first, last)))
                progress.done += last - first

        await together(*(work(worker) for worker in range(engine.workers) for _ in range(CALLS_PER_WORKER)))
        self._context.costs.operations[operation] += total


def _numbered(points: PointList, sums: Sums, first: int, last: int) -> tuple[bytes, bytes, int]:
    """Arguments of a kernel that sums points of a list with signs."""
    return required(points.signs).take(first, last - first), sums.numbers, first


def _and_sums(made: PointList, sums: Sums) -> Callable[[int, tuple[bytes, bytes]], None]:
    """Write points to a list, at a place, and add the sums beside them."""

    def put(first: int, blocks: tuple[bytes, bytes]) -> None:
        points, block = blocks
        made.put(first, points)
        sums.add(block)

    return put


def _and_signs(
    made: PointList, signs: PointList, before: PointList | None
) -> Callable[[int, tuple[bytes, bytes]], None]:
    """Write points and signs to lists, at a place; the signs times those before."""

    def put(first: int, blocks: tuple[bytes, bytes]) -> None:
        points, turned = blocks
        if before is not None:
            earlier = np.frombuffer(before.take(first, len(turned)), dtype=np.uint8)
            turned = (earlier ^ np.frombuffer(turned, dtype=np.uint8)).tobytes()
        made.put(first, points)
        signs.put(first, turned)

    return put


def own_steps(plan: Plan, place: int) -> list[StepId]:
    """The steps of the party at a place, in order."""
    return [(turn.step, 0, turn.stage) for turn in plan if place in turn.places]


def check_form(me: str, own: Ids, party: str, theirs: AlignmentKey | LeastCount | RecordDigest) -> None:
    """`ConfigError` unless another party's ids have as many keys as the own ones, and were made by the same rules."""
    if own.columns_of_keys != list(theirs.keys):
        others = keys_in_words(theirs.keys[: MOST_KEYS + 1])
        raise ConfigError(
            f"the table of {me} has {keys_in_words(own.columns_of_keys)}, that of {party} {others}: "
            "all parties list the same keys as id in the table's settings, of as many columns, in one order"
        )
    if (rules := own.form["normalise"]) != list(theirs.normalise):
        others = in_words([rule[:_LONGEST] for rule in theirs.normalise])
        raise ConfigError(
            f"the table of {me} has {in_words(rules)}, that of {party} {others}: "
            "ids of one customer would differ; all parties write the same list in the table's settings"
        )


class RaisedLists:
    """One party's lists, for one attempt at a job; the phase `ALIGNMENT` of a role's steps.

    Attributes:
        sequence: the party's own steps.
    """

    def __init__(self, context: StepContext, plan: Plan, sizes: JobSizes, members: Sequence[str]) -> None:
        """`sizes`: of the role's job. `members`: of the alignment, the label holder first."""
        self._context, self._members, self._sizes = context, list(members), sizes
        self._place = self._members.index(context.party)
        self._turns = [turn for turn in plan if self._place in turn.places]
        self.sequence: list[StepId] = own_steps(plan, self._place)
        self._own = self._ids = Ids.of([])  # of the party's table; of these, by a key, those of the list at hand
        self._shuffle: Rows = np.zeros(0, dtype=np.int64)
        self._held: list[PointList] = []  # between two turns
        self._common: PointList | None = None  # kept beside these, once it is known
        self._sums: Sums | None = None  # of the own list, for a proof of its return
        self._exponent = Exponent.draw()
        self._lists = BlindedLists(context, plan, sizes, self._members)

    @step()
    async def blind_ids(self) -> None:
        """Hash the party's own ids to the group and raise them, in a random order that the party keeps."""
        self._shuffle = await self._context.offload(lambda: permutation(len(self._ids)))
        self._hold(await self._lists.blinded(self._ids, self._shuffle, self._exponent, self._sums))

    @step()
    async def pass_ids(self, request: control_pb2.StepRequest) -> None:
        """Send the lists held to the next parties of the turn's routes, and receive theirs."""
        turn = next(turn for turn in self._turns if turn.stage == request.stage)
        me = self._place
        to = [self._members[there] for here, there in turn.routes if here == me != there]
        senders = [here for here, there in turn.routes if there == me != here]
        points = self._held[0] if self._held else None
        sending = (self._lists.send(party, points, turn.stage) for party in to)
        taken, *_ = await together(self._lists.take_all(senders, turn.stage), *sending)
        self._hold(*(self._held if (me, me) in turn.routes else []), *taken)

    @step()
    async def relay_ids(self) -> None:
        """Raise the received list and shuffle it.

        A list that has a point twice is refused: its owner could tell such a point from the others wherever it returns.
        """
        (points,) = self._held
        raised = await self._lists.raised(points, self._exponent)
        await self._lists.common(raised, kept=lambda _, __: None)  # which refuses it
        self._hold(await self._lists.shuffled(raised))

    def _hold(self, *lists: PointList) -> None:
        """Hold these lists; delete those that were held before, unless they are among them or kept beside them."""
        for points in self._held:
            if points not in (self._common, *lists):
                points.close()
        self._held = list(lists)


class ListProofs:
    """One party's part in the proofs of an alignment, for one attempt at a job.

    Attributes:
        sent, returned: of a party that wants a proof, the sums of its list as it left, and as it came back.
        asking: all parties that want one; known once they have been met.
    """

    sent: Sums | None = None
    returned: Sums | None = None
    _chain: alignment_pb2.SumOfList | None = None  # what came back of the own sum

    def __init__(self, context: StepContext, members: Sequence[str], exponent: Exponent, key: int, ids: int) -> None:
        """`exponent`: the one that raises the lists which are returned in their order. `key`: of ids, `ids` of them."""
        self._context, self._members, self._exponent, self._key = context, members, exponent, key
        me = context.party
        self._others = [party for party in members if party != me]
        self._keys = {me: b"" if arithmetic.form_in_use() is None else proof.key_of(exponent)}
        self.asking = set[str]()
        if context.policy.keys.alignment_proof and ids:  # of an empty list there is nothing to prove
            numbers = secrets.token_bytes(64)
            self.sent, self.returned, self.asking = Sums(numbers), Sums(numbers), {me}

    @property
    def asks(self) -> bool:
        """True if this party wants a proof."""
        return self.sent is not None

    async def announce(self, ids: Ids) -> None:
        """Send every other party the own key, whether this party asks, and the form of its ids."""
        own = alignment_pb2.AlignmentKey(key=self._keys[self._context.party], asks=self.asks, **ids.form)
        await self._context.outbox.send_each("alignment_key", dict.fromkeys(self._others, (own,)), self._key)

    async def meet(self, ids: Ids) -> None:
        """Receive the other parties' keys, who asks, and the form of their ids, which is the own.

        Raises:
            ConfigError: see `check_form`.
            Refused: a party asks for a proof which another's arithmetic does not make.
            Malformed: a key is none of the group, or another party's too, or its negative.
        """
        for party in self._others:
            theirs: alignment_pb2.AlignmentKey = await self._context.mailbox.only(party, "alignment_key", self._key)
            check_form(self._context.party, ids, party, theirs)
            taken = any(proof.same_but_for_sign(theirs.key, key) for key in self._keys.values())
            if theirs.key and (taken or not proof.valid_key(theirs.key)):
                which = "another party's too, or its negative" if taken else "no point of the group"
                raise Malformed(f"the key that {party} sent {self._context.party} before its identifiers is {which}")
            self._keys[party] = theirs.key
            self.asking |= {party} if theirs.asks else set()
        lacking = [party for party, key in self._keys.items() if not key]
        if self.asking and lacking:
            raise Refused(
                f"the policy of {min(self.asking)} asks for proofs of alignments (alignment_proof), which {lacking[0]} "
                f'cannot give: they need compiled kernels; set arithmetic = "native" in the file of {lacking[0]}, or '
                f"take the line out of the policy of {min(self.asking)}"
            )

    async def go_around(self) -> None:
        """Send the sum of the own list around, if this party asks, and prove the sums of others that do.

        Raises:
            Malformed: another party sent no point as its sum.
        """
        if not self.asking:
            return
        members, place = self._members, self._members.index(self._context.party)
        following, preceding = members[(place + 1) % len(members)], members[place - 1]
        chain = alignment_pb2.SumOfList(points=[] if self.sent is None else [self.sent.encoded()])
        for hop in range(len(members)):
            sending = self._context.outbox.send(following, "sum_of_list", [chain], self._key, hop)
            chain, _ = await together(self._context.mailbox.only(preceding, "sum_of_list", self._key, hop), sending)
            owner = members[(place - 1 - hop) % len(members)]
            if owner in self.asking and owner != self._context.party:
                # Add the raised point and its proof to what came.
                if len(chain.points) != hop + 1 or not proof.valid_key(chain.points[-1]):
                    raise Malformed(f"{preceding} sent no point of the group as the sum of the identifiers of {owner}")
                claim, source = self._claim(self._context.party, owner), chain.points[-1]
                challenge, response = proof.prove(self._exponent, claim, claim.statement(hop), source)
                chain.points.append(proof.raised_by(self._exponent, source))
                chain.proofs.append(alignment_pb2.ListProof(challenge=challenge, response=response))
        self._chain = chain

    def check(self) -> None:
        """Compare what came back of the own sum with the list that came back, if this party asks.

        Raises:
            Malformed: the list is not the one that was sent, or a proof is none; of a proof the message says whose.
        """
        if self.sent is None or self.returned is None:
            return
        me, members, place = self._context.party, self._members, self._members.index(self._context.party)
        chain = required(self._chain)
        points = chain.points
        if len(points) != len(members) or len(chain.proofs) != len(members) - 1 or points[0] != self.sent.encoded():
            raise Malformed(f"the sum of the identifiers of {me} did not come back from {members[place - 1]}")
        for hop, made in enumerate(chain.proofs):
            prover = members[(place + 1 + hop) % len(members)]
            claim = self._claim(prover, me)
            raised = points[hop], points[hop + 1]
            if not proof.holds(claim, claim.statement(hop), raised, (made.challenge, made.response)):
                raise Malformed(
                    f"{prover} did not prove to {me} that it raised the sum of its identifiers by one exponent; no "
                    f"record counts as common. Settle that with the operator of {prover} before another job with it"
                )
        if points[-1] != self.returned.encoded():
            others = " or ".join(self._others)
            raise Malformed(
                f"the blinded identifiers of {me} did not come back raised by one exponent of each party, in their "
                f"order: {others} has changed them, runs another program than treetap or is not honest; no record "
                "counts as common. Settle that with their operators before another job with them"
            )

    def _claim(self, prover: str, verifier: str) -> Claim:
        """The claim of a proof, without the sum."""
        context, keys = self._context, self._keys
        return Claim(context.job, context.digest, context.attempt, prover, verifier, keys[prover], keys[verifier])
