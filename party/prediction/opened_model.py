"""A party's share of the model that a prediction opens: its shard, its table, and the records that all parties hold.

It is the same for every protocol that predicts; `party.prediction.tree_model` reads the lines of a shard.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from party.alignment.steps import ALIGNMENT, Alignment
from party.config import PartyConfig
from party.prediction.feature_names import NAMES, Naming, naming_steps
from party.prediction.private_values import check_private_values
from party.prediction.record_values import RecordValues, values_of
from party.prediction.step_rows import conditions_of
from party.runtime.context import StepContext, required
from party.runtime.expected import expected_of
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.step_order import StepOrder, StepTable, steps_of_phase
from party.runtime.steps import Step
from party.setup.steps import load_table, table_config
from treetap.errors import DataError
from treetap.models.arrays import Array
from treetap.models.store import VALUES, read_manifest, read_model, read_repaired, read_weights
from treetap.protocols.alignment import ALIGNMENTS
from treetap.protocols.messages import JobSizes
from treetap.protocols.prediction import members_present
from treetap.protocols.registry import prediction_name, training
from treetap.tables.categories import Category
from treetap.tables.reading import Table
from treetap.tables.typed import named_type
from treetap.tables.unlike import check_values
from treetap.wire.frame import result
from treetap.wire.timeouts import Timeouts
from treetap.wire.v2 import control_pb2, prediction_pb2

log = logging.getLogger(__name__)


class OpenedModel:
    """A shard with the table that it is used on.

    Attributes:
        party: the owner of the shard.
        name: of the model.
        manifest: the description that was published with the shard.
        order: the steps of the prediction that may come next.
        names: this party's part in the phase of the names.
        steps: those of the alignment and of the names.
        receives: what can come for these.
    """

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        table: StepTable,
    ) -> None:
        """`table`: the role's steps, with the phases `ALIGNMENT` and `NAMES`.

        Raises:
            DataError: there is no such model here, or it is of other parties.
            ConfigError: see `check_private_values`.
        """
        self._config, self._context, self._opening = config, context, opening
        self.party, self.name = config.name, opening.model
        self._folder = store.model(opening.model, opening.submission)
        self.manifest = read_manifest(self._folder)
        self._check_parties()
        check_private_values(self.manifest, config, opening)
        if opening.away:
            log.warning("job %s: goes on without %s, which does not answer", context.job, ", ".join(opening.away))
        if opening.away_deadline_s:
            context.outbox.timeouts = Timeouts(min(context.outbox.timeouts.silence_s, opening.away_deadline_s))
        self.sizes = JobSizes(members=members_present(opening, context.coordinator))
        self._alignment = Alignment(context, opening.alignment, "min_prediction_records", self.sizes)
        phases = {ALIGNMENT: self._alignment.sequence, NAMES: naming_steps(opening, config.name)}
        self.order = StepOrder(table, phases, conditions_of(opening))
        self.names = Naming(context, store, opening, self.order)
        self._table: Table | None = None  # the own one, until the common records are known
        self._common: Table | None = None
        self._compared: set[int] | None = None
        self._values: RecordValues | None = None
        aligning = {name: self._then_values(step) for name, step in steps_of_phase(self.order, self._alignment).items()}
        self.steps = {**aligning, **self.names.steps}
        aligned = expected_of(ALIGNMENTS.get(opening.alignment, ()), config.name, self.sizes)
        self.receives = {**aligned, **self.names.receives}

    @cached_property
    def shard(self) -> list[dict[str, Any]]:
        """The lines of a shard that holds trees; `DataError` for another kind."""
        return read_model(self._folder)[1]

    @cached_property
    def repaired(self) -> list[dict[str, Any]]:
        """The lines of its repaired trees, at a label holder whose predictions use them; else none."""
        return read_repaired(self._folder) if VALUES in self.manifest else []

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The arrays of a shard that holds a network; `DataError` for another kind."""
        return read_weights(self._folder)[1]

    def compare(self, features: Iterable[int]) -> None:
        """Have the values of these features ready for every block: the own splits compare them, and nothing else."""
        self._compared = (self._compared or set()).union(features)

    async def load(self) -> Table:
        """The columns of the model from the party's table of the opening's name; labels are not read.

        Features stay in a large table whose splits alone need them.
        """
        named = table_config(self._config, self._opening.table)
        # models of releases without encoded text columns have neither entry: their features are their columns
        columns = self.manifest.get("source_columns", self.manifest["columns"])
        encoded = self.manifest.get("categories", {})
        have = set(named.columns)
        if absent := [name for name in columns if name not in have]:
            raise DataError(
                f"model {self._opening.model} needs column {absent[0]!r}, "
                f"which table {self._opening.table!r} of the configuration does not name"
            ).at(self._config.name)
        wanted = named.model_copy(update={"columns": columns, "label": None, "weight": None})
        categories = {name: Category.from_dict(each) for name, each in encoded.items()}
        missing = self.manifest["missing"]
        # models of releases without columns of tensors have no such entry
        shapes = {name: tuple(each["shape"]) for name, each in self.manifest.get("tensors", {}).items()}
        table = await load_table(
            self._context,
            wanted,
            with_label=False,
            missing=missing,
            categories=categories,
            shapes=shapes,
            empty=self.manifest.get("empty_columns", ()),  # models of earlier releases do not say
            streams=self._compared is not None,
        )
        try:
            check_values(table.path, table.seen, table.unlike, len(table.ids))
        except DataError as failure:
            raise failure.at(self._config.name) from None
        return table

    async def align(self, table: Table, request: control_pb2.StepRequest) -> None:
        """Begin to find the records that all parties hold: the steps of the alignment may come."""
        self._table = table
        self._alignment.begin(table.ids, table.rows, table.path, keep=False)
        await self._take_values()
        self.order.done(request)

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load the table and begin to align it, at a feature party."""
        self.order.check(request)
        table = await self.load()
        await self.align(table, request)
        return self.opened(table)

    def opened(self, table: Table, **shape: int) -> control_pb2.StepResult:
        """The answer to an opening. `shape`: of the model, at its label holder.

        Counts of cells go to the coordinator if the policy lets METRIC go there; the columns are in the party's log.
        """
        answer = prediction_pb2.OpenedModel(**shape)
        if self._context.policy.may_emit(self._context.coordinator, "METRIC"):
            answer.unknown_cells, answer.empty_columns = table.unlike
        return result(answer)

    def records(self) -> int:
        """The number of the party's records; once the tables are aligned, of the common ones."""
        known = self._table if self._common is None else self._common
        return 0 if known is None else len(known.ids)

    @property
    def aligned(self) -> Table:
        """The records that all parties hold, in their common order."""
        if self._common is None:
            self._common, self._table = required(self._table).take(self._alignment.records), None
        return self._common

    @property
    def values(self) -> RecordValues:
        """The values of the compared features at the records that all parties hold."""
        return required(self._values)

    @property
    def own_places(self) -> Rows:
        """The place in the own table of each record that all parties hold, in their common order."""
        return self._alignment.records

    @property
    def objective(self) -> str:
        """The objective of the training, which the label holder knows."""
        return str(self.manifest["objective"])

    @property
    def classes(self) -> list[str]:
        """Values of the label, which the label holder knows; none for a regression."""
        return list(self.manifest["classes"])

    @property
    def outputs(self) -> int:
        """Columns of a score, which the label holder knows: of trees those of the base margin."""
        trees = "base_margin" in self.manifest
        return len(self.manifest["base_margin"]) if trees else int(self.manifest["target"]["outputs"])

    @property
    def class_type(self) -> pa.DataType:
        """The type of the label in its table; text of a model whose manifest does not say it."""
        return named_type(self.manifest.get("class_type", "string"))

    @property
    def party_dropout(self) -> Mapping[str, float]:
        """The share of the training that each feature party sat out on average, which the label holder knows."""
        found: Mapping[str, float] = self.manifest.get("params", {}).get("party_dropout", {})
        return found

    def _then_values(self, step: Step) -> Step:
        """The step, after which the values of the compared features are ready if it was the last of the alignment."""

        async def with_values(request: control_pb2.StepRequest) -> control_pb2.StepResult:
            found = await step(request)
            await self._take_values()
            return found

        return with_values

    async def _take_values(self) -> None:
        if self._compared is None or not self._alignment.known or self._values is not None:
            return
        table, compared, files = self.aligned, sorted(self._compared), self._context.scratch.file
        try:
            self._values = await self._context.offload(lambda: values_of(table, compared, files), whole=True)
        except DataError as failure:
            raise failure.at(self.party) from None

    def _check_parties(self) -> None:
        me, opening, manifest = self._config.name, self._opening, self.manifest
        trained_by, name = manifest.get("protocol", "boosting"), prediction_name(opening)  # first models have no entry
        offered = training(trained_by).predicts
        if name not in offered:
            fault = f"model {opening.model} was trained by {trained_by}, and {name} does not predict with it"
            raise DataError(f"{fault}: use {' or '.join(offered)}")
        if manifest["role"] == "party":
            self._check_equals()
            return
        role = "label_holder" if opening.recipient == me else "feature_party"
        if manifest["role"] != role:
            was = manifest["role"]
            raise DataError(f"{me} was {was} of model {opening.model}, not {role}", party=me)
        if role == "feature_party" and manifest["label_holder"] != opening.recipient:
            holder = manifest["label_holder"]
            fault = f"model {opening.model} belongs to label holder {holder}, not to {opening.recipient}"
            raise DataError(f"{fault}: predict by the coordinator that trained it")
        if role == "label_holder" and sorted(manifest["feature_parties"]) != sorted(opening.feature_parties):
            trained = ", ".join(manifest["feature_parties"])
            fault = f"model {opening.model} was trained with {trained}, not with {', '.join(opening.feature_parties)}"
            raise DataError(f"{fault}: predict by the coordinator that trained it")

    def _check_equals(self) -> None:
        """`DataError` where a model of parties with equal roles is of others."""
        trained, asked = self.manifest["parties"], [self._opening.recipient, *self._opening.feature_parties]
        if sorted(trained) != sorted(asked):
            fault = f"model {self._opening.model} was trained by {', '.join(trained)}, not by {', '.join(asked)}"
            raise DataError(f"{fault}: predict by the coordinator that trained it")
