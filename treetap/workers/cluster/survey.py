"""A survey of a cluster before a party uses it: whether it answers, what its nodes run, and how many workers fit.

It is made by a child process, since a driver of Ray ends its process when the cluster is gone. It reserves nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from treetap.process.children import SPAWN, end, settle, spawn
from treetap.workers.cluster import addresses
from treetap.workers.cluster.bridge import why_unconnected
from treetap.workers.cluster.plan import Plan
from treetap.workers.cluster.report import fault_of, own_report

#: Seconds that nodes may take to say what they run: each starts a process for it.
REPORT_S = 20.0


@dataclass
class Survey:
    """Findings in words: faults, by which workers cannot be made, and facts."""

    faults: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)


def survey(plan: Plan, within_s: float) -> Survey:
    """Ask the cluster of a plan. Within `within_s` seconds there is an answer, or that it is missing is a fault."""
    ours, theirs = SPAWN.Pipe()
    process = spawn(_survey, (theirs, plan), "cluster-survey")
    theirs.close()
    try:
        if ours.poll(within_s):
            return Survey(**json.loads(ours.recv_bytes()))
        late = f"cluster.address: {plan.config.address} has not said within {within_s:g} s what its nodes run"
    except EOFError:
        late = f"the connection to the cluster {plan.config.address} was lost while its nodes were asked"
    finally:
        end(process)
        ours.close()
    return Survey(faults=[late])


def _survey(pipe: Connection, plan: Plan) -> None:
    """In the child: connect, ask, send."""
    settle()
    heard = Survey()
    if lack := why_unconnected(plan, SimpleNamespace()):
        heard.faults.append(lack)
    else:
        import ray

        nodes = [node for node in ray.nodes() if node["Alive"]]
        _ask(plan, nodes, heard)
        _count(plan, nodes, ray.available_resources(), heard)
    pipe.send_bytes(json.dumps(asdict(heard)).encode())


def _ask(plan: Plan, nodes: list[dict[str, Any]], heard: Survey) -> None:
    """Have each node report its software, in an actor that reserves nothing."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from treetap.workers.cluster.relay import remote_class

    # An actor on each node, which a node without treetap can run too.
    actors = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        actor = remote_class().options(num_cpus=0, scheduling_strategy=there).remote()
        actors[actor.report.remote()] = (node["NodeManagerAddress"], actor)
    until, own, silent = time.monotonic() + REPORT_S, own_report(), dict(actors)
    while silent and (ready := ray.wait([*silent], timeout=max(0.0, until - time.monotonic()))[0]):
        for answer in ready:
            _, actor = silent.pop(answer)
            report = ray.get(answer)
            if not (fault := fault_of(report, own)):
                fault = fault_of(report | {"lacks": ray.get(actor.prepare.remote(plan.backend, []))}, own)
            heard.faults += [fault] if fault else []
    heard.faults += [f"node {host} of the cluster runs nothing within {REPORT_S:g} s" for host, _ in silent.values()]
    heard.facts.append(f"{len(nodes)} nodes ({', '.join(sorted({host for host, _ in actors.values()}))})")
    for _, actor in actors.values():
        ray.kill(actor)


def _count(plan: Plan, nodes: list[dict[str, Any]], free: dict[str, float], heard: Survey) -> None:
    """Compare what the workers need with what the cluster has."""
    needs = plan.needs
    room = sum(int(min(node["Resources"].get(name, 0.0) / amount for name, amount in needs.items())) for node in nodes)
    left = ", ".join(f"{free.get(name, 0.0):g} {name}" for name in needs)
    said = f"room for {room} workers of {plan.needs_in_words} each, workers = {plan.workers}; free now: {left}"
    (heard.facts if room >= plan.workers else heard.faults).append(said)
    heard.facts.append("Ray encrypts" if addresses.encrypted() else "Ray does not encrypt")
