"""The way by which the sums of a job's nodes are made on a lattice: a function of layout, the same at all parties.

*Queries*: for every node that is built all records are encrypted anew, those outside of it as zeros. A feature party
adds the words of all records in the same bins, so that a second half serves several nodes. *Sets*: the words of the
root serve all nodes of a tree, or as many as secrets may serve; then they come anew. A feature party adds those of a
node's records, whose candidates have second halves of their own.

Queries cost words, sets cost second halves and their transforms. The way of less processor time and time on the line
is taken. Nothing here depends on data: only on numbers of records, candidates and nodes, on what parties' settings
need, and on the speed that the job states of its line. All of it is in whole numbers, so that all parties choose alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from treetap.errors import BadInput
from treetap.lattice.histogram_parameters import MODULUS_BITS, HistogramParameters
from treetap.lattice.histogram_scheme import blocks_of, first_halves_bytes
from treetap.trees.params import TreeParams

#: Picoseconds of a processor, EPYC with AVX-512: for an encrypted word, the transform of a cell over a block of 4,096
#: records and a candidate's second half (benchmarks/lattice_training.py); for a byte that one party sends another, at
#: both (benchmarks/large_training.py, `--line` of either way). On other processors all are longer by about one factor.
WORD_PS, CELL_PS, HALF_PS, BYTE_PS = 19_000, 6_200_000, 52_000_000, 5_000
#: MiB of the label holder, and of a feature party (docs/operations.md#planning): once; by 1,000 records, 1,000
#: candidates, 10⁶ records × candidates, and 10³ summed nodes of a tree × candidates.
MIB = (229.0, 0.531, 192.0, 0.431, 2.3), (233.0, 0.35, 199.0, 0.773, 0.228)


class Way(StrEnum):
    """A way to sum nodes."""

    QUERIES = "queries"
    SETS = "sets"

    def nodes_per_query(self, parameters: HistogramParameters) -> int:
        """Nodes of a tree that one query serves."""
        return parameters.nodes_per_secret if self is Way.SETS else 1


@dataclass(frozen=True)
class Needs:
    """The settings of a job and of its parties that a way has to fit.

    Attributes:
        own_bins: every node has bins of its own, by the job.
        merged: a feature party merges its bins (`min_cell_records`), in every node others.
        withheld: feature parties do not know which records are in a node.
        kept: second halves of every feature party serve all trees of an attempt.
        once: words for sets may serve all trees of an attempt.
        noised: sums of a feature party have noise, made for sets of records that it sees.
        redrawn: every tree has columns of its own.
    """

    own_bins: bool = False
    merged: bool = False
    withheld: bool = False
    kept: bool = False
    once: bool = False
    noised: bool = False
    redrawn: bool = False

    @classmethod
    def of(
        cls, params: TreeParams, *, merged: bool = False, kept: bool = False, once: bool = False, noised: bool = False
    ) -> Needs:
        """Those of a job with these parameters."""
        return cls(params.bins_per_node, merged, params.withheld, kept, once, noised, params.colsample_bytree < 1)

    @property
    def both_children(self) -> bool:
        """True if a node's sums do not follow from those of its parent and its sibling."""
        return self.own_bins or self.merged or self.noised


def built_nodes(params: TreeParams, needs: Needs) -> int:
    """The most nodes of a tree that are summed."""
    return params.expansion.most_summed(subtract=not needs.both_children)


def once_an_attempt(parameters: HistogramParameters, needs: Needs) -> bool:
    """True if one query serves all trees of an attempt, by sets: secrets may serve all of their nodes."""
    return needs.once and parameters.queries <= parameters.nodes_per_secret


def way_of(parameters: HistogramParameters, built: int, needs: Needs, line: int) -> Way:
    """The way of a job.

    Args:
        parameters: its sizes, by the key step.
        built: the most nodes of a tree that are summed (`built_nodes`).
        needs: as all parties know them after the key step.
        line: bits that pass between two parties in a second, by the job.

    Raises:
        BadInput: neither way gives what is needed.
    """
    if needs.both_children and needs.withheld:
        raise BadInput(
            "scheme = 'lattice': a party's bins of a node follow from records that it is not to know: give all nodes "
            "the bins of the job"
        )
    if needs.both_children:
        return Way.SETS
    if needs.withheld:
        return Way.QUERIES
    return min(Way, key=lambda way: _cost_of_tree(way, parameters, built, needs, line))


def _cost_of_tree(way: Way, parameters: HistogramParameters, built: int, needs: Needs, line: int) -> int:
    """Picoseconds of a processor and of the line for a tree with a feature party, times the line's bits a second.

    Sums of words and first halves cost about as much in either way.
    """
    words, halves = bytes_of_tree(way, parameters, built, needs)
    formed = parameters.candidates * blocks_of(parameters.records) * (built if way is Way.SETS else 1)
    cells = formed // (1 if way is Way.SETS or needs.redrawn else max(1, parameters.queries // built))
    spent = words * 8 // MODULUS_BITS * WORD_PS + cells * CELL_PS + halves // parameters.second_half_bytes * HALF_PS
    return (spent + (words + halves) * BYTE_PS) * line + (words + halves) * 8 * 10**12


def planned_costs(
    way: Way, parameters: HistogramParameters, built: int, needs: Needs, trees: int, counts: Sequence[int]
) -> tuple[int, int, int]:
    """The most bytes of words and of sums for so many trees, and the MiB that the larger party holds.

    `counts`: the candidates of each feature party.
    """
    words, halves = bytes_of_tree(way, parameters, built, needs)
    firsts = built * sum(first_halves_bytes(parameters, count) for count in counts)
    summed, records = sum(counts), parameters.records
    numbers = (1.0, records / 1e3, summed / 1e3, records * summed / 1e6, built * summed / 1e3)
    sums = trees * (firsts + halves * summed // parameters.candidates)
    return trees * words * len(counts), sums, int(np.max(np.dot(MIB, numbers)))


def bytes_of_tree(way: Way, parameters: HistogramParameters, built: int, needs: Needs) -> tuple[int, int]:
    """Bytes of words to a party and of second halves from it, for a tree, with as many candidates as sizes have.

    First halves are the same in either way. Arguments as for `way_of`.
    """
    trees = max(1, parameters.queries // built)
    halves = parameters.candidates * parameters.second_half_bytes
    if way is Way.SETS:
        if once_an_attempt(parameters, needs):
            return parameters.query_bytes // trees, built * halves
        return -(-built // parameters.nodes_per_secret) * parameters.query_bytes, built * halves
    renewals = -(-built // parameters.queries_per_second_half)
    return built * parameters.query_bytes, halves // trees if needs.kept else renewals * halves
