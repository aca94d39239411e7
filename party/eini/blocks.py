"""What encrypted predictions share, whichever scheme encrypts: keys once, then block after block along the chain.

The chain goes in the order of the opening's feature parties. A backend says what its keys are and what it sends.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from party.config import PartyConfig
from party.prediction.roles import Answering, Scoring
from party.prediction.scores_on_disk import Guessed
from party.runtime.context import Step, Tools, done
from party.runtime.job_store import Store
from party.runtime.messages import Rows, batches
from party.serving.registry import Desk
from treetap.errors import Incompatible, Malformed
from treetap.trees.leaf_entries import GoesLeft
from treetap.trees.paths import Floats
from treetap.wire.frame import result
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.v2 import control_pb2, prediction_pb2, types_pb2

#: Records whose candidate leaves are counted at a time.
CHECKED = 4096


class BlockSender(Scoring):
    """The label holder.

    after            may come
    open_model       the steps of the alignment
    alignment        make_keys
    make_keys        score_block(0)
    score_block(b)   score_block(b+1), write_predictions after the last; served: await_requests before each block
    """

    begins = "score_block"

    def __init__(
        self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel, desk: Desk
    ) -> None:
        super().__init__(config, store, tools, opening, desk, "make_keys")
        self.chain = [party for party in self.parties if party not in opening.away]
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            **self._names.steps,
            "make_keys": self.make_keys,
            "score_block": self.score_block,
            **self.asked.steps,
        }

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Lay the model out, which may take a while and so leaves the event loop; then as in every prediction."""
        self._order.check(("open_model", request.round, request.stage))
        await self._tools.offload(self.lay_out)
        return await super().open_model(request)

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """A key pair for this prediction alone, in memory only, and what the others must know of the trees."""
        self._order.check(("make_keys", request.round, request.stage))
        tools = self._tools
        if not self.chain:  # everybody is away: nobody's decisions are to be hidden
            self.next_block(0)
            return done()
        if tools.law.min_candidate_bits is not None:
            tools.law.check_paths(
                tools.party, await tools.offload(self._spare), "the trees leave some record fewer leaves than that"
            )
        await self.begin()
        self.next_block(0)
        return done()

    async def score_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """A block's records to everybody, its ciphertexts to the first of the chain, the sums from the last, opened."""
        number = request.round
        self._order.check(("score_block", number, request.stage))
        tools, table = self._tools, self.aligned
        rows, blocks = self.block(number)
        chunks = [prediction_pb2.BlockRecords(chunks=batch) for batch in batches(chunks_of(rows, len(table.ids)))]
        await asyncio.gather(*(tools.outbox.send(party, "block_records", chunks, round=number) for party in self.chain))
        sums, guessed = await self.sums(number, rows)
        self.keep(rows, self.ensemble.from_sums(sums), guessed)
        tools.mailbox.forget(number)
        self.next_block(number + 1)
        return self.scored(blocks)

    def scored(self, blocks: int) -> control_pb2.StepResult:
        """How far the prediction is, of so many blocks."""
        meter = self._tools.meter
        scored = prediction_pb2.ScoredBlock(blocks=blocks, done=meter.done, total=meter.total)
        return result(scored)

    @abstractmethod
    def lay_out(self) -> None:
        """Compute from the model alone what its blocks need."""

    @abstractmethod
    async def begin(self) -> None:
        """Make and send keys and layouts, and set how many records a block has."""

    @abstractmethod
    async def sums(self, number: int, rows: Rows) -> tuple[Floats, Guessed | None]:
        """The sums of leaf weights (n, outputs) of the records of a block, by way of the chain.

        Where a party is away also how much of each record's way is guessed for want of it (n,).
        """

    @abstractmethod
    def spare(self, goes_left: GoesLeft, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed the possible sums, (n,)."""

    def by_parts(self, spare: Callable[[GoesLeft, int], Floats]) -> Floats:
        """Spare bits of all records to predict, counted for some of them at a time."""
        parts = np.split(self.wanted, range(CHECKED, len(self.wanted), CHECKED))
        return np.concatenate([spare(self.directions(rows), len(rows)) for rows in parts])

    def _spare(self) -> Floats:
        """Of each record to predict, the bits by which its candidate leaves exceed the possible sums."""
        return self.by_parts(self.spare)


class BlockMasker(Answering):
    """A feature party: member h of the chain.

    after            may come
    open_model       the steps of the alignment
    alignment        take_key
    take_key         mask_block(0)
    mask_block(b)    mask_block(b+1)
    """

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening, "take_key")
        there = [party for party in opening.feature_parties if party not in opening.away]
        chain = [opening.label_holder, *there, opening.label_holder]
        place = chain.index(tools.party)
        self.before, self.after = chain[place - 1], chain[place + 1]
        self.last = self.after == opening.label_holder
        self.rows: Rows = np.zeros(0, dtype=np.int64)  #: of the block that is under way
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            **self._names.steps,
            "take_key": self.take_key,
            "mask_block": self.mask_block,
        }

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The public key of this prediction, and what the own masks depend on."""
        self._order.check(("take_key", request.round, request.stage))
        await self.begin()
        self._order.then(("mask_block", 0, 0))
        return done()

    async def mask_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """What the own columns exclude becomes zero; the last of the chain sums and returns."""
        number = request.round
        self._order.check(("mask_block", number, request.stage))
        tools, table = self._tools, self.aligned
        chunks: list[types_pb2.RecordChunk] = []
        async for parcel in tools.mailbox.series(self._opening.label_holder, "block_records", number, 0):
            chunks += parcel.prediction.block_records.chunks
        self.rows = rows_of(chunks, len(table.ids))
        if not len(self.rows):
            raise Malformed(f"{self._opening.label_holder}, block {number}: a block of no records")
        tools.meter.done, tools.meter.total = 0, len(self.rows)
        with self.blaming(number):
            await self.mask(number, self.directions(self.rows), len(self.rows))
        tools.mailbox.forget(number)
        self._order.then(("mask_block", number + 1, 0))
        return done()

    @abstractmethod
    async def begin(self) -> None:
        """Take key and layout, and refuse what does not fit the own shard."""

    @abstractmethod
    async def mask(self, number: int, goes_left: GoesLeft, n: int) -> None:
        """Mask what comes of a block of n records, and pass it on; `Malformed` where it cannot be."""

    @contextmanager
    def blaming(self, number: int) -> Iterator[None]:
        """Say of what cannot be in a block whose it is."""
        try:
            yield
        except (Malformed, Incompatible) as failure:
            raise type(failure)(f"{self.before}, block {number}: {failure}") from failure

    def check_paths(self, spare: float) -> None:
        """`Refused` where the policy wants more leaves left open; `spare`: bits beyond those of a sum."""
        fault = f"its own splits of this model leave {spare:.1f} bits beyond those of a sum"
        self._tools.law.check_paths(self._tools.party, np.array([spare]), fault)
