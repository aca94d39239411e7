"""Fed-EINI at the label holder (Chen et al. 2021, Algorithm 1): entries out, encrypted; one sum per record back.

Unlike the paper, the vectors have a place per entry, a set of leaves that no later party tells apart, not per leaf:
`treetap.trees.leaf_entries`, docs/protocol-eini.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.attributions.label_holder import Attributions
from party.config import PartyConfig
from party.eini.layout import SCORES, layout_messages
from party.prediction.batch import Beside
from party.prediction.chain import check_hidden, scored_block, send_block
from party.prediction.entry_scheme import EntryScheme
from party.prediction.expected import sums
from party.prediction.feature_names import NAMES
from party.prediction.opened_model import OpenedModel
from party.prediction.records import record_source
from party.prediction.step_rows import (
    ATTRIBUTED,
    OPENING_ROWS,
    after_batch_block,
    after_block,
    first_block,
    record_rows,
)
from party.prediction.tree_model import TreeModel, open_trees
from party.prediction.tree_results import TreeResults
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import Receives
from party.runtime.job_store import Store
from party.runtime.step_order import THIS_ROUND, Next, StepTable
from party.runtime.steps import Step
from party.serving.registry import ServedModels
from party.setup.steps import make_key, send_key
from treetap.additive.sums.masked_sums import EntryKeyHolder
from treetap.additive.sums.secret_keys import SecretKey
from treetap.errors import BadInput, PlaintextOverflow
from treetap.process.together import together
from treetap.protocols.key_options import KeyKind
from treetap.protocols.prediction import present
from treetap.trees.leaf_entries import SUM_BITS, Ints, LeafEntries
from treetap.wire.v2 import control_pb2, prediction_pb2

STEPS: StepTable = {
    **OPENING_ROWS,
    NAMES: (Next("make_keys"),),
    "make_keys": first_block("score_block"),
    "score_block": (Next("attribute_block", THIS_ROUND, ATTRIBUTED), *after_block("score_block")),
    "attribute_block": after_batch_block("score_block"),
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
            Refused: the key is shorter than the policy allows.
            BadInput: see `OpenedModel`.
        """
        context.policy.check_key(config.name, KeyKind.of(opening.parameters.eini))
        self._context, self._opening = context, opening
        self._chain = present(opening)
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._model = TreeModel(self._opened)
        beside: list[Beside] = []
        self._records = record_source(config, store, context, opening, self._opened, served_models, beside)
        results = TreeResults(context, opening, self._opened, self._model, self._records)
        beside.append(results.write)
        self._attributions: Attributions | None = None
        if opening.attributions:
            self._attributions = Attributions(context, opening, self._opened, self._model, self._records, results)
            beside.append(self._attributions.write)
        self._results = self._attributions or results
        self._entries: LeafEntries | None = None
        self._scheme: EntryScheme | _NoChain = _NoChain()
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._opened.steps,
            "make_keys": self.make_keys,
            "score_block": self.score_block,
            **(self._attributions.steps if self._attributions else {}),
            **self._records.steps,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`: a ciphertext of sums for each record."""
        key, most = KeyKind.of(self._opening.parameters.eini), self._opening.block
        found = {**self._opened.receives, **sums(self._chain, SCORES, most, 1, key)}
        return {**found, **(self._attributions.receives() if self._attributions else {})}

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Lay out the entries, outside the event loop because it is slow; load the table, begin to align it."""
        self._opened.order.check(request)
        await self._context.offload(self._lay_out)
        return await open_trees(self._opened, self._records, self._model, request)

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Make a key pair for this prediction, in memory only; send public key and layout of the entries."""
        self._opened.order.check(request)
        if self._chain:
            await self._check_hidden()
            await self._begin()
        self._opened.order.done(request)
        return empty_result()

    async def score_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Stages 1 and 2 for a block of records.

        1. Send the records of the block to every feature party,
        2. compute W_k of every tree from the own columns (equation 8),
        3. encrypt it entry by entry and send it to the first of the chain, one message while the next is encrypted,
        4. open the sums that the last of the chain returns (equation 14),
        5. keep the scores.
        """
        self._opened.order.check(request)
        number, entries, scheme = request.round, required(self._entries), self._scheme
        rows, blocks = self._records.block(number)
        await send_block(self._context, self._chain, number, rows, len(self._opened.aligned.ids))
        goes_left, n = self._model.directions(rows), len(rows)
        values, imputed = await self._context.offload(
            lambda: (entries.values(goes_left, n), entries.guessed(goes_left, n))
        )
        await scheme.send(values, number)
        sums = await scheme.receive(number)
        self._results.keep(rows, entries.scores(sums), imputed)
        self._context.mailbox.forget(number)
        self._opened.order.done(request, *([] if self._attributions else [self._records.after_block(number)]))
        return scored_block(self._context, blocks)

    async def close(self) -> None:
        """Make the workers forget the key, of which there is no other copy."""
        await self._scheme.close()
        if self._attributions is not None:
            await self._attributions.close()

    def _lay_out(self) -> None:
        """Compute the entries, which follow from the model alone."""
        chain, away = self._chain, list(self._opening.away)
        model = self._model
        self._entries = LeafEntries(
            model.ensemble,
            self._context.party,
            chain,
            away,
            public=model.public,
            hides_constants=model.hides_constants,
        )
        if self._attributions is not None:
            self._attributions.lay_out(self._entries.fraction_bits)

    async def _check_hidden(self) -> None:
        """`Refused` if the policy demands more candidate paths behind the opened sums than there are."""
        if self._attributions is not None:
            await self._attributions.check_hidden()
        fault = "the candidate leaves of some record have fewer bits to spare than that"
        await check_hidden(self._context, self._model, self._records, required(self._entries).spare, fault)

    async def _begin(self) -> None:
        """Make a key pair; send each leaf's entry to every feature party, and the constant entries to the first one."""
        context, chain, entries = self._context, self._chain, required(self._entries)
        secret = await make_key(context, KeyKind.of(self._opening.parameters.eini))
        owner = self._owner(secret)
        advance = self._records.advance if self._attributions is None else self._attributions.advance
        self._scheme = scheme = EntryScheme(context, owner, chain, SCORES, len(owner.slots.widths), advance)
        await scheme.start()
        self._records.size = max(1, min(self._records.size, scheme.fitting(len(entries.varying))))
        await send_key(context, secret, owner.slots, chain)
        constant, hops = entries.constant.tolist(), await context.offload(entries.hops)
        layouts = [layout_messages(hop, [] if number else constant) for number, hop in enumerate(hops)]
        sent = zip(chain, layouts, strict=True)
        await together(*(context.outbox.send(party, "entry_layout", layout) for party, layout in sent))
        await scheme.send_constants(await context.offload(entries.constants))
        if self._attributions is not None:
            await self._attributions.begin(secret)

    def _owner(self, secret: SecretKey) -> EntryKeyHolder:
        """The key holder for the scores, with all outputs in one ciphertext."""
        context, outputs = self._context, len(self._model.ensemble.base_margin)
        obfuscation = self._opening.parameters.eini.obfuscation
        try:
            return EntryKeyHolder(
                context.key_engine, secret, outputs, obfuscation, SUM_BITS, f"{context.job}/{context.attempt}"
            )
        except PlaintextOverflow as failure:
            key = KeyKind.of(self._opening.parameters.eini)
            raise BadInput(
                f"{outputs} classes do not fit one ciphertext ({failure}): use {key.remedy} for this prediction"
            ) from failure


class _NoChain:
    """In the place of a scheme if every feature party is away: there is no decision to hide."""

    def __init__(self) -> None:
        self._sums: Ints = np.zeros((0, 0), dtype=np.int64)

    async def send(self, values: Ints, number: int) -> None:
        """Keep the one entry (n, 1, values), which no party further down decides."""
        del number
        self._sums = values[:, 0]

    async def receive(self, number: int) -> Ints:
        """The sums (n, values)."""
        del number
        return self._sums

    async def close(self) -> None:
        """Nothing is held elsewhere."""
