"""Attributions at the label holder of a Fed-EINI prediction: further entries under the same key, block by block.

after               may come
open_model …        as in a prediction of scores alone, up to
make_keys           score_block(0)
score_block(b)      attribute_block(b)
attribute_block(b)  score_block(b+1), write_predictions after the last
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from party.attributions.layout import layout_parcels
from party.attributions.results import write_attributions
from party.config import PartyConfig
from party.eini.label_holder import BLOCK_BYTES
from party.eini.label_holder import LabelHolder as EiniLabelHolder
from party.prediction.scores_on_disk import Guessed, Scored
from party.runtime.context import Tools, have
from party.runtime.job_store import Arrays, Store
from party.runtime.messages import Rows
from party.serving.registry import Desk
from treetap.errors import Malformed
from treetap.paillier.masked_sums import EntryOwner, ciphertexts_of
from treetap.paillier.public_key import PublicKey
from treetap.paillier.secret_key import SecretKey
from treetap.trees.leaf_entries import SUM_BITS, Ints
from treetap.trees.paths import Bools, Floats
from treetap.trees.shapley import expected_score
from treetap.trees.shapley_entries import AttributionEntries
from treetap.wire.v2 import control_pb2, prediction_pb2

#: Under which name attributions are kept with the scores.
ATTRIBUTIONS = "attributions"
#: What sums of doubles may lose, of their size.
DOUBLES = 1e-12


@dataclass(frozen=True)
class _Held:
    """A block that has been scored: its records, their scores, and how they are kept once the attributions are here."""

    rows: Rows
    scores: Floats
    keep: Callable[[Floats], None]


class LabelHolder(EiniLabelHolder):
    """Answers the steps of the label holder."""

    def __init__(
        self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel, desk: Desk
    ) -> None:
        super().__init__(config, store, tools, opening, desk)
        self._attributed: AttributionEntries | None = None
        self._expected: Floats | None = None
        self._attributing: EntryOwner | None = None
        self._shape = (1, 1)  # ciphertexts of an entry, slots of a ciphertext
        self._held: _Held | None = None
        self.steps = {**self.steps, "attribute_block": self.attribute_block}

    def lay_out(self) -> None:
        """The entries of the leaves and of the attributions, and what is to be expected of a record."""
        super().lay_out()
        columns = self.manifest["columns"]
        feature_of = {handle: columns[split.feature] for handle, split in self.own.items()}
        self._attributed = AttributionEntries(self.ensemble, self._tools.party, self.parties, feature_of)
        self._expected = expected_score(self.ensemble)

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """As for scores, if the paths stay hidden behind so many more sums."""
        self._order.check(("make_keys", request.round, request.stage))
        law = self._tools.law
        if law.min_candidate_bits is not None:
            spare = await self._tools.offload(self._spare_of_all)
            players = len(have(self._attributed).players)
            fault = f"with attributions to {players} players the trees leave some record fewer leaves than that"
            law.check_paths(self._tools.party, spare, fault)
        return await super().make_keys(request)

    async def score_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The scores of a block; then its attributions, and both are kept together."""
        result = await super().score_block(request)
        self._order.then(("attribute_block", request.round, 0))
        return result

    async def attribute_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The attributions of the block that has been scored.

        1. Of every entry what it adds to each player's value, from the own columns,
        2. encrypted and sent to the first of the chain while the next ones are encrypted;
        3. the last of the chain returns the sums, which are opened and must add up to the scores.
        """
        number = request.round
        self._order.check(("attribute_block", number, request.stage))
        held = have(self._held)
        rows = held.rows
        owner, entries, goes_left = have(self._attributing), have(self._attributed), self.directions(rows)
        values = await self._tools.offload(lambda: self._in_slots(entries.values(goes_left, len(rows))))
        await self._send(owner, "attribution_entries", number, values.reshape(len(rows), -1, self._shape[1]))
        opened = await self._take(owner, "attribution_sums", number, len(rows) * self._shape[0])
        wanted = len(entries.players) * len(have(self._expected))
        found = entries.weights(opened.reshape(len(rows), -1)[:, :wanted])
        self._check_complete(number, found, held.scores)
        held.keep(found)
        self._held = None
        self._tools.mailbox.forget(number)
        self.next_block(number + 1)
        return self.scored(self.block(number)[1])

    def advance(self, records: int) -> None:
        """A block is gone through twice: half of it is done once it has its scores."""
        before = 0 if self._held is None else len(self._held.rows)
        super().advance((before + records) // 2)

    def keep(
        self,
        rows: Rows,
        scores: Floats,
        guessed: Guessed | None = None,
        *,
        leaves: Iterable[Bools] | None = None,
        further: Arrays | None = None,
    ) -> None:
        """Hold the scores back until their attributions have come, so that an interruption loses both or neither."""

        def keep(found: Floats) -> None:
            kept = {**(further or {}), ATTRIBUTIONS: found}
            super(LabelHolder, self).keep(rows, scores, guessed, leaves=leaves, further=kept)

        self._held = _Held(rows, scores, keep)

    async def close(self) -> None:
        """The workers forget the key."""
        await super().close()
        if self._attributing is not None:
            owner, self._attributing = self._attributing, None
            await owner.close()

    async def also_begin(self, secret: SecretKey) -> None:
        """Everybody learns which entries there are; those that never change go to the first of the chain."""
        tools, entries, chain = self._tools, have(self._attributed), self.parties
        token = f"{tools.job}/{tools.attempt}/attributions"
        obfuscation = self._opening.parameters.eini.obfuscation
        owner = EntryOwner(tools.engine, secret, self._shape[1], obfuscation, SUM_BITS, token)
        self._attributing = owner
        await owner.start()
        for party, hop in zip(chain, await tools.offload(entries.hops), strict=True):
            constant = entries.constant.tolist() if party == chain[0] else []
            bodies = layout_parcels(hop, constant, len(entries.players))
            await tools.outbox.send(party, "attribution_layout", bodies)
        values = await tools.offload(lambda: self._in_slots(entries.constants()))
        await self._send_constants(owner, "constant_attributions", values.reshape(-1, self._shape[1]))

    async def _explain(
        self, path: Path, known: list[str], scored: Scored, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """The attributions of every record that has a score, beside the predictions."""
        await super()._explain(path, known, scored, written)
        target = path.with_name(f"{self._tools.job}.attributions.parquet")
        scores, found = scored.rows("scores", known), scored.rows(ATTRIBUTIONS, known)
        players, classes, expected = have(self._attributed).players, self.manifest["classes"], have(self._expected)
        await self._tools.offload(
            lambda: write_attributions(target, known, scores, expected, found, players, self.parties, classes)
        )
        written.attributions = str(target)

    def _block_size(self, public: PublicKey, outputs: int) -> int:
        """So few records that the ciphertexts and the plaintexts of their attributions fit too."""
        attributed = have(self._attributed)
        self._shape = ciphertexts_of(len(attributed.players) * outputs, public.bits)
        count, slots = self._shape
        entry = count * max(public.ciphertext_bytes, 8 * slots)
        fitting = BLOCK_BYTES // (entry * len(attributed.varying))
        return max(1, min(super()._block_size(public, outputs), fitting))

    def _in_slots(self, values: Ints) -> Ints:
        """Values (…, players · outputs) as (…, ciphertexts, slots), those left over zero."""
        count, slots = self._shape
        whole = np.zeros((*values.shape[:-1], count * slots), dtype=np.int64)
        whole[..., : values.shape[-1]] = values
        return whole.reshape(*values.shape[:-1], count, slots)

    def _check_complete(self, number: int, found: Floats, scores: Floats) -> None:
        """Expected score and values make the score, whatever the masks are: unless these differ from the score's.

        Raises:
            Malformed: they do not, by more than fixed point explains.
        """
        trees = len(self.ensemble.used_trees)
        expected = have(self._expected)
        rounding = np.ldexp(trees, -have(self._entries).fraction_bits - 1) / self.ensemble.divisor
        size = np.abs(found).sum(axis=1) + np.abs(scores) + np.abs(expected)
        gap = np.abs(expected + found.sum(axis=1) - scores)
        if (gap > have(self._attributed).tolerance + rounding + DOUBLES * size).any():
            raise Malformed(
                f"block {number}: the attributions do not add up to the scores; {', '.join(self.parties)}: one of them "
                "has not kept for both what its columns allow"
            )

    def _spare_of_all(self) -> Floats:
        """Of each record to predict, the bits by which its candidate leaves exceed the possible sums of all kinds."""
        entries, bits = have(self._attributed), have(self._entries).fraction_bits
        return self.by_parts(lambda goes_left, n: entries.spare(goes_left, n, bits))
