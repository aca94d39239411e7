"""Room for all workers of a party in a cluster, reserved as a whole: its lack is known before a process starts."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from treetap.workers.cluster.plan import Plan


class Room:
    """A placement group of Ray: a bundle per worker, spread over the nodes; Ray moves the bundles of a lost node."""

    def __init__(self, plan: Plan) -> None:
        """Ask for it; the cluster may have to grow first."""
        self._plan = plan
        self._group = placement_group([plan.needs for _ in range(plan.workers)], strategy="SPREAD")

    def reserved(self) -> bool:
        """True if every worker has its bundle on a node that lives."""
        return bool(placement_group_table(self._group)["state"] == "CREATED")

    def options(self, worker: int) -> dict[str, Any]:
        """Options of the actor of a worker: its bundle, and all of it."""
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=worker)
        config = self._plan.config
        memory = {} if config.memory is None else {"memory": config.memory}
        return {"num_cpus": config.cpus, "resources": config.resources, **memory, "scheduling_strategy": strategy}

    def lack(self) -> str:
        """The error about a cluster that has too little room."""
        plan, all_of, free = self._plan, ray.cluster_resources(), ray.available_resources()
        has = ", ".join(f"{all_of.get(name, 0.0):g} {name} ({free.get(name, 0.0):g} free)" for name in plan.needs)
        nodes = sum(node["Alive"] for node in ray.nodes())
        return (
            f"workers = {plan.workers} need {plan.needs_in_words} each (cluster.cpus, cluster.memory, "
            "cluster.resources), and the cluster had no room for all of them within cluster.start_s = "
            f"{plan.config.start_s:g} s: its {nodes} nodes have {has}; add nodes, or lower workers or what each needs"
        )
