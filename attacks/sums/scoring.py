"""The audit's part of the attack on columns: the party's table gives the true bins, and scores what was claimed.

No part of the attack gets anything of this module but the links of its bound, `given_links`. Candidates have no names
on the wire; the audit finds what each one is by computing sums of the true left sets, and comparing them with the
opened ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.networks.schema import png_url
from treetap.attacks.scores import midranks
from treetap.attacks.sums.noised import cuts_of_columns
from treetap.attacks.sums.propagation import Keys, Linked, keys_of
from treetap.attacks.sums.schema import CellsRead, ColumnPicture
from treetap.attacks.sums.sketches import PartySums
from treetap.errors import BadInput
from treetap.tables.reading import Table
from treetap.trees.binning import BinnedTable, Codes, FeatureBins, fit
from treetap.trees.candidates import Kind
from treetap.trees.cell_merging import MergedBins
from treetap.trees.noised_sums import SumNoise

#: Different texts of a column, at most.
MOST_TEXTS = 1_000


@dataclass(frozen=True, eq=False)
class TrueColumns:
    """The bins of a party's columns, and the left sets that its candidates can have.

    Attributes:
        names: of the d columns.
        values: (N, d) as the party's table has them, NaN where missing.
        codes: (N, d) bins; missing values are in a last one.
        bins: the same as their party has them.
        first: (d + 1,) the number of each column's first code among all.
        lefts: (sets, codes) the codes that are left of each possible candidate.
        feature: (sets,) the column of each.
        cuts: (sets,) those that divide a column of numbers in their order, missing values on the right.
        texts: the numbers of columns of categories.
    """

    names: Sequence[str]
    values: Floats = field(repr=False)
    codes: Ints = field(repr=False)
    bins: BinnedTable = field(repr=False)
    first: Ints
    lefts: Bools = field(repr=False)
    feature: Ints
    cuts: Bools
    texts: frozenset[int]

    @classmethod
    def of(cls, table: Table, max_bin: int) -> TrueColumns:
        """The columns of a table in the common order, in which columns of text are numbered."""
        texts = {
            number: len(table.categories[name].values)
            for number, name in enumerate(table.columns)
            if name in table.categories and not table.categories[name].of_dates
        }
        return cls.of_numbers(table.columns, table.features, max_bin, texts, table.cuts)

    @classmethod
    def of_numbers(
        cls,
        names: Sequence[str],
        values: Floats,
        max_bin: int,
        texts: Mapping[int, int] | None = None,
        listed: Mapping[str, Sequence[float]] | None = None,
    ) -> TrueColumns:
        """Columns (N, d) of numbers; `texts`: the number of one of categories → how many these are.

        `listed`: cuts that the party lists, by column; the others are quantiles.
        """
        codes, features, sizes, texts = [], [], [], texts or {}
        for number, name in enumerate(names):
            column = values[:, number]
            if number in texts:
                if texts[number] > MOST_TEXTS:
                    raise BadInput(
                        f"[[victim]] truth: column {name!r} holds {texts[number]} texts, at most {MOST_TEXTS}: "
                        "name the party's columns in columns = …"
                    )
                size, code = texts[number], np.where(np.isnan(column), texts[number], column)
                features.append(FeatureBins(np.empty(0), bool(np.isnan(column).any()), size, Kind.ONE_HOT))
            else:
                bins = fit(column, max_bin, name, may_be_constant=True)
                bins = replace(bins, cuts=np.array(listed[name])) if listed and name in listed else bins
                features.append(bins)
                size, code = bins.n_bins, bins.codes(column)
            codes.append(code.astype(np.int64))
            sizes.append(size)
        first = np.concatenate([[0], np.cumsum([size + 1 for size in sizes])]).astype(np.int64)
        lefts, feature, cuts = [], [], []
        for number, size in enumerate(sizes):
            occurs = np.bincount(codes[number].astype(np.int64), minlength=size + 1) > 0
            seen = set[bytes]()
            for here, cut in _left_sets(size, missing=bool(occurs[size]), text=number in texts):
                if (same := here[occurs].tobytes()) in seen:
                    continue  # of these records it is a set that is there
                seen.add(same)
                row = np.zeros(int(first[-1]), dtype=bool)
                row[first[number] : first[number + 1]] = here
                lefts.append(row)
                feature.append(number)
                cuts.append(cut)
        return cls(
            names,
            values,
            stacked := np.stack(codes, axis=1),
            BinnedTable(stacked, features),
            first,
            np.array(lefts, dtype=bool).reshape(-1, int(first[-1])),
            np.array(feature, dtype=np.int64),
            np.array(cuts, dtype=bool),
            frozenset(texts),
        )

    def keys(self, tree: PartySums) -> Keys:
        """A key (sets,) of the sums of each possible candidate over all nodes of a tree."""
        if tree.least:
            return _key(self.sums(tree))
        # keys of sums are sums of keys: of each record that of its values in all of its nodes
        of_record = np.zeros(len(self.codes), dtype=np.uint64)
        for node, rows in enumerate(tree.drawn):
            of_record[rows] += keys_of(tree.values[rows], node)
        cells = np.zeros(self.lefts.shape[1], dtype=np.uint64)
        for first, codes in zip(self.first, self.codes.T, strict=False):
            np.add.at(cells, first + codes, of_record)
        return np.asarray(np.where(self.lefts, cells, np.uint64(0)).sum(axis=1))

    def sums(self, tree: PartySums) -> Ints:
        """The sums (nodes, sets, S) of each possible candidate in all nodes of a tree."""
        sums = np.zeros((len(tree.nodes), len(self.lefts), tree.values.shape[1]), dtype=np.int64)
        lefts = self.lefts.astype(np.int64)
        merged = MergedBins(self.bins, np.arange(len(self.names)), tree.least) if tree.least else None
        for node, rows in enumerate(tree.drawn):
            codes: Codes = self.codes[rows]
            if merged is not None:
                merged.see(tree.nodes[node], rows)
                codes = merged.codes(tree.nodes[node], rows)
            cells = np.zeros((self.lefts.shape[1], tree.values.shape[1]), dtype=np.int64)
            for column in range(self.codes.shape[1]):
                np.add.at(cells, self.first[column] + codes[:, column], tree.values[rows])
            sums[node] = lefts @ cells
        return sums


def _left_sets(size: int, *, missing: bool, text: bool) -> list[tuple[Bools, bool]]:
    """The left sets of a column of `size` bins, over these and missing values; and whether each is a cut of numbers.

    A column of text is one of categories in whatever way: one against the rest, one alone, or numbered.
    """
    codes = np.arange(size + 1)
    sides = (False, True) if missing else (False,)
    last = size if missing else size - 1
    sets = [((codes <= cut) | (left & (codes == size)), not left and not text) for left in sides for cut in range(last)]
    if text:
        ones = [codes == category for category in range(size)]
        sets += [(one, False) for one in ones]
        sets += [(~one & ((codes < size) | left), False) for left in (False, True) for one in ones]
    return sets


def _key(sums: Ints) -> Keys:
    """A key of sums (nodes, candidates, S) of each candidate."""
    return keys_of(np.ascontiguousarray(sums.transpose(1, 0, 2)).reshape(sums.shape[1], -1))


@dataclass(frozen=True, eq=False)
class Truth:
    """The true columns, and which of the possible left sets each place of each tree has.

    Attributes:
        equal: of each tree (candidates, sets): the sums are the same, or with noise the nearest ones.
        cuts_alone: links are given of cuts alone: the party merges bins, or its sums have noise.
    """

    columns: TrueColumns
    equal: Sequence[Bools] = field(repr=False)
    cuts_alone: bool

    @classmethod
    def of(cls, columns: TrueColumns, trees: Sequence[PartySums], party: str) -> Truth:
        """Compare the sums of the true columns with the opened ones.

        Raises:
            BadInput: the table is not the one that the party trained on, as most sums show.
        """
        equal = [_key(tree.lefts)[:, None] == columns.keys(tree)[None] for tree in trees]
        _check_known(party, float(np.mean([of_tree.any(axis=1).mean() for of_tree in equal])))
        return cls(columns, equal, any(tree.least for tree in trees))

    @classmethod
    def of_noised(
        cls, columns: TrueColumns, trees: Sequence[PartySums], noises: Sequence[SumNoise], party: str
    ) -> Truth:
        """Give the cuts of each column their places in each tree (`noised_links`); `noises`: of each tree.

        Raises:
            BadInput: most sums are farther from any column's than noise makes them.
        """
        equal, linked = [], []
        own = [np.flatnonzero(columns.cuts & (columns.feature == column)) for column in range(len(columns.names))]
        own = [sets for sets in own if len(sets)]
        for tree, noise in zip(trees, noises, strict=True):
            unit = np.sqrt(float(noise.variance)) * np.array(noise.bounds, dtype=np.float64)
            offered, true = (
                (sums[..., : len(unit)] / unit).transpose(1, 0, 2).reshape(sums.shape[1], -1)
                for sums in (tree.lefts, columns.sums(tree))
            )
            total = (tree.totals[:, : len(unit)] / unit).reshape(-1)
            cells = [np.diff(np.vstack([true[sets], total]), axis=0, prepend=0) for sets in own]
            placed = cuts_of_columns(offered, cells, total)
            equal.append(np.zeros((tree.candidates, len(columns.lefts)), dtype=bool))
            for sets, places in zip(own, placed, strict=True):
                if places is not None:
                    equal[-1][places, sets] = True
            linked += [places is not None for places in placed]
        # trees may draw columns, and have candidates beside cuts
        share = np.mean([of_tree.any(axis=1).mean() for of_tree in equal])
        _check_known(party, float(max(np.mean(linked), share)))
        return cls(columns, equal, cuts_alone=True)

    def given_links(self) -> tuple[Ints, list[Ints]]:
        """True links: each possible left set has its places, and cuts of a column of numbers are a chain.

        With `cuts_alone` only those: of merged bins a candidate by itself does not show where its border is in a node.
        """
        places = np.stack([np.where(of_tree.any(axis=0), of_tree.argmax(axis=0), -1) for of_tree in self.equal])
        offered = np.flatnonzero((places >= 0).any(axis=0) & (self.columns.cuts | (not self.cuts_alone)))
        feature, cuts = self.columns.feature[offered], self.columns.cuts[offered]
        chains = [np.flatnonzero(cuts & (feature == number)) for number in range(len(self.columns.names))]
        chains += [np.array([single]) for single in np.flatnonzero(~cuts)]
        return places[:, offered], [chain for chain in chains if len(chain)]

    def named(self, linked: Linked) -> list[Named]:
        """Each chain with the column that most of its candidates are of, and their left sets there."""
        votes = np.zeros((linked.places.shape[1], len(self.columns.lefts)), dtype=np.int64)
        for row, equal in zip(linked.places, self.equal, strict=True):
            there = np.flatnonzero(row >= 0)
            votes[there] += equal[row[there]]
        result = []
        for chain in linked.chains:
            of_columns = np.stack(
                [
                    votes[chain][:, self.columns.feature == c].max(axis=1, initial=0)
                    for c in range(self.columns.codes.shape[1])
                ]
            )
            column = int(of_columns.sum(axis=1).argmax())
            inside = np.where(self.columns.feature == column, votes[chain], 0)
            best = inside.argmax(axis=1)
            strongest = votes[chain].max(axis=1)
            # one whose sums are mostly those of another column's sets is not of this column
            sets = np.where(2 * inside.max(axis=1) > strongest, best, -1)
            result.append(Named(column, sets))
        return result


def _check_known(party: str, known: float) -> None:
    """Raise BadInput where less than half of the opened sums are of columns of the party's table."""
    if known < 1 / 2:
        raise BadInput(
            f"[[victim]] {party}: {1 - known:.0%} of the sums that the label holder opened are of no column of "
            "truth = …: it is not the table that the party trained on, or lacks columns of it"
        )


@dataclass(frozen=True, eq=False)
class Named:
    """A chain as the audit knows it: its column, and the left set of each candidate, −1: of another column."""

    column: int
    sets: Ints

    def cells(self, columns: TrueColumns) -> Bools:
        """(cells, codes) the codes of the column in each cell of the chain; none where a border is another column's."""
        start, end = columns.first[self.column], columns.first[self.column + 1]
        lefts = columns.lefts[self.sets, start:end]
        none, every = np.zeros((1, end - start), dtype=bool), np.ones((1, end - start), dtype=bool)
        upper, lower = np.concatenate([lefts, every]), np.concatenate([none, lefts])
        cells: Bools = upper & ~lower
        wrong = np.concatenate([self.sets < 0, [False]]) | np.concatenate([[False], self.sets < 0])
        cells[wrong] = False
        return cells


def cells_read(claimed: Ints, chains: Sequence[Named], columns: TrueColumns) -> CellsRead:
    """The score of claims (N, chains): the cell of its chain in which each record is, −1: no claim.

    A right claim places a record in its bin if the cell holds one bin.
    """
    placed = np.zeros(columns.codes.shape, dtype=bool)
    claims = wrong = 0
    for number, chain in enumerate(chains):
        rows = np.flatnonzero(claimed[:, number] >= 0)
        cells, codes = chain.cells(columns), columns.codes[:, chain.column]
        occurs = np.bincount(codes, minlength=cells.shape[1]) > 0
        right = cells[claimed[rows, number], codes[rows]]
        single = (cells & occurs).sum(axis=1) == 1
        claims += len(rows)
        wrong += int((~right).sum())
        placed[rows[right & single[claimed[rows, number]]], chain.column] = True
    return CellsRead(placed=float(placed.mean()) if placed.size else 0.0, claims=claims, wrong=wrong)


def cells_guessed(claimed: Ints, chains: Sequence[Named], columns: TrueColumns) -> Ints:
    """The bins (N, d) that claims (N, chains) amount to: the most frequent one of each claimed cell; -1: no claim.

    Of several chains on one column the finest counts.
    """
    guessed = np.full(columns.codes.shape, -1, dtype=np.int64)
    for number, chain in sorted(enumerate(chains), key=lambda it: len(it[1].sets)):
        cells = chain.cells(columns)
        sizes = np.bincount(columns.codes[:, chain.column], minlength=cells.shape[1])
        bins = np.where(cells.any(axis=1), np.where(cells, sizes, -1).argmax(axis=1), -1)
        rows = np.flatnonzero(claimed[:, number] >= 0)
        rows = rows[bins[claimed[rows, number]] >= 0]
        guessed[rows, chain.column] = bins[claimed[rows, number]]
    return guessed


def places_expected(positions: Sequence[Floats], chains: Sequence[Named], by_left_sets: Floats) -> Floats:
    """The expected place (N, d) of each record in each column, of several chains on one column that of the finest.

    `positions`: of each chain (N,). `by_left_sets`: places in columns of no chain. Each column has a unit of its own.
    """
    places = by_left_sets.copy()
    for place, chain in sorted(zip(positions, chains, strict=True), key=lambda it: len(it[1].sets)):
        if (chain.sets >= 0).any() and np.ptp(place) > 0:
            places[:, chain.column] = place
    return places


def links_right(chains: Sequence[Named], columns: TrueColumns) -> float | None:
    """The share of neighbours in chains between which one bin lies; None without any."""
    neighbours = right = 0
    for chain in chains:
        inner = chain.cells(columns)[1:-1]
        codes = columns.codes[:, chain.column]
        occurs = np.bincount(codes, minlength=inner.shape[1]) > 0
        neighbours += len(inner)
        right += int(((inner & occurs).sum(axis=1) == 1).sum())
    return right / neighbours if neighbours else None


def best_column(
    positions: Sequence[Floats], chains: Sequence[Named], columns: TrueColumns, pictured: int
) -> tuple[str, float, ColumnPicture] | None:
    """The column of numbers whose order was read best: name, Spearman's correlation, picture.

    `positions`: of each chain (N,) the expected place of each record.
    """
    best: tuple[float, int, Floats] | None = None
    for place, chain in zip(positions, chains, strict=True):
        values = columns.values[:, chain.column]
        here = ~np.isnan(values)
        if (chain.sets >= 0).sum() < 2 or here.sum() < 2 or np.ptp(values[here]) == 0 or np.ptp(place[here]) == 0:
            continue
        ranked = np.stack([midranks(place[here]), midranks(values[here])], axis=1)
        correlation = float(np.asarray(np.corrcoef(ranked, rowvar=False))[1, 0])
        if best is None or correlation > best[0]:
            best = correlation, chain.column, place
    if best is None:
        return None
    correlation, column, place = best
    values = columns.values[:, column]
    picture = ColumnPicture(truth=_pixels(values, pictured), read=_pixels(place, pictured))
    return columns.names[column], correlation, picture


def _pixels(values: Floats, pictured: int) -> str:
    """Ranks of the first records as grey pixels, row by row; missing values are white."""
    side = int(np.sqrt(min(len(values), pictured)))
    part = values[: side * side]
    ranks = np.unique(part, return_inverse=True)[1].reshape(-1).astype(np.float32)
    shades = np.where(np.isnan(part), 1.0, ranks / max(float(ranks.max(initial=0)), 1.0))
    return png_url(shades.reshape(1, side, side).astype(np.float32))
