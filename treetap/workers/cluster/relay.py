"""Relays of calls between a party and the actors, and their room: in the bridge, the one process that speaks to Ray."""

from __future__ import annotations

import importlib
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import ray
import ray.cloudpickle
from ray.exceptions import OutOfMemoryError, RayError
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from treetap.usage import Usage
from treetap.workers.cluster import actor, addresses
from treetap.workers.cluster.board import Board
from treetap.workers.cluster.plan import BOOT_S, Plan

#: Seconds within which a process of the cluster takes a connection.
ANSWER_S = 5.0
#: Seconds between two looks at a worker that is being placed.
LOOK_S = 0.1
_SIGNS_SIZE = struct.calcsize(actor.SIGNS)


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


class Relay(threading.Thread):
    """One incarnation of a worker: makes its actor, passes its calls on one at a time, and ends it with its pipe."""

    def __init__(self, plan: Plan, board: Board, room: Room, worker: int, life: int, end: socket.socket) -> None:
        super().__init__(name=f"relay-{worker}", daemon=True)
        self._plan, self._board, self._room, self._worker, self._life = plan, board, room, worker, life
        self._pipe = Connection(end.detach())
        self._actor: Any = None
        self._node_id = ""
        self._sign: Any = None  # the answer that is awaited

    def run(self) -> None:
        """Serve until the party closes the pipe, or the actor is lost."""
        try:
            self._serve()
        except (EOFError, OSError):
            pass  # the party gave it up
        except RayError as error:
            self._board.lose(self._worker, self._life, _how_lost(error, self._node_id))
        except Exception as error:  # noqa: BLE001 - the party tells its operator
            self._board.lose(self._worker, self._life, f"was lost: {type(error).__name__}: {error}")
        finally:
            self._pipe.close()
            if self._actor is not None:
                with suppress(RayError):  # the cluster has gone, too
                    ray.kill(self._actor)

    def _serve(self) -> None:
        lack = self._make()
        self._pipe.send_bytes(pickle.dumps(lack))
        if isinstance(lack, str):
            return
        who = f"worker {self._worker} (process {lack['pid']} on node {lack['node']})"
        while True:
            while not self._pipe.poll(self._plan.beat_s):
                self._beat()
            # What does not travel with the message is freed in the object store with its reference.
            answer = self._actor.answer.remote(self._pipe.recv_bytes(), who)
            while not ray.wait([answer], timeout=self._plan.beat_s)[0]:
                self._beat()
                if self._pipe.poll():
                    return  # the party sends nothing before it has the answer: it has closed the pipe
            done = memoryview(ray.get(answer))
            self._note(done[:_SIGNS_SIZE])
            self._pipe.send_bytes(done[_SIGNS_SIZE:])

    def _make(self) -> dict[str, Any] | str:
        """Make the actor once there is room for all; returns its report, or what is lacking."""
        if not self._within(self._plan.config.start_s, self._room.reserved):
            return self._room.lack()
        self._actor = remote_class().options(**self._room.options(self._worker)).remote()
        report = self._actor.report.remote()

        def reported() -> bool:
            return bool(ray.wait([report], timeout=0)[0])

        # The head may learn only now that the node is gone on which the worker was to be.
        self._within(BOOT_S, lambda: reported() or not self._room.reserved())
        if not reported() and not self._within(self._plan.config.start_s, self._room.reserved):
            return self._room.lack()
        if not self._within(BOOT_S, reported):
            return f"the cluster has reserved room for worker {self._worker}, but not started it within {BOOT_S:g} s"
        software: dict[str, Any] = ray.get(report)
        self._node_id = software["node_id"]
        if "missing" not in software:
            software["lacks"] = ray.get(self._actor.prepare.remote(self._plan.backend, self._plan.modules))
        return software

    def _within(self, patience_s: float, happened: Callable[[], object]) -> bool:
        """Wait until something has happened, at most `patience_s`; EOFError if the party gives the worker up."""
        end = time.monotonic() + patience_s
        while not happened():
            if time.monotonic() >= end:
                return False
            if self._pipe.poll(LOOK_S):
                raise EOFError
        return True

    def _beat(self) -> None:
        """Note the actor's last sign of life, and ask for another."""
        if self._sign is not None and ray.wait([self._sign], timeout=0)[0]:
            self._note(ray.get(self._sign))
            self._sign = None
        if self._sign is None:
            self._sign = self._actor.signs.options(concurrency_group="signs").remote()

    def _note(self, signs: bytes | memoryview) -> None:
        units, *used = struct.unpack(actor.SIGNS, signs)
        self._board.beat(self._worker, self._life, units, Usage(*used))


def remote_class() -> Any:
    """The class of the actors: it travels by value, is never started again by Ray, and no call is repeated."""
    ray.cloudpickle.register_pickle_by_value(importlib.import_module(actor.__name__))
    return ray.remote(
        max_restarts=0,
        max_task_retries=0,
        concurrency_groups={"signs": 1},
        enable_task_events=False,
    )(actor.WorkerActor)


def _how_lost(error: RayError, node_id: str) -> str:
    """Description of the loss: of the head, the node or the actor alone."""
    head = ray.get_runtime_context().gcs_address
    if why := addresses.why_closed(head, ANSWER_S):
        return f"was lost with its cluster: the head at {head} does not answer ({why})"
    if isinstance(error, OutOfMemoryError) or "running low on memory" in str(error):
        return "was ended because its node is short of memory; it is started again where the cluster has room"
    node = next((node for node in ray.nodes() if node["NodeID"] == node_id), None)
    if node is None or not node["Alive"] or _deserted(node):
        return "was lost with its node, which died or left the cluster; it is started again where there is room"
    return "died and is started again; if it dies again, let each worker reserve more memory (cluster.memory)"


def _deserted(node: dict[str, Any]) -> bool:
    """True if a node's own process does not answer: the head learns of its end later."""
    return bool(addresses.why_closed(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", ANSWER_S))
