"""A feature party's published model and its table, from its own disk: bottom, inputs, and inputs of other records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from treetap.attacks.view.own_table import in_common_order
from treetap.attacks.view.received_rows import ReceivedRows, attack_draws
from treetap.attacks.view.view import View
from treetap.errors import DataError
from treetap.models.store import MANIFEST, read_weights
from treetap.neural.architectures import bottom_model, bottom_to_load
from treetap.neural.feature_side import BOTTOM
from treetap.neural.inputs import Inputs, InputScaler
from treetap.neural.optimiser import load_weights
from treetap.neural.params import SplitnnParams
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table


@dataclass(frozen=True)
class Described:
    """The part of a published model's manifest that says how its tables are read and scaled."""

    scaler: InputScaler
    columns: list[str]
    categories: dict[str, Category]
    shapes: dict[str, tuple[int, ...]]
    missing: float | None
    amplified: bool

    @classmethod
    def of(cls, model: Path, manifest: dict[str, Any]) -> Described:
        """The part of this manifest, which anyone may have written; `DataError` if it is no network's."""
        try:
            return cls(
                InputScaler.from_dict(manifest["inputs"]),
                [str(name) for name in manifest["source_columns"]],
                {str(name): Category.from_dict(category) for name, category in manifest["categories"].items()},
                {str(name): tuple(map(int, category["shape"])) for name, category in manifest["tensors"].items()},
                None if manifest["missing"] is None else float(manifest["missing"]),
                bool(manifest.get("amplified")),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError(f"{model / MANIFEST}: is not that of a network; bring a back-up of it back") from None

    def table(self, path: Path, id_column: str) -> Table:
        """A table with the columns of the model, encoded as those of the training."""
        config = TableConfig(path=path, id=id_column, columns=self.columns)
        return read_table(
            config, with_label=False, missing=self.missing, categories=self.categories, shapes=self.shapes
        )


@dataclass(frozen=True)
class OwnNetwork:
    """A party's part of a network.

    Attributes:
        bottom: with its published weights.
        inputs: of the common records, in their order.
        described: the columns, and whether the party trained with `optimizer = "amplified"`, active completion.
    """

    view: ReceivedRows = field(repr=False)
    bottom: nn.Module = field(repr=False)
    inputs: Inputs = field(repr=False)
    described: Described = field(repr=False)
    seed: int

    @property
    def amplified(self) -> bool:
        """True if the party trained by active completion."""
        return self.described.amplified

    @property
    def weights(self) -> int:
        """The number of weights of the bottom."""
        return sum(weight.numel() for weight in self.bottom.parameters())

    def untrained(self, draw: int) -> nn.Module:
        """A bottom of the same architecture with fresh weights."""
        settings = self.view.params.bottom_of(self.view.party)
        return bottom_model(settings, self.described.scaler.shape, attack_draws(self.seed), "untrained", draw)

    def evaluation(self, path: Path, id_column: str) -> tuple[Table, Inputs]:
        """Another table of the party, of records that were not trained on, and its inputs.

        Raises:
            DataError: the file cannot be read, or has other columns than the training.
        """
        table = self.described.table(path, id_column)
        return table, self.described.scaler.apply(table)


def load_own_network(model: Path, table: Path, view: View, id_column: str = "id", seed: int = 0) -> OwnNetwork:
    """Load the party's published model and the table that it trained on.

    Raises:
        DataError: there is no such model or table, either is of another job or party, or the transcript does not say
            which rows the common records are.
    """
    network = view.network
    assert network is not None  # of another job no attack on a network runs
    if view.rows is None:
        raise DataError(f"{view.path}: does not say which rows of {view.party}'s table the records are")
    described, bottom = published_bottom(model, network.params, view.party, view.job)
    own = described.table(table, id_column)
    inputs = described.scaler.apply(in_common_order(table, own, view, view.rows))
    return OwnNetwork(network, bottom, inputs, described, seed)


def published_bottom(model: Path, params: SplitnnParams, party: str, job: str) -> tuple[Described, nn.Module]:
    """Load a feature party's published model: how it reads its tables, and its bottom.

    Raises:
        DataError: there is no such model, or it is of another job or party.
    """
    manifest, weights = read_weights(model)
    if [manifest.get(name) for name in ("job", "party", "role")] != [job, party, "feature_party"]:
        raise DataError(f"{model}: is not the model that {party} trained in job {job!r}")
    described = Described.of(model, manifest)
    bottom = bottom_to_load(params.bottom_of(party), described.scaler.shape)
    try:
        load_weights({BOTTOM: bottom}, weights)
    except ValueError as fault:
        raise DataError(f"{model}: the weights are not those of this model: {fault}") from None
    return described, bottom
