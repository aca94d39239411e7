"""Messages of a training whose sums are shared: sizes to the dealer, randomness from it, and what is opened by both.

The dealer learns numbers of candidates and of nodes, and the widths of sums, which follow from the job and the number
of records. The nodes of a stage are those that are built and their siblings, whichever of them may be split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treetap.native.rings import MOST_WORDS
from treetap.protocols.growth import TreeSizes, sums_shared, unless_screened
from treetap.protocols.messages import (
    JobSizes,
    MessageRow,
    Series,
    each_stage,
    from_dealer,
    once,
    to_dealer,
    to_earlier,
    to_label_holder,
    with_label_holder,
)
from treetap.trees.ensemble import ROOT

#: The pair of the label holder and the first feature party of a tree, which choose among the winners of all.
ACROSS = ""
#: Most parts of a pair and stage that are opened one after the other; the one after these is used as it comes.
MOST_OPENED = 8
#: Most widths of `DealtSizes`, and bytes of a number with its tag.
_WIDTHS, _NUMBER = 64, 6
#: Most bytes that are dealt for a candidate of a node, in a tournament of any size; and for a stage of few of them.
_CANDIDATE, _STAGE = 7168, 1 << 19
#: Most bytes of a party's name, with its tag.
_NAME = 66
#: Bytes of a numerator and a denominator.
_FRACTION = 2 * 8 * MOST_WORDS


def compared(built: Iterable[int]) -> list[int]:
    """The nodes whose splits are chosen at a stage, in order: those that are built, and their siblings."""
    return sorted({node ^ low for node in built for low in ((0, 1) if node > ROOT else (0,))})


def pairs_of(candidates: Mapping[str, int], *, across: bool = True) -> dict[str, tuple[str, int]]:
    """The pairs of a stage, each with its feature party and the candidates of a node that it chooses among.

    `candidates`: those of a node, by feature party that takes part in the tree, in the order of the job.
    `across`: with a pair that chooses among the winners of several.
    """
    pairs = {party: (party, count) for party, count in candidates.items()}
    return pairs | ({ACROSS: (next(iter(pairs)), len(pairs))} if across and len(pairs) > 1 else {})


def sizes_of_all(sizes: JobSizes, _series: Series) -> int:
    """A number for each feature party, and those of widths."""
    return (len(sizes.members.feature_parties) + _WIDTHS) * _NUMBER


def names_of_pairs(sizes: JobSizes, _series: Series) -> int:
    """The name of each pair, as often as pairs may be opened."""
    return MOST_OPENED * (len(sizes.members.feature_parties) + 1) * _NAME


def dealt_at_stage(sizes: TreeSizes, series: Series) -> int:
    """A seed and corrections for each pair of the receiver, by the candidates of all nodes that are compared."""
    candidates = sum(sizes.announced.values()) or sizes.places  # the label holder's partners', or one's own
    pairs = len(sizes.members.feature_parties) + 1
    return 2 * sizes.built(series.stage) * (candidates + pairs) * _CANDIDATE + pairs * _STAGE


def dealt_again_at_stage(sizes: TreeSizes, series: Series) -> int:
    """As much as is dealt at a stage, as often as pairs may be opened."""
    return MOST_OPENED * dealt_at_stage(sizes, series)


def scores_of_nodes(sizes: TreeSizes, series: Series) -> int:
    """Shares of a fraction for each node that is compared."""
    return 2 * sizes.built(series.stage) * _FRACTION


#: Of every training whose sums are shared.
DEALING = (
    MessageRow("dealt_sizes", to_dealer, once, sizes_of_all, step="make_keys", when=sums_shared),
    MessageRow("correlations", from_dealer, each_stage, dealt_at_stage, step="deal", when=sums_shared),
    MessageRow("opened_pairs", to_dealer, each_stage, names_of_pairs, step="choose_splits", when=sums_shared),
    MessageRow("dealt_again", from_dealer, each_stage, dealt_again_at_stage, step="deal_again", when=sums_shared),
    MessageRow(
        "shares",
        with_label_holder,
        each_stage,
        dealt_at_stage,  # the rounds of a pair open less than is dealt for them
        step="choose_splits",
        also=("choose_shares",),
        when=sums_shared,
    ),
    MessageRow(
        "champion_share",
        to_earlier,
        each_stage,
        scores_of_nodes,
        step="choose_shares",
        when=unless_screened(sums_shared),
    ),
    MessageRow(
        "winner_shares",
        to_label_holder,
        each_stage,
        scores_of_nodes,
        step="apply_splits",
        also=("choose_shares",),  # in a screening
        when=sums_shared,
    ),
)
