"""Claims on the columns of other parties, scored against these parties' own tables.

The truth is here alone: what makes the claims (`treetap.attacks.pivodl.column_claims`) is given a view and own labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from treetap.arrays import Floats, Ints
from treetap.attacks.pivodl.bin_domains import UNPLACED
from treetap.attacks.pivodl.column_claims import Onlooker, SourceClaims, claims
from treetap.attacks.pivodl.evidence import SharedLabelEvidence
from treetap.attacks.pivodl.schema import SourceColumns, SourceFigures
from treetap.attacks.verdict import compared_cells, compared_places
from treetap.attacks.view.pivodl_view import PivodlView
from treetap.errors import DataError
from treetap.tables.reading import Table
from treetap.trees.binning import bin_table

_READ = "all that it read"
_WHY_NOT = "this needs two classes, and the labels that the reader has itself"


def true_columns(views: Mapping[str, PivodlView], tables: Mapping[str, Table]) -> dict[str, Ints]:
    """Party → the bins (N, d) of its columns, as the job makes them of its own table.

    A table that cannot be put in bins has none, and nothing is scored by it.
    """
    columns = {}
    for name, view in views.items():
        if (table := tables.get(name)) is not None and table.columns:
            try:
                bins = bin_table(table.features, table.columns, view.params.max_bin)
            except DataError:
                continue
            columns[name] = bins.codes.astype(np.int64)
    return columns


def source_columns(evidence: SharedLabelEvidence) -> SourceColumns:
    """The attack of one party on the columns of all others, and what of it is right."""
    view, labels = evidence.view, evidence.truth
    attacker = Onlooker(view, evidence.records, None if labels is None else labels[view.own])
    others = np.setdiff1d(np.arange(evidence.records), view.own)
    sources: dict[str, SourceFigures] = {}
    reasons: dict[str, str] = {}
    for source, claimed in claims(attacker).items():
        truth, why = evidence.columns.get(source), []
        if truth is None:
            why.append("not scored: no table of this party is given that can be put in the job's bins")
        elif not np.array_equal(truth[view.own], claimed.placed[view.own]):
            truth = None
            why.append("not scored: its table has other bins than those that it sent")
        if claimed.opened and not attacker.reads_sums:
            why.append(f"opened sums are not attacked: {_WHY_NOT}")
        sources[source] = scored(claimed, view.own, others, truth)
        reasons |= {source: "; ".join(why)} if why else {}
    return SourceColumns(sources=sources, reasons=reasons)


def scored(claimed: SourceClaims, own: Ints, others: Ints, truth: Ints | None) -> SourceFigures:
    """Claims on one source, of records that the attacker does not label; by its true codes (N, d) the wrong ones."""
    placed, by_left_sets = claimed.placed[others], claimed.by_left_sets[others]
    true, possible = None if truth is None else truth[others], [it[others] for it in claimed.possible]
    best, rank = (None, None) if true is None else best_column(claimed.expected[others], true)
    return SourceFigures(
        records=len(others),
        columns=placed.shape[1],
        cells=placed.size,
        received=len(own) * placed.shape[1],
        by_left_sets=int((by_left_sets != UNPLACED).sum()),
        by_left_sets_wrong=_wrong(by_left_sets, true),
        placed=int((placed != UNPLACED).sum()),
        wrong=_wrong(placed, true),
        opened=claimed.opened,
        linked=claimed.linked,
        contradictions=claimed.contradictions,
        best_column=best,
        rank_correlation=rank,
        compared=None if true is None else compared_cells({_READ: placed}, true, "shared", possible),
        explained=None
        if true is None
        else compared_places({_READ: claimed.expected[others]}, true, range(true.shape[1]), "shared"),
    )


def _wrong(placed: Ints, true: Ints | None) -> int | None:
    return None if true is None else int(((placed != UNPLACED) & (placed != true)).sum())


def best_column(expected: Floats, true: Ints) -> tuple[int | None, float | None]:
    """The column whose expected bins (n, d) are most like the true ones, and their rank correlation (Spearman's).

    None where no column differs between records, in truth or as expected.
    """
    ranks = {}
    for column in range(true.shape[1]):
        one, other = _ranked(expected[:, column]), _ranked(true[:, column])
        if len(one) and one.std() > 0 and other.std() > 0:
            ranks[column] = float(np.corrcoef(one, other)[0, 1])
    best = max(ranks, key=ranks.__getitem__, default=None)
    return best, None if best is None else ranks[best]


def _ranked(values: npt.NDArray[np.number]) -> Floats:
    """Mean ranks; equal values have the same."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(times) - (times - 1) / 2)[place.reshape(-1)])
