"""Multi-interactive inference: its options."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.protocols.exclusions import Feature
from treetap.protocols.messages import (
    MessageRow,
    ScoringSizes,
    at_most,
    each_stage,
    label_holder_opens,
    label_holder_reports,
    to_feature_parties,
    to_label_holder,
)
from treetap.protocols.registry import Options, PredictionProtocol

#: Order of walking the trees: all at once, or one after the other as the method was published.
FORMS = ("batched", "per-tree")
#: Most levels of a tree, the last of which has leaves only.
MOST_LEVELS = 64


@dataclass(frozen=True)
class InteractiveOptions(Options):
    """Of a prediction, see `treetap.protocols.registry.Options`."""

    choices = {"form": FORMS}
    form: str = ""


@dataclass(kw_only=True)
class InteractiveSizes(ScoringSizes):
    """Sizes of an interactive prediction; stages are the levels at which the label holder asks.

    Attributes:
        directions: of a record in a level, at the label holder: one in each tree, or at each split if a party is away.
    """

    directions: int = 0


def asked_stages(trees: int) -> int:
    """The number of levels at which the label holder may ask; they run on from tree to tree if these come in turn."""
    return MOST_LEVELS * max(trees, 1)


PROTOCOL = PredictionProtocol(
    field="interactive",
    summary="a round of queries per level of the trees",
    options=InteractiveOptions,
    block=65_536,
    sends=(
        MessageRow(
            "route_queries",
            to_feature_parties,
            each_stage,
            at_most(
                lambda sizes: sizes.queries(),
                "The records that stand at each of the receiver's splits of a level, no record twice in a tree.",
            ),
            step="ask_directions",
        ),
        MessageRow(
            "route_answers",
            to_label_holder,
            each_stage,
            at_most(
                lambda sizes: 2 * sizes.directions * (sizes.block + 8) // 8,
                "Two bits for each record of a block in each tree, or at each split if a party is away.",
            ),
            step="answer_directions",
        ),
        MessageRow("asked_directions", label_holder_reports, step="ask_directions"),
    ),
    sends_served=(MessageRow("routed_block", label_holder_reports, step="route_block"),),
    opens_sums=label_holder_opens,
    capabilities=frozenset(
        {
            *(Feature.SERVE, Feature.DEGRADE, Feature.EXPLAIN, Feature.REASONS, Feature.LEFT_MODEL),
            Feature.LOOK_UP,
        }
    ),
)
