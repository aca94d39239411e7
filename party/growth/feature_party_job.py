"""A training job at a feature party: its table, its bins and its stored trees, from `prepare` to `publish`.

It is the same for every training protocol; the protocol's feature party adds the ciphertexts and the trees.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from party.alignment.steps import ALIGNED, ALIGNMENT, Alignment, alignment_steps, begin_alignment
from party.config import PartyConfig
from party.growth.continuation import BaseModel
from party.growth.expected import of_label_holder
from party.growth.feature_party import SITS_OUT, TAKES_PART
from party.growth.split_table import SplitTable
from party.growth.stored_trees import StoredTrees
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import Receives
from party.runtime.step_order import StepOrder, StepTable
from party.setup.evaluated import described, load_records
from party.setup.steps import (
    PUBLISHED,
    UNPUBLISHED,
    ReceivedKey,
    bin_features,
    load_job_table,
    manifest_of,
    take_key,
    without_columns,
)
from treetap.additive.sums.public_keys import PublicKey
from treetap.additive.sums.slots import Slots
from treetap.models.store import TREES
from treetap.protocols.key_options import KeyKind
from treetap.tables.binned import partitioned
from treetap.tables.evaluated import JobRecords
from treetap.tables.reading import Table
from treetap.trees.params import TreeParams
from treetap.trees.shapes import Kind
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, setup_pb2


class FeaturePartyJob:
    """The table of a job with the trees that are stored of it.

    Attributes:
        order: the steps of the job that may come next.
        alignment: this party's part in finding the common records.
        stored: the trees on disk.
    """

    def __init__(
        self,
        config: PartyConfig,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        params: TreeParams,
        table: StepTable,
        implied: Callable[[int, int, int], Slots],
    ) -> None:
        """`table`: the role's steps, with the phase `ALIGNMENT` and the conditions `TAKES_PART` and `SITS_OUT`.

        `implied`: (records, slots, those of them that hold classes) → the layout of a record's plaintext that the job
        implies.
        """
        self._config, self._context, self._spec, self._params = config, context, spec, params
        self._implied = implied
        members = [spec.aggregator, *spec.feature_parties]
        self.order = StepOrder(
            table,
            {ALIGNMENT: alignment_steps(members, spec.alignment, context.party)},
            {TAKES_PART: self.takes_part, SITS_OUT: lambda t: not self.takes_part(t)},
        )
        self.alignment = Alignment(context, members, spec.alignment, self.order, "min_common_records")
        self.stored = StoredTrees(context, "splits")
        self._records: JobRecords | None = None
        self._base = BaseModel.of(context, spec, params)
        self._split_table: SplitTable | None = None
        self._key: ReceivedKey | None = None

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Report the progress of the job at this party.

        1. Read the table and, where the job has one, the eval table.
        2. Look up the records that an earlier attempt aligned, and the stored trees.

        Raises:
            Refused: the label holder would partition categories, and the policy does not let it.
        """
        self.order.check(request)
        missing = self._params.missing
        table = await load_job_table(self._context, self._config, self._spec, with_label=False, missing=missing)
        if self._base is not None:
            self._base.check_table(table, self._context.store)
        categories = partitioned(table, self._params.one_hot_below)
        self._context.policy.check_partitions(self._context.party, categories, self._spec.aggregator)
        records, _ = await load_records(self._context, self._config, self._spec, table, missing)
        self._records = records
        aligned = begin_alignment(self.alignment, records)
        await self.stored.read()
        self.order.first_rounds = range(self.stored.count + 1)  # the label holder may have stored fewer
        # the base model's trees are as good as stored
        stored, published = max(self.stored.count, self.base_trees), self._context.store.published
        self.order.done(request, PUBLISHED if published else UNPUBLISHED, *([ALIGNED] if aligned else []))
        bare = without_columns(self._config, self._spec)
        return result(
            setup_pb2.Prepared(stored_rounds=stored, published=published, aligned_attempt=aligned, without_columns=bare)
        )

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Select the common records, and bin their columns once for the job; store the trees of its base model."""
        self.order.check(request)
        base, store = self._base, self._context.store
        if base is not None and self.stored.count < base.trees:
            await self._context.offload(lambda: base.seed(store, kinds=(TREES,)))
            await self.stored.read()
            self.order.first_rounds = range(self.stored.count + 1)
        records = self._records = required(self._records).take(self.alignment.records)
        table = records.table
        binned = await bin_features(self._context, table, self._params, records.training)
        self._split_table = SplitTable(self._context.party, table.columns, binned, records.training)
        self.order.done(request)
        return empty_result()

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Receive the public key of the label holder."""
        self.order.check(request)
        await self.receive_key()
        self.order.done(request)
        return empty_result()

    async def receive_key(self) -> tuple[PublicKey, Slots]:
        """The label holder's key and the layout of a record's plaintext, which must be the one that the job implies."""
        implied = partial(self._implied, self.split_table.training)
        self._key = await take_key(self._context, self._spec.aggregator, KeyKind.of(self._spec), implied)
        return self.key

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Publish the stored trees as a model."""
        self.order.check(request)
        if not self._context.store.published:
            manifest = {
                "role": "feature_party",
                "label_holder": self._spec.aggregator,
                "trees": self.stored.count,
                **manifest_of(self._context, self._spec, self.table, self._params.missing),
                **described(self._spec),
            }
            self._context.store.publish(manifest, (TREES,))
        self.order.done(request)
        return empty_result()

    @property
    def base_trees(self) -> int:
        """The number of trees of the model from which the job continues; 0 once its own model is published."""
        return 0 if self._base is None else self._base.trees

    def received(self, trees: int) -> Receives:
        """Messages that the party receives, without the encrypted values. `trees`: the most that the job can have."""
        expected = of_label_holder(self._spec, self._params, trees, self.records, self._partitioned, self._places)
        return {**self.alignment.receives, **expected}

    def _partitioned(self) -> list[int]:
        """The numbers of categories that the label holder partitions, by column; none before `bin`."""
        shapes = [] if self._split_table is None else self._split_table.binned.shapes
        return [shape.n_bins for shape in shapes if shape.kind is Kind.PARTITIONS]

    def _places(self) -> int:
        """The most places of candidates that a node has; none before `bin`."""
        shapes = [] if self._split_table is None else self._split_table.binned.shapes
        # missing values on either side of each cut, and against all others; the sides of any may be exchanged
        return sum(4 * (shape.n_bins + 1) for shape in shapes)

    def records(self) -> int:
        """The number of the party's records; after `bin`, of the common ones."""
        return 0 if self._records is None else len(self._records.table.ids)

    @property
    def table(self) -> Table:
        """The party's table, with the records of the eval table last; after `bin`, of the common records alone."""
        return required(self._records).table

    @property
    def split_table(self) -> SplitTable:
        """The binned columns, and the splits made on them."""
        return required(self._split_table)

    @property
    def key(self) -> tuple[PublicKey, Slots]:
        """The label holder's public key, and the layout of a record's plaintext."""
        received = required(self._key)
        return received.public, received.slots

    def takes_part(self, t: int) -> bool:
        """True if the party takes part in tree `t`; known once the key has come."""
        return t >= required(self._key).own_rounds and self._params.takes_part(t, self._context.party)
