"""A training job at the label holder: its table, bins, keys and stored trees, from `prepare` to `publish`.

It is the same for every training protocol; the protocol's label holder adds the loss or criterion, the encrypted values
and the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from treetap.arrays import Bools, Ints
from treetap.errors import OutOfOrder
from treetap.models.store import REFERENCES, TRAINED_ON
from treetap.party.alignment.pairs import alignment_of
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.alignment.steps import begin_alignment
from treetap.party.config import PartyConfig
from treetap.party.growth.continuation import FirstTrees
from treetap.party.growth.left_bits import ChosenBits
from treetap.party.growth.rule import Draft, Part, Rule, Summed, choice_of, rules_of
from treetap.party.growth.split_table import SplitTable
from treetap.party.growth.stored_trees import (
    LabelState,
    StoredTrees,
    entries_of,
    published_model,
    shard,
    stored_trees,
)
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.step_order import ALIGNED, ALIGNMENT, Next, Outcome, step
from treetap.party.setup.labelled_table import LabelledTable, load_labelled_table
from treetap.party.setup.steps import JobKeys, bin_features, manifest_of, without_columns
from treetap.protocols.growth import TreeSizes, sums_shared
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import aligned_apart, members_of
from treetap.tables.labels import Labels
from treetap.tables.references import reference_values
from treetap.trees.boosting_rounds import Start
from treetap.trees.ensemble import Tree, deciding_splits, importance_by_owner
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import TreeParams
from treetap.trees.slots import Slots
from treetap.wire.metric_history import columns
from treetap.wire.v2 import setup_pb2

if TYPE_CHECKING:
    from treetap.party.growth.ciphers import ApartValues
    from treetap.party.growth.lattice_values import WordsOfNodes
    from treetap.party.growth.shared_choice import LabelHolderChoice


class LabelHolderJob:
    """The labelled table of a job with the trees that are stored of it.

    Attributes:
        sizes: those of the job, as far as they are known.
        alignment: this party's part in finding the common records.
        stored: the trees on disk.
        rules: those of the job's features.
        choice: on shares of sums, where these are shared.
        left_bits: gets those of splits that feature parties win, where instance spaces are withheld.
        common: by feature party the job's records that it has; known once records are aligned.
    """

    #: The party's table with its labels; after `select_common`, of the common records alone.
    data: LabelledTable

    #: The binned columns, and the splits made on them.
    split_table: SplitTable

    def __init__(
        self,
        config: PartyConfig,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        params: TreeParams,
        trees: int,
        slots: Callable[[Labels], Slots],
        keys: JobKeys | WordsOfNodes | ApartValues,
        label_slots: Callable[[Labels], int] = lambda _: 0,
        layout: Any = None,
    ) -> None:
        """`trees`: the most that the job grows.

        `slots`: the layout of a record's plaintext; raises `BadInput` if the labels do not fit the job. `keys`: makes
        the attempt's key pair, or what takes its place. `label_slots`: the number of its last slots that hold a
        record's class beside what the protocol sums. `layout`: see `Part`.
        """
        self._label_slots = label_slots
        self._config, self._context, self._spec, self._params, self._slots = config, context, spec, params, slots
        self._keys = keys
        self.stored = StoredTrees(context, "own")
        withheld = params.withheld and not spec.screen
        self.left_bits = ChosenBits(context, list(spec.feature_parties)) if withheld else None
        part = Part(config, context, spec, params, layout)
        self.choice: LabelHolderChoice | None = choice_of(part)
        self.first = FirstTrees(part)
        self.rules: list[Rule] = [*rules_of(replace(part, choice=self.choice)), self.first]
        members, rounds = members_of(spec, context.coordinator), self.first.count + trees
        self.sizes = TreeSizes(members=members, key=KeyKind.of(spec), params=params, rounds=rounds)
        self.alignment = alignment_of(context, spec.alignment, "min_common_records", self.sizes)
        self._state: LabelState | None = None
        self.common: dict[str, PartnerRecords] = {}

    @step(Next(ALIGNMENT), Next("bin", when=ALIGNED))
    async def prepare(self) -> Outcome:
        """Report the progress of the job.

        1. Read the table and decode its labels; with label differential privacy noisy ones take their place.
        2. Refuse labels that do not fit the job, before the alignment.
        3. Look up the records that an earlier attempt aligned, and the stored trees.
        """
        data = self.data = await load_labelled_table(
            self._context, self._config, self._spec, missing=self._params.missing, objective=self._params.objective
        )
        self.sizes.records = len(data.records.table.ids)
        if not self._context.store.published:
            before = self.first.count
            for rule in self.rules:
                rule.check(data, before)
            self._context.policy.limits.check(self._context.party, self._params, before, len(data.labels.classes))
        self._slots(data.labels)
        self.first.check_table(data.table)
        aligned = begin_alignment(self.alignment, data.records)
        stored, published = (
            await self.stored.read_scored(stored_trees(self._context.store)),
            self._context.store.published,
        )
        for rule in self.rules if not published else ():
            rule.resumed(stored)
        model = published_model(self._context.store.manifest()) if published else None
        return Outcome(
            *([ALIGNED] if aligned else []),
            answer=setup_pb2.Prepared(
                stored_rounds=stored,
                published=published,
                aligned_attempt=aligned,
                model=model,
                history=columns(self.first.rounds(self.stored, stored)),
                without_columns=without_columns(self._config, self._spec),
            ),
        )

    async def start(self) -> Start | None:
        """The beginning of a training that continues from a model, whose trees are stored as the job's first ones."""
        return await self.first.start(self.stored, self.alignment.records, self.data.labels)

    def select_common(self) -> LabelledTable:
        """The common records and their labels, which are the job's data from now on; a rule may refuse them."""
        data = self.data = self.data.take(self.alignment.records)
        self.sizes.records = len(data.records.table.ids)
        self.common |= {party: self.alignment.common_with(party) for party in self._spec.feature_parties}
        for rule in self.rules:
            rule.selected(data)
        return data

    async def bin(self, state: LabelState) -> Outcome:
        """Bin the own columns, once for the job, and report the number of trees to grow.

        `state`: the scores after the last stored tree.
        """
        table, training = self.data.records.table, self.data.records.training
        if aligned_apart(self._spec):
            lacking = {party: len(common.below(training)) < training for party, common in self.common.items()}
            sizes = {"training": training, "records": self.sizes.records} if sums_shared(self._spec) else {}
            bodies = {party: [setup_pb2.LackedRecords(some=some, **sizes)] for party, some in lacking.items()}
            await self._context.outbox.send_each("lacked_records", bodies)
        binned = await bin_features(self._context, table, self._params, training)
        self.split_table, self._state = SplitTable(self._context.party, table.columns, binned, training), state
        for rule in self.rules:
            rule.binned(self.split_table)
        answer = setup_pb2.Binned(
            rounds=state.planned, stopped=state.stopped, own_rounds=self._alone, base_rounds=self.first.count
        )
        return Outcome(answer=answer, first_rounds=(state.trees,))

    async def make_keys(self, trees: int = 0, slots: int = 0) -> setup_pb2.PlannedTraffic | None:
        """Generate the attempt's key pair; feature parties get the public key, the workers the secret key.

        Under a lattice agree on the attempt's sizes and public polynomials instead, and report the bytes that follow;
        where instance spaces are withheld, make the base transfers of left bits too.
        `trees`: the most of the attempt. `slots`: of a record, as far as noise may be on their sums.

        Raises:
            Refused: sums of a feature party have noise, and the policy does not take such.
            ConfigError: the job has more trees than that noise is for, or its parties have defences that do not go
                together.
        """
        for rule in self.rules:
            await rule.heard(self.sizes, trees, slots)
        labels = self.data.labels
        label_slots = self._label_slots(labels)
        planned = await self._keys.make(self._slots(labels), label_slots=label_slots, own_rounds=self._alone)
        if self.left_bits is not None:
            await self.left_bits.agree()
        if self.choice is not None:
            keys, training = cast("WordsOfNodes", self._keys), len(labels.values)
            await self.choice.agree(self.sizes, keys.slots, keys.parameters, training, counts=keys.counts)
        return planned

    def labels_of(self, party: str) -> Labels:
        """The labels of the training's records that a feature party has, in its order."""
        labels = self.data.labels
        return labels.at(self.common[party].below(len(labels.values)))

    @property
    def rooms(self) -> Sequence[SumNoise]:
        """What slots have room for beside sums."""
        return [room for rule in self.rules for room in rule.rooms()]

    async def begin_tree(self, t: int) -> None:
        """Begin a tree, whose handles follow those of the stored ones; a rule may refuse it."""
        for rule in self.rules:
            await rule.begin()
        self.split_table.next_handle_is(self.stored.first_handle(t))

    def encrypted(self, values: Ints, drawn: Bools) -> Ints:
        """The values (n, S) to be encrypted for a tree; the drawn ones (n,) in the last slot, if it counts them."""
        counts = not isinstance(self._keys, JobKeys) and self._keys.counts
        return np.column_stack([values, drawn]) if counts else values

    def summed(self, t: int, values: Ints, drawn: Bools, *, counts: bool = False) -> Summed:
        """What is summed for a tree of the criterion's `values` (n, S); see `Rule.values`."""
        summed = Summed(t, values, drawn, counts)
        for rule in self.rules:
            summed = rule.values(summed)
        return summed

    @step()
    async def publish(self) -> setup_pb2.PublishedModel:
        """Publish the stored trees as a model, and report it; delete the secret key in the workers.

        Raises:
            OutOfOrder: trees are missing, whatever the coordinator believes.
        """
        state = required(self._state)
        if state.trees < state.planned and not state.stopped:
            raise OutOfOrder(f"publish cannot come now: {state.trees} of {state.planned} trees are stored")
        lines = await self.stored.read()
        trees = [Tree.from_dict(line["tree"]) for line in lines]
        entries = {
            "role": "label_holder",
            "feature_parties": list(self._spec.feature_parties),
            "classes": self.data.labels.classes,
            "class_type": str(self.data.labels.kind),
            **manifest_of(self._context, self._spec, self.data.table, self._params.missing),
            REFERENCES: await self._context.offload(lambda: reference_values(self.data.records)),
            TRAINED_ON: self.data.records.training,
            "trees": len(trees),
            **entries_of(lines[self.first.count :]),
            **state.summary(),
        }
        draft = Draft(entries, shard(lines), lines, self.alignment.records, trees, trees, self.data, state)
        for rule in self.rules:
            await rule.publish(draft)
        owners = importance_by_owner(
            replace(tree, splits=deciding_splits(tree)) for tree in state.used(list(draft.values))
        )
        entries["importance_by_party"] = {
            name: {"weight": part.weight, "gain": part.gain, "cover": part.cover} for name, part in owners.items()
        }
        self._context.store.publish(entries, draft.files)
        await self._context.held.aclose()
        return published_model(self._context.store.manifest())

    @property
    def _alone(self) -> int:
        return max(rule.alone for rule in self.rules)
