"""A party's part of a model as columns of a scorecard, with records of its tables, and what parties hand each other.

A feature party writes which of its splits divide one column, and in which order; no cut and no name. The label holder
counts its bins by an explained prediction, which has the side that each record takes at each split, and writes points.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from treetap import strict
from treetap.arrays import Bools, Floats, Ints
from treetap.errors import BadInput, DataError, Refused, cannot, refuse
from treetap.lab.experiment.joint_model import table_of_model
from treetap.lab.scorecard.card import MISSING, NUMBERS, OTHER, VALUE, Card, Cell, Column
from treetap.lab.scorecard.options import Frame
from treetap.models.durable import document, read_document, write_whole
from treetap.models.own_split import OwnSplit, valued_trees
from treetap.models.store import WEIGHTS, read_job, read_manifest, read_model, read_names, read_repaired
from treetap.party.config import PartyConfig
from treetap.party.defences.clean_labels import LabelRules
from treetap.tables.config import CATEGORICAL, DAYS, TableConfig
from treetap.tables.dates import date_text
from treetap.tables.labels import read_classes
from treetap.tables.reading import Table, read_table
from treetap.trees.ensemble import Tree, deciding_tree, used_of
from treetap.trees.job_params import BINARY

#: Seeds of the checksums of the two files.
BINS_SEED, POINTS_SEED = "bins of a scorecard", "points of a scorecard"
#: Handle of a split → points on its left and on its right.
Sides = dict[int, tuple[float, float]]


@dataclass(frozen=True)
class Part:
    """A party's published model: its own splits and, at the label holder, the trees that predictions use."""

    folder: Path
    party: str
    holds_labels: bool
    manifest: Mapping[str, Any]
    own: list[OwnSplit]
    trees: tuple[Tree, ...]

    @classmethod
    def open(cls, folder: Path) -> Part:
        """The party's part in a folder.

        Raises:
            BadInput: the model is a network, or its leaf weights lie at several parties.
        """
        manifest = read_manifest(folder)
        if WEIGHTS in manifest["files"] or manifest["role"] == "party":
            raise BadInput(f"{folder}: has no trees with one label holder, from which points follow: train boosting")
        lines, party = read_model(folder)[1], str(manifest["party"])
        if manifest["role"] != "label_holder":
            rows = [OwnSplit.from_dict(row) for line in lines for row in line["splits"]]
            return cls(folder, party, False, manifest, rows, ())
        read = valued_trees(manifest, lines, read_repaired(folder), party, str(folder))
        trees = tuple(map(deciding_tree, used_of(read.valued, manifest["best_round"], manifest["trees_per_round"])))
        handles = {it.handle for tree in trees for it in tree.splits if it.owner == party}
        own = {row.handle: row for splits in read.own for row in splits if row.handle in handles}
        return cls(folder, party, True, manifest, [*own.values()], trees)

    def check_additive(self) -> None:
        """Raise `BadInput` unless scores are sums over columns, and odds of classes; or without a split."""
        nodes = [split.node for split in self.own] + [split.node for tree in self.trees for split in tree.splits]
        odds = not self.holds_labels or (self.manifest.get("classes") and not self.manifest.get("averaged"))
        refuse(
            (not odds, f"{self.folder}: predicts no odds of classes: train boosting with {BINARY[0]!r}"),
            (not nodes, f"{self.folder}: has no split, hence no bin: train longer, or with less regularisation"),
            (max(nodes, default=1) > 1, f"{self.folder}: has trees of several levels: train with max_depth = 1"),
            kind=BadInput,
        )

    def columns(self) -> list[Column]:
        """The party's own columns that splits divide, in order, without points."""
        by_feature: defaultdict[int, list[OwnSplit]] = defaultdict(list)
        for split in self.own:
            by_feature[split.feature].append(split)
        return [self._column(place, splits) for place, splits in sorted(by_feature.items())]

    def _column(self, place: int, splits: Sequence[OwnSplit]) -> Column:
        name, shown = str(self.manifest["columns"][place]), "{:.6g}".format
        encoding = self.manifest["categories"].get(name, {})
        if encoding.get("encode") == DAYS:
            shown = partial(date_text, utc=bool(encoding.get("utc")))
        if encoding.get("encode") == CATEGORICAL:
            cells = [*(Cell(VALUE, value=str(value)) for value in encoding["values"]), Cell(OTHER)]
            probes = [float(code) for code in range(len(cells))]
        else:
            ends = [-math.inf, *sorted({split.threshold for split in splits} - {math.inf, -math.inf}), math.inf]
            cells = [Cell(NUMBERS, low, high) for low, high in pairwise(ends)]
            probes = [float(np.finfo(np.float64).min), *ends[1:-1]]
        lefts = np.stack([split.goes_left(np.array([*probes, math.nan])) for split in splits], axis=1)
        handles = tuple(split.handle for split in splits)
        return Column(self.party, name, (*cells, Cell(MISSING)), handles, lefts, shown=shown)

    def two_classes(self, good: str | None, bad: str | None) -> tuple[str, str]:
        """The classes whose odds a card tells: `bad` is by default the last one, `good` the first of the others.

        Raises:
            BadInput: the model has no such class, or both are one.
        """
        classes = [str(it) for it in self.manifest["classes"]]
        bad = classes[-1] if bad is None else bad
        good = next(it for it in classes if it != bad) if good is None else good
        for option, told in {"--bad": bad, "--good": good}.items():
            if told not in classes or good == bad:
                named = ", ".join(classes)
                raise BadInput(f"{option} {told}: the model's classes are {named}: name two of them, one as bad")
        return good, bad

    def card(self, frame: Frame, good: str, bad: str, bins: Sequence[Path]) -> Card:
        """The label holder's card: its own columns, and those of others by their files of bins, else split by split.

        Scores are points of the odds of `good` to `bad`, of several classes by the difference of their two scores.
        Raises BadInput for a file that does not fit.
        """
        classes = [str(it) for it in self.manifest["classes"]]
        log_odds = np.zeros(len(classes))  # of bad to good, as a sum over the outputs
        log_odds[[classes.index(good), classes.index(bad)]] = -1, 1
        if self.manifest["objective"] in BINARY:
            log_odds = log_odds[1:]
        margin, sides = float(log_odds @ np.array(self.manifest["base_margin"])), defaultdict[str, Sides](dict)
        for tree in self.trees:
            of_tree = log_odds[list(tree.outputs)]
            if not of_tree.any():
                continue  # it is of other classes
            added = {leaf.node: float(of_tree @ leaf.weights) for leaf in tree.leaves}
            margin += added.get(1, 0.0)
            for split in tree.splits:
                sides[split.owner][split.handle] = (-frame.factor * added[2], -frame.factor * added[3])
        columns, files = [it for it in self.columns() if sides[self.party].keys() & set(it.handles)], _tellers(bins)
        if strange := files.keys() - sides.keys():
            party = min(strange)
            raise BadInput(f"{files[party]}: is of {party}, who has no split in trees of these classes: leave it out")
        for party in sorted(sides.keys() - {self.party}):
            columns += self._foreign(party, sides[party], files.get(party))
        return Card(frame.score(margin), tuple(column.with_points(sides[column.party]) for column in columns))

    def _foreign(self, party: str, sides: Sides, bins: Path | None) -> list[Column]:
        """Another party's columns: by its file of bins or, without one, each of its splits for itself."""
        names = read_names(self.folder).get(party, {})
        if bins is None:
            sides_of, lefts = (Cell(VALUE, value="left"), Cell(VALUE, value="right")), np.array([[True], [False]])
            called = {it: f"{party}#{it}" + (f" ({names[it]})" if it in names else "") for it in sorted(sides)}
            return [Column(party, name, sides_of, (handle,), lefts) for handle, name in called.items()]
        with read_handed(bins, BINS_SEED, self, party) as told:
            columns = []
            for number, row in enumerate(told, 1):
                own = tuple(row.handles)
                lefts = np.array([[handle in left for handle in own] for left in row.left], dtype=bool)
                name = f"column {number}" + (f" ({names[own[0]]})" if own[0] in names else "")
                kinds = ((NUMBERS if at < row.ordered else VALUE, at) for at in range(len(lefts)))
                cells = tuple(Cell(kind, at, at + 1, f"bin {at + 1}") for kind, at in kinds)
                columns.append(Column(party, name, cells, own, lefts))
            handles = [handle for column in columns for handle in column.handles]
            if sides.keys() - set(handles) or len(set(handles)) < len(handles) or not all(row.left for row in told):
                raise ValueError("it lacks splits, or has one twice")
        return [column for column in columns if sides.keys() & set(column.handles)]

    def told(self, path: Path | None) -> Card:
        """A feature party's card, with the points that the label holder has written for it; without, with none (NaN).

        Raises:
            BadInput: the file is not of this model, from its label holder to this party.
        """
        untold = (math.nan, math.nan)
        columns = [it.with_points(dict.fromkeys(it.handles, untold)) for it in self.columns()]
        if path is None:
            return Card(0.0, tuple(columns))
        own = {handle: column for column in columns for handle in column.handles}
        with read_handed(path, POINTS_SEED, self, str(self.manifest["label_holder"])) as rows:
            columns = [
                replace(
                    own[row.handles[0]],
                    groups=tuple(map(tuple, row.bins)),
                    points=np.array(row.points),
                    told=None if row.bad_rates is None else np.array(row.bad_rates, dtype=np.float64),
                )
                for row in rows
            ]
            for row, column in zip(rows, columns, strict=True):
                row.check(len(column.cells))
        return Card(0.0, tuple(columns))

    def bins_to_hand(self) -> list[dict[str, Any]]:
        """What a feature party hands the label holder: of each column its splits and bins, by handles."""
        return [
            {
                "handles": column.handles,
                "ordered": sum(cell.kind == NUMBERS for cell in column.cells),
                "left": [[column.handles[place] for place in np.flatnonzero(row)] for row in column.lefts],
            }
            for column in self.columns()
        ]


def _tellers(bins: Sequence[Path]) -> dict[str, Path]:
    """Party → its file of bins."""
    return {str(read_document(path, BINS_SEED).get("from")): path for path in bins}


def hand(path: Path, seed: str, part: Part, to: str, columns: Sequence[Mapping[str, Any]]) -> None:
    """Write a file for a party of the model, for it and for nobody else."""
    about = {"submission": read_job(part.folder)["submission"], "from": part.party, "to": to}
    with cannot("be written", path):
        write_whole(path, document({**about, "columns": columns}, seed, indented=True))


class HandedColumn(strict.Part):
    """A column as a file has it, whoever has written that: of bins `handles`, `ordered` and `left`; else of points."""

    handles: list[int]
    ordered: int = 0
    left: list[list[int]] = []
    bins: list[list[int]] = []
    points: list[float] = []
    bad_rates: list[float | None] | None = None

    def check(self, cells: int) -> None:
        """ValueError unless points and rates are of as many bins, and these of so many cells, each once."""
        rates = self.bins if self.bad_rates is None else self.bad_rates
        if not len(self.bins) == len(self.points) == len(rates) or sorted(chain(*self.bins)) != [*range(cells)]:
            raise ValueError("its bins are not those of the column's cells")


@contextmanager
def read_handed(path: Path, seed: str, part: Part, sender: str) -> Iterator[list[HandedColumn]]:
    """The columns in a file that another party of the model has handed to this one, to be read in the block.

    Raises:
        BadInput: it is damaged, of another model, not from there to here, or not what that party's command writes.
    """
    content = read_document(path, seed)
    for key, value in {"submission": read_job(part.folder)["submission"], "from": sender, "to": part.party}.items():
        if content.get(key) != value:
            raise BadInput(
                f"{path}: {key} is {content.get(key)!r}, not {value!r}: have {sender} write it for this model"
            )
    try:
        yield [HandedColumn.model_validate(row) for row in content["columns"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        fault = strict.faults_of(error, HandedColumn)[0] if isinstance(error, ValidationError) else error
        raise BadInput(f"{path}: does not fit this model ({fault}): have {sender} write it again") from None


def send_points(
    folder: Path, part: Part, card: Card, party: PartyConfig, bins: Sequence[Path], rates: int | None
) -> None:
    """Write the whole points of its bins for each party that has told them.

    `rates`: write bad rates too, in thousandths, of bins with as many records of each class; None: none.

    Raises:
        BadInput: the policy lets no LEAF_WEIGHT go there, or nothing may leave that was counted by labels as they are.
    """
    if LabelRules.of(party.name, party.defences, party.policy).protect:
        raise BadInput(
            f"--send-points: {party.name} protects its labels (noise, or a budget), by which bins were merged: "
            "leave it out"
        )
    for to in _tellers(bins):
        try:
            party.policy.check_emits(party.name, to, ["LEAF_WEIGHT"])
        except Refused as refusal:
            raise BadInput(str(refusal)) from None
        told = card.of(to).columns
        rows = [
            {"handles": it.handles, "bins": it.groups, "points": it.points.tolist()}
            | ({} if rates is None else {"bad_rates": it.rates_of(rates)})
            for it in told
        ]
        hand(folder / f"{to}.points.json", POINTS_SEED, part, to, rows)


@dataclass(frozen=True)
class Records:
    """Records of a table: values (n, features) of own columns, which are `bad` (n,), other parties' sides.

    `bad` is empty where labels are not known. `sides`: (owner, handle) → (n,), who goes left; empty if not known.
    `weights`: (n,) of the label holder's records; None: it has none.
    """

    table: Table
    values: Floats
    bad: Bools
    sides: Mapping[tuple[str, int], Bools]
    weights: Floats | None = None

    def cells(self, part: Part, card: Card) -> list[Ints]:
        """The cell of each record (n,) in each column, the own ones first, of which the records tell it."""
        names = part.manifest["columns"]
        made = [column.places(self.values[:, names.index(column.name)]) for column in card.of(part.party).columns]
        for column in card.columns[len(made) :] if self.sides else ():
            made.append(
                column.placed_by_sides(np.stack([self.sides[column.party, it] for it in column.handles], axis=1))
            )
        return made


def read_records(part: Part, config: TableConfig, classes: Sequence[str], explained: Path | None) -> Records:
    """The records of a table, those of an explained prediction alone if one is given.

    `classes`: the good and the bad one, at the label holder, whose records alone count. Raises BadInput, DataError for
    what does not fit.
    """
    table = table_of_model(part.manifest, config, with_label=part.holds_labels)
    bads, sides = np.zeros(0, dtype=bool), dict[tuple[str, int], Bools]()
    if explained is not None:
        source = TableConfig(path=explained, id=config.id, normalise=config.normalise)
        predicted = read_table(source, with_label=False, missing=None)
        places = table.ids.places_of(predicted.ids)
        if not len(places) or (places < 0).any():
            raise BadInput(f"{explained}: has no record, or one that {table.path} lacks: name the table of it")
        table, sides = table.take(places), _sides_in(explained, part, predicted.rows)
    if part.holds_labels:
        labels = np.array(read_classes(table, str(config.label), part.manifest["classes"]).named(), dtype=object)
        of_both = np.flatnonzero(np.isin(labels, classes))
        bads, table = labels[of_both] == classes[1], table.take(of_both)
        sides = {split: left[of_both] for split, left in sides.items()}
        if bads.all() or not bads.any():
            raise DataError(f"{table.path}: column {config.label!r}: all records have one class, and bins no odds")
    return Records(table, table.features, bads, sides, table.weights)


def _sides_in(path: Path, part: Part, rows: Ints) -> dict[tuple[str, int], Bools]:
    """Who goes left at each other party's split, of the records in these rows of the file."""
    try:
        with cannot("be read", path), pq.ParquetFile(path) as file:
            paths = file.read(columns=["paths.list.element.tree", "paths.list.element.leaf"])["paths"].combine_chunks()
    except (pa.ArrowInvalid, KeyError):
        raise BadInput(
            f"{path}: has no paths: name what predict --explain has written, NAME.explained.parquet"
        ) from None
    flat, shape = paths.flatten(), (len(rows), len(part.trees))
    trees = np.array(flat.field("tree"))
    if len(trees) != math.prod(shape) or (trees.reshape(shape) != [tree.index for tree in part.trees]).any():
        raise BadInput(
            f"{path}: has not one path of each of the {shape[1]} trees for every record: predict with --explain by the "
            "interactive protocol; a one-round prediction has candidates"
        )
    left = np.array(flat.field("leaf")).reshape(shape)[rows] == 2
    splits = ((place, split) for place, tree in enumerate(part.trees) for split in tree.splits)
    return {(it.owner, it.handle): left[:, place] for place, it in splits if it.owner != part.party}
