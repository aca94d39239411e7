"""Attributions at the label holder of a Fed-EINI prediction: further entries under the same key, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from party.attributions.layout import VALUES, layout_messages
from party.attributions.results import write_attributions
from party.prediction.chain import check_hidden, scored_block
from party.prediction.entry_scheme import EntryScheme
from party.prediction.opened_model import OpenedModel
from party.prediction.records import RecordSource
from party.prediction.scores_on_disk import AT_ONCE, Imputed, ScoreStore
from party.prediction.tree_model import TreeModel
from party.prediction.tree_results import TreeResults
from party.runtime.context import StepContext, required
from party.runtime.expected import BLOCKS, Expected, Receives
from party.runtime.messages import Rows
from party.runtime.steps import Step
from treetap.additive.sums.masked_sums import EntryKeyHolder, ciphertexts_of
from treetap.additive.sums.secret_keys import SecretKey
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.protocols.key_options import KeyKind
from treetap.protocols.prediction import present
from treetap.tables.typed import IdColumn, typed
from treetap.trees.leaf_entries import SUM_BITS
from treetap.trees.paths import Floats
from treetap.trees.shapley import expected_score
from treetap.trees.shapley_entries import AttributionEntries
from treetap.wire.v2 import control_pb2, prediction_pb2

#: The name under which attributions are kept with the scores.
ATTRIBUTIONS = "attributions"
#: Relative error of sums of doubles.
DOUBLES = 1e-12


@dataclass(frozen=True)
class _Held:
    """A block that has its scores and waits for its attributions."""

    rows: Rows
    scores: Floats
    imputed: Imputed


class Attributions:
    """The part of `party.eini.label_holder` that computes the attributions of each block after its scores.

    Scores are held back until their attributions are there, so that an interruption loses both or neither.
    """

    def __init__(
        self,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        opened: OpenedModel,
        model: TreeModel,
        records: RecordSource,
        results: TreeResults,
    ) -> None:
        self._context, self._opening, self._opened = context, opening, opened
        self._model, self._records, self._results = model, records, results
        self._chain = present(opening)
        self._entries: AttributionEntries | None = None
        self._expected: Floats | None = None
        self._score_bits = 0
        self._scheme: EntryScheme | None = None
        self._held: _Held | None = None
        self.steps: Mapping[str, Step] = {"attribute_block": self.attribute_block}

    def receives(self) -> Receives:
        """See `Role.receives`: values of every player, as many ciphertexts of them as are needed."""
        return {VALUES.sums: Expected(self._chain[-1:], self._sums_bytes, BLOCKS)}

    def lay_out(self, score_bits: int) -> None:
        """Compute the entries, and the expected score; slow.

        `score_bits`: binary places of the scores as they travel.
        """
        columns, model = self._opened.manifest["columns"], self._model
        feature_of = {handle: columns[split.feature] for handle, split in model.own.items()}
        self._entries = AttributionEntries(model.ensemble, self._context.party, self._chain, feature_of)
        self._expected = expected_score(model.ensemble)
        self._score_bits = score_bits

    async def check_hidden(self) -> None:
        """`Refused` if the policy demands more candidate paths behind scores and attributions than there are."""
        entries, bits = required(self._entries), self._score_bits
        fault = (
            f"with attributions to {len(entries.players)} players "
            "the candidate leaves of some record have fewer bits to spare than that"
        )
        await check_hidden(
            self._context, self._model, self._records, lambda goes_left, n: entries.spare(goes_left, n, bits), fault
        )

    async def begin(self, secret: SecretKey) -> None:
        """Send the layout of the entries to every feature party, and the constant entries to the first of the chain."""
        context, entries, chain = self._context, required(self._entries), self._chain
        values = len(entries.players) * len(required(self._expected))
        _, slots = ciphertexts_of(values, secret.public.plain_bits)
        obfuscation, token = self._opening.parameters.eini.obfuscation, f"{context.job}/{context.attempt}/attributions"
        owner = EntryKeyHolder(context.key_engine, secret, slots, obfuscation, SUM_BITS, token)
        self._scheme = scheme = EntryScheme(context, owner, chain, VALUES, values, self.advance)
        await scheme.start()
        self._records.size = max(1, min(self._records.size, scheme.fitting(len(entries.varying))))
        constant, hops = entries.constant.tolist(), await context.offload(entries.hops)
        layouts = [
            layout_messages(hop, [] if number else constant, len(entries.players)) for number, hop in enumerate(hops)
        ]
        sent = zip(chain, layouts, strict=True)
        await together(*(context.outbox.send(party, "attribution_layout", layout) for party, layout in sent))
        await scheme.send_constants(await context.offload(entries.constants))

    def advance(self, records: int) -> None:
        """Show that this number of records of the block is done; half of each is done once it has its score."""
        before = 0 if self._held is None else len(self._held.rows)
        self._records.advance((before + records) // 2)

    def keep(self, rows: Rows, scores: Floats, imputed: Imputed) -> None:
        """Hold the scores of a block until their attributions are there."""
        self._held = _Held(rows, scores, imputed)

    async def attribute_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The attributions of the block that has been scored.

        1. Compute the share of every entry in each player's value from the own columns,
        2. encrypt and send entries to the first of the chain, one message while the next is encrypted,
        3. open the sums that the last of the chain returns; with the expected score they must make the scores.
        """
        number = request.round
        self._opened.order.check(request)
        held, entries, scheme = required(self._held), required(self._entries), required(self._scheme)
        goes_left, n = self._model.directions(held.rows), len(held.rows)
        values = await self._context.offload(lambda: entries.values(goes_left, n))
        await scheme.send(values, number)
        found = entries.weights(await scheme.receive(number))
        self._check_complete(number, found, held.scores)
        self._results.keep(held.rows, held.scores, held.imputed, further={ATTRIBUTIONS: found})
        self._held = None
        self._context.mailbox.forget(number)
        self._opened.order.done(request, self._records.after_block(number))
        return scored_block(self._context, self._records.block(number)[1])

    async def write(
        self, path: Path, own: IdColumn, known: Rows, scored: ScoreStore, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """The attributions of every record that has a score, beside the predictions."""
        target = path.with_name(f"{self._context.job}.attributions.parquet")
        players, expected = required(self._entries).players, required(self._expected)
        classes = typed(self._opened.classes, self._opened.class_type)
        ids = (own.at(known[first : first + AT_ONCE]) for first in range(0, len(known), AT_ONCE))
        stored = scored.in_order(["scores", ATTRIBUTIONS], known, AT_ONCE)
        parts = ((each, found["scores"], found[ATTRIBUTIONS]) for each, found in zip(ids, stored, strict=True))
        await self._context.offload(
            lambda: write_attributions(target, own.field, parts, expected, players, self._chain, classes)
        )
        written.attributions = str(target)

    async def close(self) -> None:
        """Make the workers forget the key."""
        scheme, self._scheme = self._scheme, None
        if scheme is not None:
            await scheme.close()

    def _sums_bytes(self) -> int:
        """Bytes of the sums of a block, once the entries are laid out."""
        if self._entries is None:
            return 0
        key = KeyKind.of(self._opening.parameters.eini)
        count, _ = ciphertexts_of(len(self._entries.players) * len(required(self._expected)), key.plain_bits)
        return self._records.size * count * key.ciphertext_bytes

    def _check_complete(self, number: int, found: Floats, scores: Floats) -> None:
        """Check that expected score and values add up to the score, as they do for any masks that are also the score's.

        Raises:
            Malformed: they do not, and the gap is larger than the error of fixed point.
        """
        ensemble, expected = self._model.ensemble, required(self._expected)
        rounding = np.ldexp(len(ensemble.used_trees), -self._score_bits - 1) / ensemble.divisor
        size = np.abs(found).sum(axis=1) + np.abs(scores) + np.abs(expected)
        gap = np.abs(expected + found.sum(axis=1) - scores)
        if (gap > required(self._entries).tolerance + rounding + DOUBLES * size).any():
            raise Malformed(
                f"block {number}: the attributions do not add up to the scores; {', '.join(self._chain)}: one of them "
                "has not applied the same masks to both"
            )
