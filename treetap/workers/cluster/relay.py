"""Relays of calls between a party and the actors: in the bridge, the one process that speaks to Ray."""

from __future__ import annotations

import importlib
import pickle
import socket
import struct
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import ray
import ray.cloudpickle
from ray.exceptions import OutOfMemoryError, RayError

from treetap.usage import Usage
from treetap.workers.cluster import actor, addresses
from treetap.workers.cluster.board import Board
from treetap.workers.cluster.plan import Plan

#: Seconds within which a process of the cluster takes a connection.
ANSWER_S = 5.0
_SIGNS_SIZE = struct.calcsize(actor.SIGNS)


class Relay(threading.Thread):
    """One incarnation of a worker: makes its actor, passes its calls on one at a time, and ends it with its pipe."""

    def __init__(self, plan: Plan, board: Board, worker: int, life: int, end: socket.socket) -> None:
        super().__init__(name=f"relay-{worker}", daemon=True)
        self._plan, self._board, self._worker, self._life = plan, board, worker, life
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
            if self._actor is not None:
                ray.kill(self._actor)
            self._pipe.close()

    def _serve(self) -> None:
        lack = self._make()
        self._pipe.send_bytes(pickle.dumps(lack))
        if isinstance(lack, str):
            return
        who = f"worker {self._worker} (process {lack['pid']} on node {lack['node']})"
        while True:
            while not self._pipe.poll(self._plan.beat_s):
                self._beat()
            # An argument of more than 100 KiB goes through Ray's object store and is freed there with its reference.
            answer = self._actor.answer.remote(self._pipe.recv_bytes(), who)
            while not ray.wait([answer], timeout=self._plan.beat_s)[0]:
                self._beat()
                if self._pipe.poll():
                    return  # the party sends nothing before it has the answer: it has closed the pipe
            done = memoryview(ray.get(answer))
            self._note(done[:_SIGNS_SIZE])
            self._pipe.send_bytes(done[_SIGNS_SIZE:])

    def _make(self) -> dict[str, Any] | str:
        """Make the actor; returns its report, or what is lacking."""
        config = self._plan.config
        options: dict[str, Any] = {"num_cpus": config.cpus, "resources": config.resources}
        if config.memory is not None:
            options["memory"] = config.memory
        self._actor = remote_class().options(**options).remote()
        report = self._actor.report.remote()
        end = time.monotonic() + config.start_s
        while not ray.wait([report], timeout=min(self._plan.beat_s, max(0.0, end - time.monotonic())))[0]:
            if self._pipe.poll():
                raise EOFError
            if time.monotonic() >= end:
                return _too_little_room(self._plan)
        found: dict[str, Any] = ray.get(report)
        self._node_id = found["node_id"]
        if "missing" not in found:
            found["lacks"] = ray.get(self._actor.prepare.remote(self._plan.backend, self._plan.modules))
        return found

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
        scheduling_strategy="SPREAD",
    )(actor.WorkerActor)


def _too_little_room(plan: Plan) -> str:
    """The error about a cluster that has no room for a worker."""
    config = plan.config
    needs = {"CPU": config.cpus, **({} if config.memory is None else {"memory": config.memory}), **config.resources}
    all_of, free = ray.cluster_resources(), ray.available_resources()
    has = ", ".join(f"{all_of.get(name, 0.0):g} {name} ({free.get(name, 0.0):g} free)" for name in needs)
    each = " and ".join(f"{amount:g} {name}" for name, amount in needs.items())
    nodes = sum(node["Alive"] for node in ray.nodes())
    return (
        f"workers = {plan.workers} need {each} each (cluster.cpus, cluster.memory, cluster.resources), and the cluster "
        f"had no room for all of them within cluster.start_s = {config.start_s:g} s: its {nodes} nodes have {has}; "
        "add nodes, or lower workers or what each needs"
    )


def _how_lost(error: RayError, node_id: str) -> str:
    """Whether the head, the node or the actor alone is gone."""
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
    """Whether a node's own process does not answer: the head learns of its end later."""
    return bool(addresses.why_closed(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", ANSWER_S))
