"""Workers of a cluster as the driver sees them, one for each shard of records. Only this module speaks to Ray."""

from __future__ import annotations

import importlib
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import ray
import ray.cloudpickle
from ray.exceptions import OutOfMemoryError, RayError
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from treetap.errors import BadInput, Defect, Interrupted
from treetap.usage import SilenceWatch, finish_unit
from treetap.workers.cluster import actor
from treetap.workers.cluster.calls import outcome_of
from treetap.workers.cluster.nodes import encrypted, exposed, fault_of, own_report, why_closed
from treetap.workers.settings import Plan

#: Seconds that a process may take to start and import on a node, and within which one takes a connection.
BOOT_S, ANSWER_S = 60.0, 5.0
#: Seconds that all nodes may take to say what they run.
REPORT_S = 20.0
#: Seconds between two looks at a worker that is being placed.
LOOK_S = 0.1
#: Actors that a worker may lose in one call: what it computes may need more memory than its node has.
MOST_LOSSES = 3
_SIGNS_SIZE = struct.calcsize(actor.SIGNS)


class _Silent(Exception):
    """An actor has finished no unit of work for too long."""


class Shard:
    """One worker: its memory is an actor's, and after a loss another one's.

    Attributes:
        node: the address of the actor's node.
        kept: by key, calls whose effect its memory keeps.
        losses: how actors were lost, in words.
        used: largest memory in MB and processor seconds, of all its actors.
        sent, received: bytes to actors and from them.
    """

    def __init__(self, plan: Plan, room: Any, number: int) -> None:
        """Have an actor made. `room`: a bundle for each worker, spread over the nodes; those of a lost node move."""
        self._plan, self._room, self._number = plan, room, number
        self.node, self.kept, self.losses = "", dict[str, list[bytes]](), list[str]()
        self.used, self.sent, self.received = (0.0, 0.0), 0, 0
        self._make()

    def await_report(self) -> None:
        """Wait until the actor has said what it runs.

        Raises:
            BadInput: it has no room, does not start, or runs something else than this party.
        """
        plan, start_s, report = self._plan, self._plan.config.start_s, self._report

        def reported() -> bool:
            return bool(ray.wait([report], timeout=0)[0])

        # The head may learn only now that the node is gone on which the worker was to be.
        if not _within(BOOT_S, lambda: reported() or not reserved(self._room)):
            raise BadInput(
                f"the cluster has reserved room for worker {self._number}, but not started it within {BOOT_S:g} s"
            )
        if not _within(start_s, reported):
            raise BadInput(_lack(plan))
        software = ray.get(report)
        if "missing" not in software:
            software["lacks"] = self._await(self._actor.prepare.remote(plan.backend, plan.modules))
        unencrypted = plan.config.unencrypted
        fault = exposed(software["node"], unencrypted=unencrypted) or fault_of(software, own_report())
        if fault:
            raise BadInput(fault)
        self.node, self._node_id = str(ip_address(software["node"])), software["node_id"]
        self._name = f"worker {self._number} of the cluster (process {int(software['pid'])} on node {self.node})"

    def ask(self, message: bytes) -> None:
        """Have the actor run a call."""
        self._asked = message
        self._send(message)

    def answer(self) -> Any:
        """What that call returns; where the actor is lost, another one repeats what it has to keep, and the call.

        Raises:
            Interrupted: none can be had, or they are lost again and again.
            Defect: the kernel failed.
        """
        known, anew = len(self.losses), False
        while True:
            try:
                if anew:
                    self._begin_anew()
                return self._receive()
            except (RayError, _Silent) as loss:
                self.losses.append(f"{self._name} {self._how_lost(loss)}")
                if len(self.losses) - known == MOST_LOSSES:
                    raise Interrupted(self.losses[-1]) from loss
                anew = True

    def forget(self, key: str) -> None:
        """Have the memory free what is kept under keys that begin so; do not wait for it."""
        self.kept = {kept: calls for kept, calls in self.kept.items() if not kept.startswith(key)}
        self._actor.forget.remote(key)

    def _make(self) -> None:
        config = self._plan.config
        bundle = PlacementGroupSchedulingStrategy(self._room, placement_group_bundle_index=self._number)
        memory = {} if config.memory is None else {"memory": config.memory}
        options = {"num_cpus": config.cpus, "resources": config.resources, **memory}
        self._actor = remote_class().options(**options, scheduling_strategy=bundle).remote()
        self._report = self._actor.report.remote()
        self._units, self._sign = 0, None  # the sign of life that is awaited
        self._spent = self.used[1]  # by actors before

    def _begin_anew(self) -> None:
        """Have another actor do what this worker has to keep, and begin the call."""
        with suppress(RayError):
            ray.kill(self._actor)
        self._make()
        try:
            self.await_report()
        except BadInput as lack:  # a note, since the words are the actor's
            failure = Interrupted(f"worker {self._number} of the cluster was lost, and no other can take its place")
            failure.add_note(str(lack))
            raise failure from lack
        for calls in self.kept.values():
            for message in calls:
                self._send(message)
                self._receive()
        self._send(self._asked)

    def _send(self, message: bytes) -> None:
        self.sent += len(message)
        # What does not travel with the message is freed in the object store with its reference.
        self._answer = self._actor.answer.remote(message, f"worker {self._number} of the cluster")

    def _receive(self) -> Any:
        data = memoryview(self._await(self._answer))
        self.received += len(data)
        self._note(data[:_SIGNS_SIZE])
        failed, value = outcome_of(bytes(data[_SIGNS_SIZE:]))
        if not failed:
            return value
        # Without its words, which the party would send on as its own: the log has them.
        failure = Defect(f"{self._name} failed ({type(value).__name__}): the log has its words")
        for note in (str(value), *getattr(value, "__notes__", ())):
            failure.add_note(note)
        raise failure

    def _await(self, answer: Any) -> Any:
        """An answer of the actor, which gives signs of life meanwhile, as this process does."""
        watch = SilenceWatch(lambda: self._units, time.monotonic)
        while not ray.wait([answer], timeout=self._plan.beat_s)[0]:
            finish_unit()
            if self._sign is not None and ray.wait([self._sign], timeout=0)[0]:
                self._note(ray.get(self._sign))
                self._sign = None
            if self._sign is None:
                self._sign = self._actor.signs.options(concurrency_group="signs").remote()
            if watch.silent_s() >= self._plan.silence_s:
                raise _Silent
        return ray.get(answer)

    def _note(self, signs: bytes | memoryview) -> None:
        self._units, peak_mb, seconds = struct.unpack(actor.SIGNS, signs)
        self.used = max(self.used[0], peak_mb), self._spent + seconds

    def _how_lost(self, loss: Exception) -> str:
        """Description of the loss: of the actor alone, its node, or the head, without which there is no other one."""
        if isinstance(loss, _Silent):
            return f"finished no unit of work for {self._plan.silence_s:g} s"
        head = ray.get_runtime_context().gcs_address
        if why := why_closed(head, ANSWER_S):
            raise Interrupted(f"{self._name} was lost with its cluster: the head at {head} does not answer ({why})")
        if isinstance(loss, OutOfMemoryError) or "running low on memory" in str(loss):
            return "was ended because its node is short of memory: let each worker reserve more (cluster.memory)"
        node = next((node for node in ray.nodes() if node["NodeID"] == self._node_id), None)
        at = "" if node is None else f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        # the head learns later of the end of a node whose own process does not answer
        if node is None or not node["Alive"] or why_closed(at, ANSWER_S):
            return "was lost with its node, which died or left the cluster"
        return "died: if it dies again, let each worker reserve more memory (cluster.memory)"


def place(plan: Plan) -> list[Shard]:
    """Have all workers made, and wait until each has said what it runs; else `BadInput`."""
    room = placement_group([plan.needs for _ in range(plan.config.workers)], strategy="SPREAD")
    if not _within(plan.config.start_s, lambda: reserved(room)):
        raise BadInput(_lack(plan))
    shards = [Shard(plan, room, number) for number in range(plan.config.workers)]
    try:
        for shard in shards:
            shard.await_report()
    except (RayError, _Silent) as loss:
        raise BadInput(f"a worker of the cluster was lost at its start: {' '.join(str(loss).split())}") from None
    return shards


def reserved(room: Any) -> bool:
    """True if every worker has its bundle on a node that lives."""
    return bool(placement_group_table(room)["state"] == "CREATED")


def remote_class() -> Any:
    """The class of the actors: it travels by value, is never started again by Ray, and no call is repeated."""
    ray.cloudpickle.register_pickle_by_value(importlib.import_module(actor.__name__))
    return ray.remote(
        max_restarts=0,
        max_task_retries=0,
        concurrency_groups={"signs": 1},
        enable_task_events=False,
    )(actor.WorkerActor)


def look(plan: Plan) -> tuple[list[str], list[str]]:
    """Faults and facts of the cluster: what each node says that it runs, in an actor that reserves nothing; room."""
    nodes, own, faults = [node for node in ray.nodes() if node["Alive"]], own_report(), list[str]()
    silent = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        made = remote_class().options(num_cpus=0, scheduling_strategy=there).remote()
        silent[made.report.remote()] = node["NodeManagerAddress"], made
    until = time.monotonic() + REPORT_S
    while silent and (ready := ray.wait([*silent], timeout=max(0.0, until - time.monotonic()))[0]):
        for answer in ready:
            _, made = silent.pop(answer)
            report = ray.get(answer)
            if not (fault := fault_of(report, own)):
                fault = fault_of(report | {"lacks": ray.get(made.prepare.remote(plan.backend, []))}, own)
            faults += [fault] if fault else []
    faults += [f"node {host} of the cluster runs nothing within {REPORT_S:g} s" for host, _ in silent.values()]
    needs, workers, free = plan.needs, plan.config.workers, ray.available_resources()
    room = sum(int(min(node["Resources"].get(name, 0.0) / amount for name, amount in needs.items())) for node in nodes)
    left = ", ".join(f"{free.get(name, 0.0):g} {name}" for name in needs)
    said = f"room for {room} workers of {plan.needs_in_words} each, cluster.workers = {workers}; free now: {left}"
    facts = [f"{len(nodes)} nodes ({', '.join(sorted({node['NodeManagerAddress'] for node in nodes}))})"]
    (facts if room >= workers else faults).append(said)
    return faults, [*facts, "Ray encrypts" if encrypted() else "Ray does not encrypt"]


def _lack(plan: Plan) -> str:
    """The error about a cluster that has too little room."""
    everything, free = ray.cluster_resources(), ray.available_resources()
    has = ", ".join(f"{everything.get(name, 0.0):g} {name} ({free.get(name, 0.0):g} free)" for name in plan.needs)
    nodes = sum(node["Alive"] for node in ray.nodes())
    return (
        f"cluster.workers = {plan.config.workers} need {plan.needs_in_words} each (cluster.cpus, cluster.memory, "
        "cluster.resources), and the cluster had no room for all of them within cluster.start_s = "
        f"{plan.config.start_s:g} s: its {nodes} nodes have {has}; add nodes, or lower the workers or what each needs"
    )


def _within(patience_s: float, happened: Callable[[], bool]) -> bool:
    """Wait until something has happened, at most `patience_s`; True if it has."""
    end = time.monotonic() + patience_s
    while not happened():
        if time.monotonic() >= end:
            return False
        finish_unit()
        time.sleep(LOOK_S)
    return True
