"""How each protocol trains and predicts: the one place where the coordinator knows all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from coordinator import boosting, eini, forest, interactive
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from coordinator.setup import Plan
from treetap.wire.v1 import interactive_pb2, setup_pb2

#: Protocol → what comes between keys and publishing.
TRAIN: dict[str, Callable[[Roster, setup_pb2.JobSpec, Plan, Progress], Awaitable[None]]] = {
    "boosting": boosting.train,
    "forest": forest.train,
}


class Scores(NamedTuple):
    """How a protocol predicts.

    `begin` opens the model everywhere, and everything else that comes before the first block; `score` takes one block
    through, whose number it is given, and returns how many there are.
    """

    begin: Callable[[Roster, interactive_pb2.OpenModel, Progress], Awaitable[interactive_pb2.OpenedModel]]
    score: Callable[
        [Roster, interactive_pb2.OpenModel, interactive_pb2.OpenedModel, int, Progress],
        Awaitable[int],
    ]


PREDICT: dict[str, Scores] = {
    "interactive": Scores(interactive.begin, interactive.score),
    "eini": Scores(eini.begin, eini.score),
    "eini-lattice": Scores(eini.begin, eini.score),
}
