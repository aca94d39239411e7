"""How each protocol trains: the one place where the coordinator knows all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from coordinator import boosting, forest
from coordinator.progress import Progress
from coordinator.roster import Roster
from coordinator.setup import Plan
from treetap.wire.v1 import setup_pb2

#: Protocol → what comes between keys and publishing.
TRAIN: dict[str, Callable[[Roster, setup_pb2.JobSpec, Plan, Progress], Awaitable[None]]] = {
    "boosting": boosting.train,
    "forest": forest.train,
}
