"""Lattice backend of Fed-EINI at a feature party: slots that its own columns exclude become zero, the rest goes on."""

from __future__ import annotations

from collections.abc import Mapping

from party.config import PartyConfig
from party.lattice.layout import take_layout
from party.lattice.scheme import BLOCK_BYTES, LatticeMasking
from party.prediction.chain import ChainPlace, blaming, check_hides, take_block
from party.prediction.expected import ShardSize, block_records
from party.prediction.feature_names import NAMES
from party.prediction.member_entries import spare_of
from party.prediction.opened_model import OpenedModel
from party.prediction.step_rows import OPENING_ROWS
from party.prediction.tree_model import OwnSplits
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import BLOCKS, Expected, Receives
from party.runtime.job_store import Store
from party.runtime.step_order import NEXT_ROUND, Next, StepTable
from party.runtime.steps import Step
from treetap.errors import Malformed
from treetap.lattice.kernels import LatticeMember
from treetap.lattice.parameters import MOST_KEY_BYTES, PARAMETERS_BYTES
from treetap.wire.v2 import control_pb2, prediction_pb2

STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: (Next("take_key"),),
    "take_key": (Next("mask_block"),),
    "mask_block": (Next("mask_block", NEXT_ROUND),),
}


class FeatureParty:
    """A feature party of the chain."""

    def __init__(
        self, config: PartyConfig, store: Store, context: StepContext, opening: prediction_pb2.OpenModel
    ) -> None:
        """Raises BadInput: see `OpenedModel`."""
        self._context, self._opening = context, opening
        self._place = ChainPlace.of(context.party, opening)
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._model = OwnSplits.of_feature_party(self._opened)
        self._opened.names.give(self._model.names())
        self._scheme: LatticeMasking | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self._opened.open_model,
            **self._opened.steps,
            "take_key": self.take_key,
            "mask_block": self.mask_block,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        sender, size = self._place.label_holder, ShardSize(self._opened.shard, "splits")
        return {
            **self._opened.receives,
            "lattice_key": Expected([sender], lambda: MOST_KEY_BYTES),
            "column_layout": Expected([sender], size.columns),
            **block_records(sender, self._opened.records),
            "lattice_columns": Expected([self._place.before], lambda: 4 * BLOCK_BYTES, BLOCKS),
        }

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the own branches that each column depends on, and a key of the sizes that follow from them."""
        self._opened.order.check(request)
        context, sender, shard = self._context, self._place.label_holder, self._opened.shard
        messages = context.mailbox.series(sender, "column_layout", 0, 0)
        layout = await take_layout(messages, context.party, sender, shard, len(self._opening.feature_parties))
        parameters = layout.shape.parameters()
        check_hides(context, spare_of(layout.nodes, parameters.plain_bits), "a sum")
        public = b""
        longest = PARAMETERS_BYTES + parameters.seeded_bytes
        async for message in context.mailbox.series(sender, "lattice_key", 0, 0):
            public += message.protocol.lattice.lattice_key.public
            if len(public) > longest:
                raise Malformed(f"the key of {sender} has more than the {longest} bytes of this job's parameters")
        token = f"{context.job}/{context.attempt}"
        member = LatticeMember(context.engine, parameters, public, token, layout.shape.outputs)
        self._scheme = LatticeMasking(context, member, layout, parameters, self._place, self._opening.serve)
        try:
            await self._scheme.start()
        except Malformed as failure:
            raise Malformed(f"the key of {sender} cannot be used: {failure}") from failure
        self._opened.order.done(request)
        return empty_result()

    async def mask_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Mask a block of records.

        1. Take its records from the label holder,
        2. compute the masks from the own columns, page by page,
        3. apply them to the ciphertexts as they come and pass each on re-randomised while others come;
           the last of the chain sums, floods and returns them.
        """
        number, context = request.round, self._context
        self._opened.order.check(request)
        rows = await take_block(context, self._place.label_holder, number, len(self._opened.aligned.ids))
        with blaming(self._place.before, number):
            await required(self._scheme).pass_on(self._model.directions(rows), len(rows), number)
        context.mailbox.forget(number)
        self._opened.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        scheme, self._scheme = self._scheme, None
        if scheme is not None:
            await scheme.close()
