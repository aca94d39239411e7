"""The way by which the sums of a job's nodes are made on a lattice: a function of layout, the same at all parties.

*Queries*: for every node that is built all records are encrypted anew, those outside of it as zeros. A feature party
adds the words of all records in the same bins, so that a second half serves several nodes. *Sets*: the words of the
root serve all nodes of a tree, or as many as secrets may serve; then they come anew. A feature party adds those of a
node's records, whose candidates have second halves of their own.

Queries cost words, sets cost second halves. Nothing here depends on data: only on numbers of records, candidates and
nodes, and on what parties' settings need.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from treetap.errors import BadInput
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.trees.params import TreeParams


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
    """

    own_bins: bool = False
    merged: bool = False
    withheld: bool = False
    kept: bool = False
    once: bool = False
    noised: bool = False

    @classmethod
    def of(
        cls, params: TreeParams, *, merged: bool = False, kept: bool = False, once: bool = False, noised: bool = False
    ) -> Needs:
        """Those of a job with these parameters."""
        return cls(params.bins_per_node, merged, params.withheld, kept, once, noised)

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


def way_of(parameters: HistogramParameters, built: int, needs: Needs) -> Way:
    """The way of a job.

    Args:
        parameters: its sizes, by the key step.
        built: the most nodes of a tree that are summed (`built_nodes`).
        needs: as all parties know them after the key step.

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
    return min(Way, key=lambda way: sum(bytes_of_tree(way, parameters, built, needs)))


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
