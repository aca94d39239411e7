"""A party's share of the model that a prediction opens: its shard, its table, and the records that all parties hold.

It is the same for every protocol that predicts; `treetap.party.prediction.tree_model` reads the lines of a shard.

Values of the features that the own splits compare are kept by records in their common order. Those of a small table are
in memory. Those of a large one are read from it once, after the alignment, and lie in an unnamed file in the common
order: a block of records is a stretch of it, and a record that a client asks about a row
(docs/adr/0179-predictions-of-large-tables.md).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import ConfigError, DataError, naming
from treetap.models.arrays import Array
from treetap.models.store import (
    HIDES_CONSTANTS,
    JOIN,
    SCREEN,
    SPACES,
    VALUES,
    read_manifest,
    read_model,
    read_repaired,
    read_weights,
)
from treetap.names import named_by
from treetap.party.alignment.pairs import alignment_of
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.config import PartyConfig
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.job_store import Store
from treetap.party.runtime.step_order import ALIGNMENT, Next, step
from treetap.party.serving.registry import ServedModels
from treetap.party.setup.steps import load_table, table_config
from treetap.process.grouped_rows import Open, PlacedRows
from treetap.protocols.exclusions import PREDICTIONS, Feature, broken
from treetap.protocols.messages import JobSizes, Members
from treetap.protocols.prediction import features_of, members_present, present
from treetap.protocols.registry import prediction, prediction_name, training
from treetap.psi.lists import permutation
from treetap.tables.categories import Category
from treetap.tables.features import Features, Held
from treetap.tables.label_columns import named_type
from treetap.tables.normalised import in_words, keys_in_words
from treetap.tables.reading import Floats, Table
from treetap.tables.record_ids import check_values
from treetap.wire.ports import Timeouts
from treetap.wire.v2 import prediction_pb2, serving_pb2

Column = npt.NDArray[np.float64]
#: Records that lie between two of a block and are read with them rather than each by itself.
GAP = 32
_BYTES = 8


@dataclass(frozen=True)
class PredictionJob:
    """The parts of which a role of a prediction is made: one attempt at one party.

    `served_models`: the registry that clients of this party ask; `users_of`: the jobs under way that use a model.
    """

    config: PartyConfig
    store: Store
    context: StepContext
    opening: prediction_pb2.OpenModel
    served_models: ServedModels
    users_of: Callable[[str], Sequence[str]]

    @property
    def members(self) -> Members:
        """Those that are present."""
        return members_present(self.opening, self.context.coordinator)

    def give_way(self, *, deletes: bool) -> None:
        """Delete this party's part of the models that the opened one replaces, or only see that it may; see `Store`."""
        missed = self.opening.away if self.opening.recipient == self.config.name else ()
        with naming(self.config.name):
            self.store.give_way(self.opening.model, self.users_of, missed, deletes=deletes)

    @property
    def chain(self) -> list[str]:
        """The feature parties that are present, in the order of the chain."""
        return present(self.opening)


class HeldValues:
    """Features in memory, (N, d), by the records' places in the common order; NaN where missing."""

    def __init__(self, features: Floats) -> None:
        self._features = features

    def column(self, rows: Rows, feature: int) -> Column:
        """Those of one feature, (n,)."""
        values: Column = self._features[rows, feature]
        return values

    def columns(self, rows: Rows) -> Callable[[int], Column]:
        """Those of any feature, (n,) each; they are gathered once."""
        values = self._features[rows]
        return lambda feature: values[:, feature]


class StoredValues:
    """The same of some features in a file; of the last block that was asked for they stay in memory."""

    def __init__(self, values: PlacedRows, features: Sequence[int]) -> None:
        """`values`: a row of 64-bit numbers for each record; `features`: those that its numbers are of."""
        self._values, self._place = values, {feature: place for place, feature in enumerate(features)}
        self._last: tuple[Rows, Floats] = np.zeros(0, dtype=np.int64), np.zeros((0, len(self._place)))

    @classmethod
    def of(cls, features: Features, rows: Rows, compared: Sequence[int], files: Open) -> StoredValues:
        """Read the `compared` features of records, whose rows in the table are given, in one pass.

        Raises:
            DataError: the table cannot be read, or is another one than before.
        """
        parts = (
            (places, np.ascontiguousarray(values, dtype=np.float64).view(np.uint8).reshape(len(values), -1))
            for places, values in features.batches(rows, compared)
        )
        return cls(PlacedRows.of(parts, len(rows), _BYTES * len(compared), files), compared)

    def column(self, rows: Rows, feature: int) -> Column:
        """Those of one feature, (n,)."""
        return self.columns(rows)(feature)

    def columns(self, rows: Rows) -> Callable[[int], Column]:
        """Those of any feature, (n,) each; they are gathered once."""
        known, values = self._last
        places = np.searchsorted(known, rows)
        if len(rows) and not (len(known) and np.array_equal(known[np.minimum(places, len(known) - 1)], rows)):
            known = np.unique(rows)
            values = np.concatenate(list(self._read(known)))
            self._last = known, values
            places = np.searchsorted(known, rows)
        return lambda feature: values[places, self._place[feature]]

    def _read(self, rows: Rows) -> Iterator[Floats]:
        """The values of records, which are ascending, stretch by stretch."""
        width = len(self._place)
        for stretch in np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1):
            first, last = int(stretch[0]), int(stretch[-1])
            read = self._values.take(first, last + 1 - first).view(np.float64).reshape(-1, width)
            yield read[stretch - first]


class BesideValues:
    """The values of `count` records, and behind them of `new` ones, by their places: id and features (d,) of each."""

    def __init__(self, held: RecordValues, count: int, new: Mapping[int, tuple[str, Floats]]) -> None:
        self._held, self._count, self._new = held, count, new

    def column(self, rows: Rows, feature: int) -> Column:
        """Those of one feature, (n,)."""
        return self.columns(rows)(feature)

    def columns(self, rows: Rows) -> Callable[[int], Column]:
        """Those of any feature, (n,) each."""
        held = rows < self._count
        before, new = self._held.columns(rows[held]), [self._new[row][1] for row in rows[~held].tolist()]

        def of(feature: int) -> Column:
            values = np.empty(len(rows))
            values[held], values[~held] = before(feature), [own[feature] for own in new]
            return values

        return of


RecordValues = HeldValues | StoredValues | BesideValues


log = logging.getLogger(__name__)


class OpenedModel:
    """A shard with the table that it is used on.

    Attributes:
        party: the owner of the shard.
        name: of the model.
        manifest: the description that was published with the shard.
        sizes: those of the prediction.
        alignment: this party's part in finding the common records.
    """

    #: What the label holder does with its table before records are aligned, and what it reports of the model.
    begin: Callable[[Table], Awaitable[None]] | None = None
    shape: Mapping[str, int] = MappingProxyType({})
    #: What is done once the common records are known, before anything else of the prediction.
    then: Callable[[], Awaitable[None]] | None = None

    #: The values of the compared features at the records that all parties hold; once these are aligned.
    values: RecordValues
    #: The ways in which a record can be scored, see `treetap.party.prediction.reasons`; in each but the first a column
    #: has its reference value: of the label holder these, and by feature party the records (N,) that it lacks, or None.
    ways: int = 1
    columns: Sequence[serving_pb2.Reason] = ()
    #: New records by their places behind the common ones: id and features, behind which is the record's offset.
    new: Mapping[int, tuple[str, npt.NDArray[np.float64]]] = MappingProxyType({})
    lacks: Mapping[str, npt.NDArray[np.bool_] | None] = MappingProxyType({})

    def __init__(self, job: PredictionJob, sizes: JobSizes) -> None:
        """Read the manifest.

        Raises:
            DataError: there is no such model here, or it is of other parties.
            ConfigError: see `check_private_values`.
        """
        config, context, opening = job.config, job.context, job.opening
        self._config, self._context, self._opening = config, context, opening
        self.party, self.name = config.name, opening.model
        self._job, self._folder = job, job.store.model(opening.model, opening.submission)
        self.manifest = read_manifest(self._folder)
        self._check_parties()
        check_private_values(self.manifest, config, opening)
        if opening.away:
            log.warning("job %s: goes on without %s, which does not answer", context.job, ", ".join(opening.away))
        if opening.away_deadline_s:
            context.outbox.timeouts = Timeouts(min(context.outbox.timeouts.silence_s, opening.away_deadline_s))
        self.sizes = sizes
        self.alignment = alignment_of(
            context, opening.alignment, "min_prediction_records", sizes, then=self._take_records
        )
        #: The values (n,) of a feature at some places in all ways, by those of their records.
        self.in_ways: Callable[[Column, Rows, int], Column] = lambda values, _places, _feature: values
        self._table: Table | None = None  # the own one, until the common records are known
        self._common: Table | None = None
        self._compared: set[int] | None = None
        #: At the label holder of a model with look-ups: by feature party, its records that may be asked about.
        self.asked_of: dict[str, PartnerRecords] = {}

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
        columns = self.manifest["source_columns"]
        if absent := [name for name in columns if not named_by(named.columns, name)]:
            raise DataError(
                f"model {self._opening.model} needs column {absent[0]!r}, "
                f"which table {self._opening.table!r} of the configuration does not name"
            ).at(self._config.name)
        if list(named.rules) != (trained := self.manifest.get("normalise", [])):
            raise DataError(
                f"table {self._opening.table!r} has {in_words(named.rules)}, and that of the training had "
                f"{in_words(trained)}: ids of one customer would differ; write the same in its settings"
            ).at(self._config.name)
        begins = self.manifest.get("offsets", {})
        if absent := [key for key, name in begins.items() if named.offsets.get(key) != name]:
            raise DataError(
                f"model {self._opening.model} was trained with {absent[0]} = {begins[absent[0]]!r}, with which scores "
                f"begin: name that column in table {self._opening.table!r} of the configuration too"
            ).at(self._config.name)
        changed = {"columns": columns, "label": None, "weight": None, **begins}
        wanted = named.without_offsets.model_copy(update=changed)
        categories = {name: Category.from_dict(category) for name, category in self.manifest["categories"].items()}
        missing = self.manifest["missing"]
        shapes = {name: tuple(tensor["shape"]) for name, tensor in self.manifest["tensors"].items()}
        table = await load_table(
            self._context,
            wanted,
            with_label=False,
            missing=missing,
            categories=categories,
            shapes=shapes,
            empty=self.manifest["empty_columns"],
            streams=self._compared is not None,
        )
        with naming(self._config.name):
            check_values(table.path, table.seen, table.unlike, len(table.ids))
        return table

    @step(Next(ALIGNMENT))
    async def open_model(self) -> prediction_pb2.OpenedModel:
        """Load the table and begin to align it; the label holder reports the number of trees, if these have some.

        Counts of cells go to the coordinator if the policy lets METRIC go there; the columns are in the party's log.
        """
        table = self._table = await self.load()
        if self._opening.look_up and table.ids.keys:
            raise ConfigError(
                f"{table.path}: {keys_in_words(table.ids.columns_of_keys)} finds a record by any of them, and look-ups "
                "are by one: serve without look_up, or name an id of one key"
            ).at(self.party)
        self._job.give_way(deletes=self.party != self._opening.recipient)
        if self.begin is not None:
            await self.begin(table)
        self.sizes.records = len(table.ids)
        self.alignment.begin(table.ids, table.rows, table.path, keep=False)
        if not self.alignment.sequence:  # there is no other party
            await self._take_records()
        answer = prediction_pb2.OpenedModel(**self.shape)
        if self._context.policy.may_emit(self._context.coordinator, "METRIC"):
            answer.unknown_cells, answer.empty_columns, _ = table.unlike
        return answer

    @cached_property
    def common(self) -> Mapping[str, PartnerRecords]:
        """At the label holder, by feature party that is present the records that it has; once they are aligned."""
        return {
            party: self.asked_of[party] if party in self.asked_of else self.alignment.common_with(party, self.ways)
            for party in present(self._opening)
        }

    @property
    def aligned(self) -> Table:
        """The records that all parties hold, in their common order.

        At a feature party of a model with look-ups its other records are behind them, in an order that it draws.
        """
        if self._common is None:
            table, records = required(self._table), self.alignment.records
            if self._opening.look_up and self.party != self._opening.recipient:
                others = np.setdiff1d(np.arange(len(table.ids)), records)
                records = np.concatenate([records, others[permutation(len(others))]])
            self._common, self._table = table.take(records), None
        return self._common

    def begun(self, rows: Rows, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The scores (n, outputs) of records at these places with their offsets, if the model's scores begin so."""
        own, records = self.aligned.offsets, rows // self.ways
        if own is None:
            return scores
        known = records < len(own.values)
        offsets = np.empty(len(rows))
        offsets[known] = own.values[records[known]]
        offsets[~known] = [self.new[record][1][-1] for record in records[~known].tolist()]
        return np.asarray(scores + offsets[:, np.newaxis])

    @property
    def objective(self) -> str:
        """The objective of the training, which the label holder knows."""
        return str(self.manifest["objective"])

    @property
    def classes(self) -> list[str]:
        """Values of the label, which the label holder knows; none for a regression."""
        return list(self.manifest["classes"])

    @property
    def class_type(self) -> pa.DataType:
        """The type of the label in its table, which the label holder knows."""
        return named_type(self.manifest["class_type"])

    async def _take_records(self) -> None:
        """Take the common records, and read the values of the features that are compared."""
        self._job.give_way(deletes=True)  # also at the recipient: all others have opened the model before
        self.sizes.records = len(self.aligned.ids)
        if self.then is not None:
            await self.then()
        if self._compared is None:
            return
        table, compared, files = self.aligned, sorted(self._compared), self._context.scratch.file

        def values() -> RecordValues:
            """Of a table that is not in memory the compared features alone."""
            if isinstance(table.values, Held):
                return HeldValues(table.features)
            if not compared:
                return HeldValues(np.empty((len(table.ids), 0)))
            return StoredValues.of(table.values, table.rows, compared, files)

        with naming(self.party):
            self.values = await self._context.offload(values, whole=True)

    def _check_parties(self) -> None:
        me, opening, manifest = self._config.name, self._opening, self.manifest
        trained_by, name = manifest["protocol"], prediction_name(opening)
        if manifest.get(SCREEN):
            raise DataError(f"job {opening.model} was a screening, which makes no model: train one", party=me)
        offered = training(trained_by).predicts
        if name not in offered:
            fault = f"model {opening.model} was trained by {trained_by}, and {name} does not predict with it"
            raise DataError(f"{fault}: use {' or '.join(offered)}")
        if manifest.get(JOIN, "") != opening.join:
            fault = f"model {opening.model} was trained with join = {manifest.get(JOIN) or 'inner'!r} at {me}"
            raise DataError(f"{fault}: predict by the coordinator that trained it")
        if manifest["role"] == "party":
            trained, asked = manifest["parties"], [opening.recipient, *opening.feature_parties]
            if sorted(trained) != sorted(asked):
                fault = f"model {opening.model} was trained by {', '.join(trained)}, not by {', '.join(asked)}"
                raise DataError(f"{fault}: predict by the coordinator that trained it")
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


def check_private_values(manifest: Mapping[str, Any], config: PartyConfig, opening: prediction_pb2.OpenModel) -> None:
    """`ConfigError` listing all that is asked of a model and would show such values, or instance spaces that its
    training withheld; other models pass.

    Scores of repaired trees depend on clean labels, which no feature party may compare with the noisy ones that it has
    seen.
    """
    faults, model = list[str](), opening.model
    if manifest.get(HIDES_CONSTANTS):
        rows = broken(PREDICTIONS, features_of(opening) | {Feature.HIDDEN_VALUES})
        faults += [f"model {model}: {row}" for row in rows]
    if manifest.get(SPACES):
        name = prediction_name(opening)
        rows = broken(PREDICTIONS, {Feature.WITHHELD_MODEL}, name, prediction(name).capabilities)
        faults += [f"model {model}: {row}" for row in rows]
    if manifest.get(VALUES) and opening.serve and config.serve is not None:
        named = [name for name in config.serve.clients if name in manifest["feature_parties"]]
        if named:
            faults.append(
                f"serve.clients names {', '.join(named)}, a feature party of model {model}, whose scores depend on the "
                "labels that noise hid from it: take it out, or serve a model without grafting and refit"
            )
    if faults:
        raise ConfigError("\n".join(faults), party=config.name)
