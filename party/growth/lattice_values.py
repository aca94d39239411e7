"""The values of a tree's nodes on a lattice at the label holder: for each node to build a query of its own.

A query has words of every record under fresh secrets, those of records outside of the node of zeros, and a block of
zeros, with which a feature party hides. One second half of a candidate serves a few queries of a tree; then the party
draws and sends it anew. A query's seed, from which its secrets come, is forgotten when all parties' sums are opened.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from party.growth.offered_candidates import Offer
from party.runtime.context import StepContext, required
from party.runtime.messages import CiphertextBody, Rows
from party.setup.joint_seed import draw_joint_seed
from party.setup.keys import fitting
from treetap.errors import Malformed
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_parameters import HIDING, MOST, HistogramParameters
from treetap.lattice.histogram_scheme import first_halves_bytes, parameters_of, rounded_up
from treetap.native.histogram_arrays import DEGREE, SEED_BYTES
from treetap.process.together import together
from treetap.protocols.growth import TreeSizes
from treetap.protocols.job_spec import taking_part
from treetap.protocols.key_options import LATTICE, KeyKind
from treetap.tables.labels import Labels
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import GrowingTree, Ints
from treetap.trees.slots import Slots
from treetap.wire.v2 import growth_pb2, setup_pb2

log = logging.getLogger(__name__)


@dataclass
class Query:
    """A node under encryption: its place among the tree's queries, its seed, and the parties that have not answered."""

    place: int
    seed: bytes
    awaited: set[str]


class WordsOfNodes:
    """Encrypts the values of each node for the feature parties, and opens the sums that they return."""

    def __init__(
        self, context: StepContext, spec: setup_pb2.JobSpec, sizes: Callable[[], TreeSizes], queries: Callable[[], int]
    ) -> None:
        self._context, self._spec, self._sizes, self._most_built = context, spec, sizes, queries
        self._holder: HistogramKeyHolder | None = None
        self._queries: dict[int, Query] = {}
        self._asked = 0  # queries of the tree

    def fit(self, slots: Slots, labels: Labels, remedy: str) -> None:
        """`BadInput` if not even one candidate's sums can be hidden and opened, or not in a further attempt."""
        fitting(slots, labels, KeyKind.of(self._spec), remedy)
        self._parameters(slots, len(labels.values), candidates=1, hiding=self._context.policy.min_hiding_bits)

    async def make(self, slots: Slots, *, label_slots: int = 0, own_rounds: int = 0) -> None:
        """Agree with all feature parties on the sizes and on the public polynomials of this attempt.

        Raises:
            BadInput: no sizes hide and decrypt the sums of such a job.
        """
        context, parties, sizes = self._context, list(self._spec.feature_parties), self._sizes()
        counts = {party: await self._count_of(party) for party in parties}
        # the mailbox bounds a party's sums by its number
        sizes.announced = {party: count.candidates for party, count in counts.items()}
        hiding = max(context.policy.min_hiding_bits, *(count.hiding for count in counts.values()))
        candidates = rounded_up(max(sizes.announced.values()))
        parameters = self._parameters(slots, sizes.records, candidates, hiding)
        log.info(
            "job %s: %d words for each record, halves of %d bits; sums of %d attempts are hidden by %.1f bits",
            context.job,
            parameters.words,
            parameters.reply_bits,
            parameters.attempts,
            parameters.hiding_bits,
        )
        sizes.words = parameters.words
        message = setup_pb2.PublicKeyMessage(
            scheme=LATTICE,
            slot_widths=list(slots.widths),
            label_slots=label_slots,
            own_rounds=own_rounds,
            candidates=parameters.candidates,
            queries=parameters.queries,
            hiding=parameters.hiding,
        )
        await together(*(context.outbox.send(party, "public_key", [message]) for party in parties))
        seed = await draw_joint_seed(context, [self._spec.aggregator, *parties])
        token = f"{context.job}/{context.attempt}"
        self._holder = HistogramKeyHolder(context.key_engine, parameters, slots, seed, token)
        await self._holder.start()

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        """Send `parties` the query of the root: the values (N, S) of the records `rows`."""
        self._asked = 0
        self._queries.clear()
        await self._ask(t, 0, {ROOT: rows}, values, parties)

    async def next_stage(self, t: int, stage: int, growing: GrowingTree) -> None:
        """Send the parties of the tree a query for each node that is built at this stage."""
        nodes = {node: growing.rows[node] for node in growing.build}
        await self._ask(t, stage, nodes, growing.values, taking_part(self._spec, t))

    async def open_offer(self, offer: Offer) -> Ints:
        """The sums (sums, S) of a feature party.

        Raises:
            Malformed: they are not as many as asked for, or a sum is none: the attempt ends.
        """
        holder, costs = required(self._holder), self._context.costs
        queries = [self._queries[node] for node in offer.nodes]
        width = first_halves_bytes(holder.parameters, offer.candidates)
        renewing = [query for query in queries if not query.place % holder.parameters.queries_per_second_half]
        halves = offer.candidates * holder.parameters.second_half_bytes
        if len(offer.ciphertexts) != len(queries) * width or len(offer.second_halves) != len(renewing) * halves:
            raise Malformed(f"sums of {offer.sums} candidates have other sizes")
        renewed, opened = 0, []
        for number, query in enumerate(queries):
            if query in renewing:
                part = offer.second_halves[renewed * halves : (renewed + 1) * halves]
                await holder.keep_second_halves(offer.party, part, offer.candidates)
                renewed += 1
            firsts = offer.ciphertexts[number * width : (number + 1) * width]
            opened.append(await holder.open(offer.party, firsts, offer.candidates, query.seed))
            query.awaited.discard(offer.party)
        costs.operations["openings"] += offer.sums
        for node in [node for node, query in self._queries.items() if not query.awaited]:
            del self._queries[node]
        return np.concatenate(opened)

    async def close(self) -> None:
        """Forget all seeds, and what the workers hold."""
        self._queries.clear()
        if self._holder is not None:
            holder, self._holder = self._holder, None
            await holder.close()

    async def _ask(self, t: int, stage: int, nodes: Mapping[int, Rows], values: Ints, parties: Sequence[str]) -> None:
        context, holder = self._context, required(self._holder)
        streams = [context.outbox.open(party, "encrypted_words", t, stage) for party in parties]
        total = self._sizes().records
        context.progress.done, context.progress.total = 0, (total + DEGREE) * len(nodes)
        for node, rows in nodes.items():
            query = self._queries[node] = Query(self._asked, secrets.token_bytes(SEED_BYTES), set(parties))
            self._asked += 1
            of_node = np.zeros((total, values.shape[1]), dtype=np.int64)
            of_node[rows] = values[rows]
            async for first, count, words in holder.encrypt(of_node, query.seed):
                body = CiphertextBody(growth_pb2.EncryptedWords(node=node, first=first, count=count), words)
                await together(*(stream.put(body) for stream in streams))
                context.progress.done += count
                context.costs.operations["encryptions"] += count
                context.costs.ciphertexts["encrypted_words"] += count * len(streams)
        await together(*(stream.close() for stream in streams))

    def _parameters(self, slots: Slots, records: int, candidates: int, hiding: int) -> HistogramParameters:
        max_bin, queries = self._sizes().params.max_bin, rounded_up(self._most_built())
        return parameters_of(records, slots, max_bin, candidates, queries, self._context.attempt, hiding)

    async def _count_of(self, party: str) -> setup_pb2.CandidateCount:
        """The candidates that a feature party has, and the bits by which it wants to be hidden."""
        count: setup_pb2.CandidateCount = await self._context.mailbox.only(party, "candidate_count")
        if count.candidates > MOST["candidates"]:
            raise Malformed(
                f"{party} says that it has {count.candidates} candidates, a lattice takes {MOST['candidates']}"
            )
        if count.hiding not in HIDING:
            raise Malformed(
                f"{party} asks for {count.hiding} bits of hiding, a lattice gives {HIDING[0]} to {HIDING[-1]}"
            )
        return count
