"""Lattice backend of Fed-EINI at the label holder: columns out, encrypted; one sum per record and output back."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from party.config import PartyConfig
from party.lattice.layout import layout_messages
from party.lattice.scheme import BLOCK_BYTES, BlockColumns, LatticeScheme
from party.prediction.batch import Beside
from party.prediction.chain import blaming, check_hidden, scored_block, send_block
from party.prediction.feature_names import NAMES
from party.prediction.opened_model import OpenedModel
from party.prediction.records import record_source
from party.prediction.step_rows import OPENING_ROWS, after_block, first_block, record_rows
from party.prediction.tree_model import TreeModel, open_trees
from party.prediction.tree_results import TreeResults
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import BLOCKS, Expected, Receives
from party.runtime.job_store import Store
from party.runtime.step_order import Next, StepTable
from party.runtime.steps import Step
from party.serving.registry import ServedModels
from treetap.lattice.columns import NodeColumns, shape_of
from treetap.lattice.kernels import LatticeKeyHolder
from treetap.lattice.key_holder import LatticeKey
from treetap.lattice.scheme import scheme_of
from treetap.native import lattice as native
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.wire.v2 import control_pb2, lattice_pb2, prediction_pb2

log = logging.getLogger(__name__)


STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: (Next("make_keys"),),
    "make_keys": first_block("score_block"),
    "score_block": after_block("score_block"),
    **record_rows("score_block"),
}


class LabelHolder:
    """The label holder: both ends of the chain."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        served_models: ServedModels,
    ) -> None:
        """`served_models`: the registry that clients ask.

        Raises:
            BadInput: the scheme has no sizes for such a model; else as `OpenedModel`.
        """
        self._context = context
        self._chain = present(opening)
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._model = TreeModel(self._opened)
        beside: list[Beside] = []
        self._records = record_source(config, store, context, opening, self._opened, served_models, beside)
        self._results = TreeResults(context, opening, self._opened, self._model, self._records)
        beside.append(self._results.write)
        self._shape = shape_of(self._model.public, config.name, len(self._chain))
        self._parameters = self._shape.parameters()
        self._columns: NodeColumns | None = None
        self._scheme: LatticeScheme | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._opened.steps,
            "make_keys": self.make_keys,
            "score_block": self.score_block,
            **self._records.steps,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`: a ciphertext for each column of the score."""
        size = self._shape.outputs * self._parameters.ciphertext_bytes
        return {**self._opened.receives, "lattice_sums": Expected(self._chain[-1:], lambda: size, BLOCKS)}

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Lay out the columns, outside the event loop because it is slow; load the table, begin to align it."""
        self._opened.order.check(request)
        await self._context.offload(self._lay_out)
        return await open_trees(self._opened, self._records, self._model, request)

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Make a key for this prediction, in memory only; send each party its own branches that a column depends on."""
        self._opened.order.check(request)
        context, parameters, columns = self._context, self._parameters, required(self._columns)
        fault = "the candidate leaves of some record have fewer bits to spare than that"
        await check_hidden(context, self._model, self._records, columns.spare, fault)
        instructions = native.instructions()
        log.info("job %s: %d columns, %s, %s instructions", context.job, self._shape.columns, parameters, instructions)
        key = await context.offload(lambda: LatticeKey(parameters))
        owner = LatticeKeyHolder(context.key_engine, key, f"{context.job}/{context.attempt}")
        outputs, advance = self._shape.outputs, self._records.advance
        self._scheme = LatticeScheme(context, owner, parameters, outputs, self._chain, advance)
        await self._scheme.start()
        # what the owner encrypts has half the size of a ciphertext: its uniform half is a seed
        fitting = self._shape.records(parameters.degree, 2 * BLOCK_BYTES // parameters.ciphertext_bytes)
        self._records.size = min(self._records.size, fitting)
        public = lattice_pb2.LatticeKey(public=await context.offload(key.public_bytes))

        async def send(party: str) -> None:
            await context.outbox.send(party, "lattice_key", [public])
            await context.outbox.send(party, "column_layout", layout_messages(columns, party))

        await together(*map(send, self._chain))
        self._opened.order.done(request)
        return empty_result()

    async def score_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Score a block of records.

        1. Send its records to every feature party,
        2. compute the columns of every tree from the own splits, a tree at a time,
        3. encrypt them page by page and send them to the first of the chain, one message while the next is encrypted,
        4. open the sum for each output that the last of the chain returns, and add D(root),
        5. keep the scores.
        """
        self._opened.order.check(request)
        number, scheme = request.round, required(self._scheme)
        rows, blocks = self._records.block(number)
        await send_block(self._context, self._chain, number, rows, len(self._opened.aligned.ids))
        goes_left, pages = self._model.directions(rows), self._shape.pages(len(rows), self._parameters.degree)
        values = BlockColumns.of(required(self._columns), pages, goes_left, self._shape.outputs, len(rows))
        await scheme.send(values, number)
        with blaming(self._chain[-1], number):
            sums = values.sums(await scheme.receive(number))
        self._results.keep(rows, self._model.ensemble.from_sums(sums))
        self._context.mailbox.forget(number)
        self._opened.order.done(request, self._records.after_block(number))
        return scored_block(self._context, blocks)

    async def close(self) -> None:
        """Make the workers forget the key, of which there is no other copy."""
        scheme, self._scheme = self._scheme, None
        if scheme is not None:
            await scheme.close()

    def _lay_out(self) -> None:
        modulus = scheme_of(self._parameters).modulus
        self._columns = NodeColumns(self._model.ensemble, self._context.party, modulus, self._model.public)
