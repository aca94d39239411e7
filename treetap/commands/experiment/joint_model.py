"""A model of trees with the shards of all its parties, which no party of a federation has, and its predictions.

The operator of an experiment or of a loopback federation holds all shards. Scores are those that the parties would
compute together, bit for bit, without a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from party.prediction.outcome import Outcome
from treetap.commands.experiment.open_model import OpenModel, open_shards, scores
from treetap.commands.experiment.report import importance
from treetap.commands.experiment.results import Importance
from treetap.errors import DataError
from treetap.models.store import read_manifest
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table
from treetap.tables.typed import named_type, typed
from treetap.tables.unlike import Unlike, check_values


class JointModel:
    """Published shards of one training, party → folder; read when they are needed.

    Raises:
        DataError: a shard is damaged, of a newer format, of another training, or no party of them has the leaves.
    """

    def __init__(self, shards: Mapping[str, Path]) -> None:
        self.shards = dict(shards)
        self.unlike: dict[str, Unlike] = {}  #: of the last prediction, by party
        self.manifests = {party: read_manifest(folder) for party, folder in self.shards.items()}
        holders = [party for party, manifest in self.manifests.items() if manifest["role"] == "label_holder"]
        if len(holders) != 1:
            found = ", ".join(f"{party} is {manifest['role']}" for party, manifest in self.manifests.items())
            raise DataError(f"a joint model has the shard of one label holder and of every feature party; here {found}")
        self.label_holder = holders[0]
        wanted = {self.label_holder, *self.manifest["feature_parties"]}
        if wanted != set(self.shards):
            raise DataError(
                f"the model has parties {', '.join(sorted(wanted))}, and these shards are of "
                f"{', '.join(sorted(self.shards))}"
            )

    @property
    def manifest(self) -> dict[str, Any]:
        """The label holder's manifest."""
        return self.manifests[self.label_holder]

    @property
    def classes(self) -> list[Any]:
        """The values of the label, in the type of its column; none of a regression."""
        return list(typed(self.manifest["classes"], self._class_type).to_pylist())

    def columns(self, party: str) -> list[str]:
        """The columns that a party's table must have."""
        manifest = self.manifests[party]
        return list(manifest.get("source_columns", manifest["columns"]))

    def importances(self) -> list[Importance]:
        """Gain, cover and number of splits by party and feature, the largest total gain first."""
        return importance(self.shards)

    def predict(self, tables: Mapping[str, TableConfig]) -> pa.Table:
        """Predictions of the records that all tables have, as a label holder's file has them, in the order of ids.

        Raises:
            DataError: a table cannot be read, or lacks a column.
        """
        read = {party: self._read(party, config) for party, config in tables.items()}
        self.unlike = {party: table.unlike for party, table in read.items()}
        common = read[self.label_holder].ids
        for table in read.values():
            common = common.take(np.flatnonzero(table.ids.places_of(common) >= 0))
        features = {party: table.features[table.ids.places_of(common)] for party, table in read.items()}
        found = scores(self._opened.published, self._opened.meaning, features)
        classes = self.manifest["classes"]
        outcome = Outcome.of(self.manifest["objective"], classes, found)
        ids = common.array.cast(read[self.label_holder].id_type)
        return pa.table({tables[self.label_holder].id: ids, **outcome.columns(classes, self._class_type)})

    @cached_property
    def _opened(self) -> OpenModel:
        return open_shards(self.shards)

    @property
    def _class_type(self) -> pa.DataType:
        return named_type(self.manifest.get("class_type", "string"))

    def _read(self, party: str, config: TableConfig) -> Table:
        """A party's table as it was encoded in the training."""
        manifest = self.manifests[party]
        categories = {name: Category.from_dict(each) for name, each in manifest.get("categories", {}).items()}
        wanted = config.model_copy(update={"columns": self.columns(party), "label": None})
        missing, empty = self.manifest["missing"], manifest.get("empty_columns", ())
        read = read_table(wanted, with_label=False, missing=missing, categories=categories, empty=empty)
        check_values(read.path, read.seen, read.unlike, len(read.ids))
        return read
