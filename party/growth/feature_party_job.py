"""A training job at a feature party: its table, its bins and its stored trees, from `prepare` to `publish`.

It is the same for every training protocol; the protocol's feature party adds the ciphertexts and the trees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.models.line_file import Line
from treetap.models.store import REFERENCES
from treetap.party.alignment.pairs import alignment_of
from treetap.party.alignment.steps import begin_alignment
from treetap.party.config import PartyConfig
from treetap.party.defences.checks import refuse_sets_of_categories
from treetap.party.growth.column_noise import ColumnNoise, NoisedLayout
from treetap.party.growth.continuation import FirstTrees
from treetap.party.growth.feature_party import (
    AFTER_HISTOGRAMS,
    AFTER_STORING,
    SITS_OUT,
    TAKES_PART,
    ExpectedRecords,
    FeaturePartyGrowth,
    OwnTree,
    Sums,
    nodes_of,
)
from treetap.party.growth.left_bits import AnsweredBits
from treetap.party.growth.rule import Draft, Part, Rule, choice_of, rules_of
from treetap.party.growth.split_table import SplitTable, TreeColumns
from treetap.party.growth.stored_trees import StoredTrees, entries_of, shard
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.step_order import ALIGNED, ALIGNMENT, SAME, Conditions, Next, Outcome, step, steps_of
from treetap.party.setup.labelled_table import drawing, drawn_by_seed, load_records
from treetap.party.setup.steps import (
    PUBLISHED,
    UNPUBLISHED,
    ReceivedKey,
    bin_features,
    load_job_table,
    manifest_of,
    take_key,
    without_columns,
)
from treetap.protocols.growth import TreeSizes, sums_shared
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import aligned_apart, members_of
from treetap.tables.binned import JobRecords, partitioned
from treetap.tables.reading import Table
from treetap.tables.references import reference_values
from treetap.trees.candidates import Kind, Shape
from treetap.trees.params import FewestDrawn, TreeParams
from treetap.trees.slots import Slots
from treetap.trees.tree_bins import widest
from treetap.wire.v2 import control_pb2, setup_pb2

#: Conditions on a job, of the rows of `TreeFeatureParty`.
SHARED = "sums are shared"
OPENED = "the label holder opens the sums"

if TYPE_CHECKING:
    from treetap.party.growth.shared_choice import FeaturePartyChoice


class FeaturePartyJob:
    """The table of a job with the trees that are stored of it.

    Attributes:
        sizes: those of the job, as far as they are known.
        alignment: this party's part in finding the common records.
        conditions: those of the rows of a tree's steps.
        stored: the trees on disk.
        kind: of its trees while they grow.
        shapes: of all columns, each with the most bins that a node has; known once they are binned.
        summed: the most records of a sum of the training, and of all with an eval table's: the own ones, or those of a
            job whose sums are shared.
    """

    #: The binned columns, and the splits made on them.
    split_table: SplitTable

    def __init__(
        self,
        config: PartyConfig,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        params: TreeParams,
        trees: int,
        implied: Callable[[int, int, int], Slots],
        *further: Rule,
    ) -> None:
        """`trees`: the most that the job grows.

        `implied`: (records, slots, those of them that hold classes) → the layout of a record's plaintext that the job
        implies. `further`: rules that the protocol has made.
        """
        self._config, self._context, self._spec, self._params = config, context, spec, params
        self._implied = implied
        self.shapes: Sequence[Shape] = ()
        self.summed = 0, 0
        self.stored = StoredTrees(context, "splits")
        self._records: JobRecords | None = None
        part = Part(config, context, spec, params)
        self._first = FirstTrees(part)
        self._rules: list[Rule] = [*rules_of(part), *further, self._first]
        self.kind = next((rule.tree for rule in self._rules if rule.tree is not None), OwnTree)
        members, rounds = members_of(spec, context.coordinator), self._first.count + trees
        self.sizes = TreeSizes(members=members, key=KeyKind.of(spec), params=params, rounds=rounds)
        self.alignment = alignment_of(context, spec.alignment, "min_common_records", self.sizes)
        shared = sums_shared(spec)
        self.conditions: Conditions = {
            TAKES_PART: self.takes_part,
            SITS_OUT: lambda t: not self.takes_part(t),
            SHARED: lambda _: shared,
            OPENED: lambda _: not shared,
        }
        self._key: ReceivedKey | None = None

    @step(Next(ALIGNMENT, when=UNPUBLISHED), Next("bin", when=ALIGNED), Next("publish", when=PUBLISHED))
    async def prepare(self) -> Outcome:
        """Report the progress of the job at this party.

        1. Read the table and, where the job has one, the eval table.
        2. Look up the records that an earlier attempt aligned, and the stored trees.

        Raises:
            Refused: the label holder would partition categories, and the policy does not let it.
            ConfigError: it would by sums that nobody opens.
        """
        missing = self._params.missing
        table = await load_job_table(self._context, self._config, self._spec, with_label=False, missing=missing)
        self._first.check_table(table)
        categories = partitioned(table, self._params.one_hot_below)
        refuse_sets_of_categories(self._context.party, self._spec, categories)
        for name in categories:
            self._context.policy.check(
                *(self._context.party, "category_partitions", True),
                deed=f"send {self._spec.aggregator} the sums over each category of column {name!r}, by which it would "
                "partition them",
                instead="use a max_cat_to_onehot above the number of its categories, or encode = "
                '"ordinal" or "one-hot" for it',
            )
        records, _ = await load_records(self._context, self._config, self._spec, table, missing)
        self._take(records)
        aligned = begin_alignment(self.alignment, records)
        await self.stored.read()
        # the first trees are as good as stored
        stored, published = max(self.stored.count, self._first.count), self._context.store.published
        for rule in self._rules if not published else ():
            rule.resumed(stored)
        return Outcome(
            PUBLISHED if published else UNPUBLISHED,
            *([ALIGNED] if aligned else []),
            answer=setup_pb2.Prepared(
                stored_rounds=stored,
                published=published,
                aligned_attempt=aligned,
                without_columns=without_columns(self._config, self._spec),
            ),
            first_rounds=self._first_rounds,
        )

    async def bin(self) -> Outcome:
        """Select the common records, and bin their columns once for the job; store the trees of its base model."""
        records = self._take(required(self._records).take(self.alignment.records))
        first = drawing(self._spec, self._params).drawn(0, records.training)
        for rule in self._rules:
            rule.drawn(first)
        await self._first.seed(self.stored)
        table, missing_bins = records.table, any(rule.missing_bins for rule in self._rules)
        lacked, apart = setup_pb2.LackedRecords(), aligned_apart(self._spec)
        if apart:
            lacked = await self._context.mailbox.only(self._spec.aggregator, "lacked_records")
        # no sum is of fewer, whatever the label holder says
        self.summed = max(lacked.training, records.training), max(lacked.records, self.sizes.records)
        further = {"missing_bins": missing_bins, "lacks": lacked.some}
        binned = await bin_features(self._context, table, self._params, records.training, **further)
        self.split_table = SplitTable(self._context.party, table.columns, binned, records.training)
        self.split_table.apart, self.split_table.lacks = apart, lacked.some
        for rule in self._rules:
            rule.binned(self.split_table)
        self.shapes = binned.shapes
        if self._params.bins_per_node:
            values, most = table.features[: records.training], self._params.max_bin
            self.shapes = await self._context.offload(lambda: widest(values, most))
        # missing values on either side of each cut, and against all others; the sides of any may be exchanged
        self.sizes.places = sum(4 * (shape.n_bins + 1) for shape in self.shapes)
        self.sizes.categories = [shape.n_bins for shape in binned.shapes if shape.kind is Kind.PARTITIONS]
        return Outcome(first_rounds=self._first_rounds)

    async def receive_key(self) -> ReceivedKey:
        """The label holder's key and the layout of a record's plaintext, which must be the one that the job implies."""

        def implied(key: setup_pb2.PublicKeyMessage) -> Slots:
            training, records = self.summed
            layout = self._implied(training, len(key.slot_widths) - key.counts_records, key.label_slots)
            return layout.counting(records) if key.counts_records else layout

        self._key = await take_key(self._context, self._spec.aggregator, KeyKind.of(self._spec), implied)
        for rule in self._rules:
            rule.keyed(self._key)
        return self._key

    @step()
    async def publish(self) -> None:
        """Publish the stored trees as a model."""
        if not self._context.store.published:
            lines = await self.stored.read()
            entries = {
                "role": "feature_party",
                "label_holder": self._spec.aggregator,
                "trees": len(lines),
                **manifest_of(self._context, self._spec, self.table, self._params.missing),
                REFERENCES: await self._context.offload(lambda: reference_values(required(self._records))),
                **entries_of(lines[self._first.count :]),
            }
            draft = Draft(entries, shard(lines), lines, self.alignment.records)
            for rule in self._rules:
                await rule.publish(draft)
            self._context.store.publish(entries, draft.files)

    def kept(self) -> Line:
        """The entries beside a stored tree; known once the key has come."""
        line: Line = {}
        for rule in self._rules:
            line |= rule.kept()
        return line

    @property
    def table(self) -> Table:
        """The party's table, with the records of the eval table last; after `bin`, of the common records alone."""
        return required(self._records).table

    @property
    def key(self) -> ReceivedKey:
        """What the label holder has sent with its public key; known once that has come."""
        return required(self._key)

    async def expected(self, t: int) -> ExpectedRecords:
        """The records of tree `t`, as far as they can be compared.

        The parameters of the job hold for sums as they are opened: where these are inexact a side may have no record.
        """
        params, records = self._params, (self.split_table.training, len(self.table.ids))
        apart = self.split_table.apart  # the order of records is the label holder's, and sides may have none of these
        if not self.kind.takes_spaces or apart:
            drawn = np.zeros(records[1], dtype=np.int64)  # of no use
        else:
            drawn = await self._context.offload(lambda: drawn_by_seed(self._spec, params, t, *records))
        fewest = FewestDrawn(0, 1) if any(rule.inexact for rule in self._rules) else params.fewest_drawn
        fewest = FewestDrawn(0, 0) if apart else fewest
        times = drawn if params.draws_twice else drawn > 0
        return ExpectedRecords(self._spec.aggregator, t, times, fewest, params.max_depth, seeded=not apart)

    def takes_part(self, t: int) -> bool:
        """True if the party takes part in tree `t`; known once the key has come."""
        return t >= self.key.said.own_rounds and self._params.takes_part(t, self._context.party)

    @property
    def _first_rounds(self) -> range:
        """Trees at which the job may go on: the label holder may have stored fewer than this party."""
        return range(self.stored.count + 1)

    def _take(self, records: JobRecords) -> JobRecords:
        """Have these as the job's records."""
        self._records, self.sizes.records = records, len(records.table.ids)
        return records


class SummedValues(ABC):
    """Sums of encrypted values for one attempt at a job."""

    #: Those of a lattice, once they are agreed on.
    parameters: HistogramParameters | None = None

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec, job: FeaturePartyJob, noise: ColumnNoise) -> None:
        self._context, self._sender, self._job, self._noise = context, spec.aggregator, job, noise

    async def take_key(self) -> None:
        """Receive what the label holder encrypts with, as far as a feature party needs it."""
        await self._job.receive_key()

    async def take_shared(self) -> None:  # noqa: B027 - not of every cipher
        """Receive what serves all trees, of protocols that grow them on equal values of a record."""

    async def begin(self, t: int, columns: TreeColumns, sampled: Rows) -> None:  # noqa: B027 - not of every cipher
        """Begin tree `t` over these records; nothing, where shared ciphertexts serve it."""

    @abstractmethod
    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> Sums | AsyncIterator[Sums]:
        """The left sums of every candidate of these nodes, in this party's secret order: at once or node by node."""

    async def drop(self) -> None:  # noqa: B027 - not of every cipher
        """Release the tree, if there is one."""


class TreeFeatureParty(ABC):
    """A feature party of a protocol that grows trees; each protocol's adds how a tree begins, and the sums' cipher."""

    _sums: SummedValues

    def __init__(
        self,
        config: PartyConfig,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        params: TreeParams,
        trees: int,
        layout: NoisedLayout,
    ) -> None:
        self._context, self._spec = context, spec
        noise = self._noise = ColumnNoise(context, config, spec, params, layout)
        job = self._job = FeaturePartyJob(config, context, spec, params, trees, noise.implied, noise)
        self._choice: FeaturePartyChoice | None = choice_of(Part(config, context, spec, params))
        self._left_bits = AnsweredBits(context, spec.aggregator) if params.withheld and not spec.screen else None
        growth = self._growth = FeaturePartyGrowth(context, spec.aggregator, job.stored, job.kind, self._left_bits)
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment}, conditions=job.conditions)

    @step(Next("take_key"), Next("publish"))
    async def bin(self) -> Outcome:
        """Select the common records, and bin their columns; tell of the noise on their sums, if there is any."""
        outcome = await self._job.bin()
        await self._noise.announce(self._job.shapes)
        return outcome

    @step()
    async def take_key(self) -> None:
        """Receive the public key of the label holder, and make the base transfers of left bits where there are any."""
        await self._noise.take_others(self._job.split_table.training)
        await self._sums.take_key()
        if self._left_bits is not None:
            await self._left_bits.agree()
        if self._choice is not None:
            job, agreed = self._job, required(self._sums.parameters)
            (training, _), candidates = job.summed, sum(shape.sums for shape in job.shapes)
            self._choice.agree(
                job.sizes.params, job.key, agreed, training, candidates, job.split_table.min_side_records
            )

    @step(Next("choose_shares", SAME, SHARED), *(replace(following, when=OPENED) for following in AFTER_HISTOGRAMS))
    async def build_histograms(self, request: control_pb2.StepRequest) -> None:
        """Step 2 of a tree.

        1. At the root: begin the tree. Below: receive the instance spaces that the label holder relayed.
        2. Compute the left sums of every candidate, in this party's secret order; pack and re-randomise them.
        3. Send them to the label holder; in a screening that opens them also say of which columns they are.
        """
        t, stage = request.round, request.stage
        nodes = nodes_of(request)
        tree = await self._growth.take_spaces(t, stage) if stage else await self._begin_tree(t)
        if self._spec.screen and self._choice is None:
            named = self._context.policy.may_emit(self._spec.aggregator, "FEATURE_NAME")
            said = tree.columns.screened(named=named)
            await self._context.outbox.send(self._spec.aggregator, "screened_columns", said, round=t)
        await self._growth.send_sums(tree, stage, nodes, await self._sums.sum(tree, stage, nodes))

    @step(*AFTER_HISTOGRAMS)
    async def choose_shares(self, request: control_pb2.StepRequest) -> None:
        """Step 3 of a tree where sums are shared: find with the label holder which of the own candidates have won."""
        await required(self._choice).choose(self._growth.growing(request.round), request.stage)

    @step(*AFTER_STORING)
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Step 6 of a tree: store this party's part of it before answering, and release what serves this tree only."""
        await self._growth.store(request.round, self._job.kept(), takes_part=self._job.takes_part(request.round))
        await self._sums.drop()

    @abstractmethod
    async def _begin_tree(self, t: int) -> OwnTree:
        """Take a tree's draw from the label holder, and its ciphertexts, if they are its own."""
