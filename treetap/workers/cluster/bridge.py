"""The bridge: a child process of the party that is the driver of Ray, and relays the calls of all workers.

A driver of Ray serves ports without asking who calls, takes over signals and logging, and ends its process when the
cluster is gone. None of that may happen to a party; the bridge holds no key and nothing but what it relays.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from treetap.process.children import SPAWN, end, settle, spawn
from treetap.workers.cluster import addresses
from treetap.workers.cluster.board import Board
from treetap.workers.cluster.plan import BOOT_S, INLINE, Plan

#: A request for an actor: the worker and the number of its incarnation; the end of its pipe comes with it.
_REQUEST = struct.Struct("<QQ")
_BOOTING, _CONNECTING, _CONNECTED, _FAILED = range(4)
#: Seconds between two attempts to reach the head.
RETRY_S = 0.2
#: Seconds that actors may take to be ended in good order when the party stops.
FAREWELL_S = 3.0


class Bridge:
    """Parent's end of the bridge."""

    def __init__(self, plan: Plan, board: Board) -> None:
        self._config, self._patience_s = plan.config, plan.silence_s / 2
        self._control, theirs = socket.socketpair()
        self._phase = SPAWN.RawValue(ctypes.c_int, _BOOTING)
        self._beat = SPAWN.RawValue(ctypes.c_double, 0.0)
        self._process = spawn(_run, (theirs, plan, board, self._phase, self._beat), "cluster-bridge")
        theirs.close()
        self._since = time.monotonic()  # of its start, then of its connecting
        self._seen_connecting = False
        self._loss = ""
        self._killed = False

    @property
    def usable(self) -> bool:
        """True if actors can be asked for: it is alive, has not failed to connect, and is not suspended."""
        suspended = self.connected and time.monotonic() - self._beat.value > self._patience_s
        return self.alive and self._phase.value != _FAILED and not suspended

    @property
    def alive(self) -> bool:
        """True if it has not ended, and was not killed."""
        return not self._killed and self._process.is_alive()

    def open(self, worker: int, life: int) -> socket.socket:
        """Have an actor made; returns the pipe to it. Its first message is what the actor reports, or what lacks."""
        ours, theirs = socket.socketpair()
        with theirs, suppress(OSError):  # the bridge has ended: the pipe ends at once
            socket.send_fds(self._control, [_REQUEST.pack(worker, life)], [theirs.fileno()])
        return ours

    def late(self) -> str:
        """Why the bridge has to be given up by now; empty if it need not be."""
        if self._phase.value == _CONNECTING and not self._seen_connecting:
            self._since, self._seen_connecting = time.monotonic(), True
        waited = time.monotonic() - self._since
        if self._phase.value == _CONNECTING and waited > self._config.start_s:
            return (
                f"cluster.address: {self._config.address} takes connections, but no cluster of Ray answered there "
                f"within cluster.start_s = {self._config.start_s:g} s"
            )
        if self._phase.value == _BOOTING and waited > BOOT_S + self._config.start_s:
            return f"the process that connects to the cluster has not started within {BOOT_S:g} s"
        return ""

    @property
    def connected(self) -> bool:
        """True if it has connected to the cluster."""
        return bool(self._phase.value == _CONNECTED)

    def loss(self) -> str:
        """Description of how all actors were lost with this bridge, once it has ended."""
        if not self._loss:
            self._loss = self._find_loss()
        return self._loss

    def kill(self) -> None:
        """Kill it; the cluster ends its actors."""
        self._killed = True
        self._process.kill()

    def close(self, patience_s: float) -> None:
        """End it, with its actors; it is killed if that takes longer than `patience_s`."""
        self._control.close()
        self._process.join(patience_s)
        end(self._process)

    def _find_loss(self) -> str:
        address = self._config.address
        if address != "auto" and (why := addresses.why_closed(address, 0.5)):
            return f"was lost with its cluster: the head at {address} no longer answers ({why})"
        self._process.join(1.0)
        return (
            f"was lost with the connection to the cluster {address}: the process that holds it ended with status "
            f"{self._process.exitcode}"
        )


def _run(control: socket.socket, plan: Plan, board: Board, phase: Any, beat: Any) -> None:
    """The bridge's life: connect, then make an actor for every request until the party closes the control socket.

    `beat`: the time of its last sign of life, on the machine's monotonic clock.
    """
    settle()
    # A service manager signals every process of a unit. The party ends this one, and Ray would log where it stood.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # Ray prints there what the party names itself
    lack = why_unconnected(plan, phase)
    beat.value = time.monotonic()
    threading.Thread(target=_beat_on, args=(beat, plan.beat_s), daemon=True).start()
    phase.value = _FAILED if lack else _CONNECTED
    if lack:
        for _, _, pipe in _requests(control):
            with Connection(pipe.detach()) as connection:
                connection.send_bytes(pickle.dumps(lack))
        return
    import ray

    from treetap.workers.cluster.relay import Relay, Room

    room = Room(plan)
    for worker, life, pipe in _requests(control):
        Relay(plan, board, room, worker, life, pipe).start()
    ray.shutdown()
    os._exit(0)  # not waiting for threads that wait for Ray


def _beat_on(beat: Any, every_s: float) -> None:
    while True:
        beat.value = time.monotonic()
        time.sleep(every_s)


def _requests(control: socket.socket) -> Iterator[tuple[int, int, socket.socket]]:
    """The party's requests for actors, until it closes the control socket."""
    while True:
        request, pipes, *_ = socket.recv_fds(control, _REQUEST.size, 1)
        if not request:
            return
        worker, life = _REQUEST.unpack(request)
        yield worker, life, socket.socket(fileno=pipes[0])


def why_unconnected(plan: Plan, phase: Any) -> str:
    """Connect to the cluster; returns why that failed, or an empty text."""
    config = plan.config
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_AUTO_CONNECT": "0",  # a late call after the end would start a cluster here
        # Without the head this process ends after that number of seconds, and the party names what it lost.
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(max(1, min(60, int(plan.silence_s / 2)))),
        "RAY_max_direct_call_object_size": str(INLINE),
        "RAY_task_rpc_inlined_bytes_limit": str(INLINE),
        "RAY_gcs_rpc_server_connect_timeout_s": str(max(1, min(60, int(config.start_s)))),
    }
    import ray

    phase.value = _CONNECTING
    if config.address != "auto" and (why := _wait_for(config.address, config.start_s)):
        return (
            f"cluster.address: no cluster answers at {config.address} within cluster.start_s = {config.start_s:g} s "
            f"({why}): start its head there (ray start --head --port={config.address.rpartition(':')[2]}), or correct "
            "the address"
        )
    try:
        ray.init(config.address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR)
        hosts = sorted({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})
    except Exception as error:  # noqa: BLE001 - Ray names no types
        return _translated(error, config.address)
    return next(filter(None, (addresses.exposed(host, unencrypted=config.unencrypted) for host in hosts)), "")


def _wait_for(address: str, patience_s: float) -> str:
    """Try to connect for `patience_s`; returns why that failed, or an empty text."""
    until = time.monotonic() + patience_s
    while why := addresses.why_closed(address, max(0.1, until - time.monotonic())):
        if time.monotonic() > until - RETRY_S:
            return why
        time.sleep(RETRY_S)
    return ""


def _translated(error: Exception, address: str) -> str:
    """The error about a cluster that Ray does not connect to."""
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        return f"cluster.address: the cluster {address} runs another Python or Ray than this party: {text}"
    if address == "auto" and isinstance(error, ConnectionError):
        return 'cluster.address = "auto": Ray runs no cluster on this machine: `ray start --head`, or set HOST:PORT'
    if "IP address" in text:
        return (
            f"cluster.address: this machine is no node of the cluster {address}: make it one, if only to connect "
            f"(ray start --address={address} --num-cpus=0); Ray says: {text}"
        )
    return f"cluster.address: Ray does not connect to the cluster {address}: {text}"
