"""The values of a tree's nodes on a lattice at the label holder, by one of two ways (`treetap.lattice.histogram_ways`).

A query has words of every record under fresh secrets, and a block of zeros, with which a feature party hides.

*Queries*: each node to build has one of its own, in which records outside of the node are zeros. One second half of a
candidate serves a few queries of a tree, or all of an attempt; then the party draws and sends it anew. The query's
seed, from which its secrets come, is forgotten when all parties' sums are opened.

*Sets*: the root's serves as many nodes as its secrets may, whose records the feature parties choose; then the root is
encrypted anew. Every node has second halves of its own. The seed is forgotten when the next query begins, or once an
opening is refused: no further one follows under it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from treetap.arrays import Ints
from treetap.errors import Malformed, OutOfOrder
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_parameters import HIDING, MOST, HistogramParameters
from treetap.lattice.histogram_scheme import first_halves_bytes, parameters_of, rounded_up, shares_of
from treetap.lattice.histogram_ways import Needs, Way, built_nodes, once_an_attempt, planned_costs, way_of
from treetap.native.histogram_arrays import DEGREE, SEED_BYTES
from treetap.party.growth.offered_candidates import Offer
from treetap.party.runtime.context import CiphertextBody, Rows, StepContext, required
from treetap.party.setup.steps import draw_joint_seed, fitting
from treetap.process.together import together
from treetap.protocols.growth import TreeSizes, sums_shared
from treetap.protocols.job_spec import taking_part
from treetap.protocols.key_options import LATTICE, LINE, KeyKind
from treetap.tables.labels import Labels
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import with_zeros
from treetap.trees.slots import Slots
from treetap.wire.v2 import growth_pb2, setup_pb2

log = logging.getLogger(__name__)


@dataclass
class Query:
    """A node under encryption: its place among the tree's, its seed, and the parties that have not answered."""

    place: int
    seed: bytes
    awaited: set[str]


class WordsOfNodes:
    """Encrypts the values of each node for the feature parties, and opens the sums that they return."""

    def __init__(
        self,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        sizes: Callable[[], TreeSizes],
        trees: Callable[[], int],
        *,
        once: bool = False,
    ) -> None:
        """`sizes`: the job's; `trees`: the most of an attempt.

        `once`: values of records are those of all trees, unless a plaintext has slots for the class of a record.
        """
        self._context, self._spec, self._sizes, self._trees, self._once = context, spec, sizes, trees, once
        self._holder: HistogramKeyHolder | None = None
        self._way = Way.QUERIES
        self._shared = b""  # the seed of the query that serves further nodes
        self._root: Rows = np.empty(0, dtype=np.int64)  # the records of the tree
        self._queries: dict[int, Query] = {}
        self._values: Ints | None = None  # of the tree
        self._asked = 0  # nodes of the tree
        self._masked = sums_shared(spec)
        self.slots, self.counts = Slots((1,)), False  # agreed on; the last one counts drawn records
        self._keeping: set[str] = set()  # parties whose second halves serve all trees
        self._kept: set[str] = set()  # of these, those that have sent them
        context.held.callback(self._forget_secrets)

    @property
    def parameters(self) -> HistogramParameters:
        """The sizes that are agreed on."""
        return required(self._holder).parameters

    def fit(self, slots: Slots, labels: Labels, remedy: str) -> None:
        """`BadInput` if not even one candidate's sums can be hidden and opened, or not in a further attempt."""
        fitting(slots, labels, KeyKind.of(self._spec), remedy)
        hiding = self._context.policy.keys.min_hiding_bits
        needs = Needs.of(self._sizes().params, noised=self._sizes().noised)
        self._parameters(slots, len(labels.values), 1, needs, hiding)

    async def heard(self) -> dict[str, setup_pb2.CandidateCount]:
        """What the feature parties say of their candidates and sums; once an attempt."""
        return {party: await self._count_of(party) for party in self._spec.feature_parties}

    async def make(
        self,
        slots: Slots,
        *,
        label_slots: int = 0,
        own_rounds: int = 0,
        counts: Mapping[str, setup_pb2.CandidateCount] | None = None,
        records: int = 0,
    ) -> setup_pb2.PlannedTraffic:
        """Agree with all feature parties on the sizes and on the public polynomials of this attempt.

        Returns the bytes that these sizes take. `counts`: what these and others have said, and `records` the most of
        one, for which sizes are to be; None: what these say.

        Raises:
            BadInput: no sizes hide and decrypt the sums of such a job.
        """
        context, parties, sizes = self._context, list(self._spec.feature_parties), self._sizes()
        self._once = self._once and not label_slots
        counts, records = counts or await self.heard(), records or sizes.records
        # the mailbox bounds a party's sums by its number
        sizes.announced = {party: counts[party].candidates for party in parties}
        sizes.merging = frozenset(party for party in parties if counts[party].merges_bins)
        self._keeping = {party for party in parties if counts[party].keeps_second_halves}
        kept = len(self._keeping) == len(parties)
        merged, once = bool(sizes.merging), self._once
        needs = Needs.of(sizes.params, merged=merged, kept=kept, once=once, noised=sizes.noised)
        self.counts = any(count.min_side_records for count in counts.values())
        if self.counts:
            slots = slots.counting(records)
        self.slots = slots
        hiding = max(context.policy.keys.min_hiding_bits, *(count.hiding for count in counts.values()))
        candidates = rounded_up(max(count.candidates for count in counts.values()))
        parameters = self._parameters(slots, records, candidates, needs, hiding)
        parameters = replace(parameters, records=sizes.records)
        self._way, self._once = (
            way_of(parameters, built_nodes(sizes.params, needs), needs, self._spec.line or LINE),
            once_an_attempt(parameters, needs),
        )
        log.info(
            "job %s: nodes are summed by %s; %d words for each record, halves of %d bits; sums of %d attempts are "
            "hidden by %.1f bits",
            context.job,
            self._way,
            parameters.words,
            parameters.reply_bits,
            parameters.attempts,
            parameters.hiding_bits,
        )
        sizes.words, sizes.nodes_per_query = parameters.words, self._way.nodes_per_query(parameters)
        message = setup_pb2.PublicKeyMessage(
            scheme=LATTICE,
            slot_widths=list(slots.widths),
            label_slots=label_slots,
            own_rounds=own_rounds,
            candidates=parameters.candidates,
            queries=parameters.queries,
            merges_bins=needs.merged,
            keeps_second_halves=needs.kept,
            hiding=parameters.hiding,
            counts_records=self.counts,
        )
        await context.outbox.send_each("public_key", dict.fromkeys(parties, (message,)))
        seed = await draw_joint_seed(context, [self._spec.aggregator, *parties])
        self._holder = HistogramKeyHolder(context.engine, parameters, slots, seed)
        context.held.push_async_callback(self._holder.close)
        # The most bytes of the attempt's trees between this party and all others.
        announced, trees, built = self._sizes().announced, self._trees(), built_nodes(self._sizes().params, needs)
        words, sums, mib = planned_costs(self._way, parameters, built, needs, trees, [*announced.values()])
        log.info(
            "job %s: its %d trees take at most %d bytes of words and %d of sums, and a party holds some %d MiB",
            *(self._context.job, trees, words, sums, mib),
        )
        return setup_pb2.PlannedTraffic(words=words, sums=sums, mib=mib)

    @property
    def goes_once(self) -> bool:
        """True if one query serves all trees of the attempt, by sets."""
        return self._once and self._way is Way.SETS

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        """Send `parties` the query of the root, unless they have it: the values (N, S) of the records `rows`."""
        self._asked, self._root = 0, rows
        self._queries.clear()
        if self._await([ROOT], parties):
            self._values = with_zeros(values, self._sizes().records)
            await self._send(t, 0, {ROOT: rows}, self._values, parties)

    async def share(self, values: Ints) -> None:
        """Send all feature parties the query that serves all trees, where one does: see `begin`."""
        if self.goes_once:
            self._shared = secrets.token_bytes(SEED_BYTES)
            self._queries[ROOT] = Query(0, self._shared, set())
            await self._send(0, 0, {ROOT: np.arange(len(values))}, values, self._spec.feature_parties)

    async def next_stage(self, t: int, stage: int, nodes: Mapping[int, Rows]) -> None:
        """Make ready for the sums of the nodes that are asked for at this stage: send the queries that begin there.

        `nodes`: with the records of each.
        """
        parties, by_sets = taking_part(self._spec, t), self._way is Way.SETS
        if not parties:  # the label holder's columns alone
            return
        if beginning := self._await([*nodes], parties):
            sent = {node: self._root if by_sets else nodes[node] for node in beginning}
            await self._send(t, stage, sent, required(self._values), parties)

    async def open_offer(self, offer: Offer) -> Ints:
        """The sums (sums, S) of a feature party; where sums are shared, the words (sums, words) of this party's shares.

        Raises:
            Malformed: they are not as many as asked for, or a sum is none: the attempt ends.
            OutOfOrder: the secrets of a node are forgotten, as after a refused opening.
        """
        if not set(offer.nodes) <= set(self._queries):
            raise OutOfOrder("sums of nodes whose secrets are forgotten are not opened")
        try:
            return await self._opened(offer)
        except Malformed:
            self._forget_secrets()  # what came of one opening tells nothing about others
            raise

    async def _opened(self, offer: Offer) -> Ints:
        """Open one node after the other while halves come, so that the second ones of many need not be held."""
        holder, costs, parts = required(self._holder), self._context.costs, required(offer.halves)
        queries, opened = [self._queries[node] for node in offer.nodes], []
        renewing = self._renewing(offer.party, queries)
        width = first_halves_bytes(holder.parameters, offer.candidates)
        firsts, seconds = bytearray(), bytearray()  # that came and are of no node yet
        for query in queries:
            kept = self._context.scratch.halves() if query in renewing else None
            due = 0 if kept is None else offer.candidates * holder.parameters.second_half_bytes
            while True:
                if kept is not None:
                    written = kept.write(seconds[:due])
                    due -= written
                    del seconds[:written]
                if len(firsts) >= width and not due:
                    break
                if (part := await anext(parts, None)) is None:
                    raise _other_sizes(offer)
                firsts += part[0]
                seconds += part[1]
            if kept is not None:
                await holder.keep_second_halves(offer.party, kept, offer.candidates)
                self._kept.add(offer.party)
            given = offer.party, bytes(firsts[:width]), offer.candidates, query.seed
            if self._masked:
                residues = await holder.residues(*given)
                opened.append(shares_of(holder.parameters, residues).view(np.int64))
            else:
                opened.append(await holder.open(*given))
            query.awaited.discard(offer.party)
            del firsts[:width]
        async for part in parts:
            firsts += part[0]
            seconds += part[1]
        if firsts or seconds:
            raise _other_sizes(offer)
        costs.operations["openings"] += offer.sums
        for node in [node for node, query in self._queries.items() if not query.awaited]:
            del self._queries[node]
        return np.concatenate(opened)

    def _forget_secrets(self) -> None:
        self._queries.clear()
        self._shared = b""

    def _await(self, nodes: Sequence[int], parties: Sequence[str]) -> list[int]:
        """Await the sums of these nodes; returns those with which a query begins."""
        beginning, serves = [], self._sizes().nodes_per_query
        for node in nodes:
            seed = self._shared
            if not (self.goes_once or self._asked % serves):
                seed = secrets.token_bytes(SEED_BYTES)
                beginning.append(node)
            self._queries[node] = Query(self._asked, seed, set(parties))
            self._shared = seed if self._way is Way.SETS else b""
            self._asked += 1
        return beginning

    def _renewing(self, party: str, queries: Sequence[Query]) -> Sequence[Query]:
        """Those of the nodes before whose sums new second halves of a party come."""
        if self._way is Way.SETS:
            return queries
        if party in self._keeping:
            return queries[: party not in self._kept]
        most = required(self._holder).parameters.queries_per_second_half
        return [query for query in queries if not query.place % most]

    async def _send(self, t: int, stage: int, nodes: Mapping[int, Rows], values: Ints, parties: Sequence[str]) -> None:
        """Send words of the values (N, S) of these records under the seeds of the nodes."""
        context, holder = self._context, required(self._holder)
        streams = [context.outbox.open(party, "encrypted_words", t, stage) for party in parties]
        total = self._sizes().records
        context.progress.done, context.progress.total = 0, (total + DEGREE) * len(nodes)
        for node, rows in nodes.items():
            seed = self._queries[node].seed
            of_node = np.zeros((total, values.shape[1]), dtype=np.int64)
            of_node[rows] = values[rows]
            async for first, count, words in holder.encrypt(of_node, seed):
                body = CiphertextBody(growth_pb2.EncryptedWords(node=node, first=first, count=count), words)
                await together(*(stream.put(body) for stream in streams))
                context.progress.done += count
                context.costs.operations["encryptions"] += count
                context.costs.ciphertexts["encrypted_words"] += count * len(streams)
        await together(*(stream.close() for stream in streams))

    def _parameters(
        self, slots: Slots, records: int, candidates: int, needs: Needs, hiding: int
    ) -> HistogramParameters:
        params = self._sizes().params
        queries = rounded_up(self._trees() * built_nodes(params, needs))
        sizes = candidates, queries, self._context.attempt, hiding
        return parameters_of(records, slots, params.max_bin, *sizes, noised=needs.noised or self._masked)

    async def _count_of(self, party: str) -> setup_pb2.CandidateCount:
        """The candidates that a feature party has, and what its settings say about sums."""
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


def _other_sizes(offer: Offer) -> Malformed:
    return Malformed(f"sums of {offer.sums} candidates have other sizes")
