"""Kernels of the driver, the process of a party that alone speaks to its cluster: connect, run, forget, survey.

It holds no key. It holds what workers were told and have to keep, so that another one can be told the same when one is
lost.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from treetap.errors import BadInput
from treetap.usage import finish_unit
from treetap.workers.cluster.nodes import exposed, why_closed
from treetap.workers.settings import Plan

#: Seconds between two attempts to reach the head, and beyond `cluster.start_s` until one is given up.
RETRY_S, LATE_S = 0.2, 5.0
#: Bytes of a call, or of its answer, that travel with the message and not by Ray's object store.
INLINE = 8 * 2**20


def connect(state: dict[str, Any], plan: Plan) -> list[str]:
    """Connect and have the workers made, unless that was done; returns the addresses of the nodes on which they are.

    Raises:
        BadInput: the cluster does not answer, has no room for them, or runs something else.
    """
    with _alive(plan):
        if "shards" not in state:
            _join(plan)
            from treetap.workers.cluster.shard import place  # with Ray

            state["shards"] = place(plan)
    return sorted({shard.node for shard in state["shards"]})


def run(
    state: dict[str, Any],
    messages: Mapping[int, bytes],
    key: str,
    anew: bool,
    total: Callable[[list[Any]], Any] | None,
) -> tuple[Any, list[str], list[tuple[float, float]], tuple[int, int]]:
    """Have workers run these calls at once, and keep them where there is a key; see `Cluster.run`.

    Returns the total of their answers, how workers were lost meanwhile, the memory and processor time of all, and the
    bytes to and from them.
    """
    shards = state["shards"]
    if anew:
        for shard in shards:
            shard.kept.pop(key, None)
    for number, message in messages.items():
        shards[number].ask(message)
    answers = [shards[number].answer() for number in messages]
    if key:
        for number, message in messages.items():
            shards[number].kept.setdefault(key, []).append(message)
    losses = [loss for shard in shards for loss in shard.losses]
    traffic = sum(shard.sent for shard in shards), sum(shard.received for shard in shards)
    for shard in shards:
        shard.losses, shard.sent, shard.received = [], 0, 0
    return None if total is None else total(answers), losses, [shard.used for shard in shards], traffic


def forget(state: dict[str, Any], key: str) -> None:
    """Have all workers free what they keep under keys that begin so; do not wait for it."""
    for shard in state["shards"]:
        shard.forget(key)


def survey(state: dict[str, Any], plan: Plan) -> tuple[list[str], list[str]]:  # noqa: ARG001 - a kernel
    """Ask a cluster before a party uses it: faults by which workers cannot be made, and facts. It reserves nothing."""
    with _alive(plan):
        try:
            _join(plan)
        except BadInput as lack:
            return [str(lack)], []
        from treetap.workers.cluster.shard import look

        return look(plan)


@contextmanager
def _alive(plan: Plan) -> Iterator[None]:
    """Give signs of life meanwhile: each wait inside has an end of its own."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(plan.beat_s):
            finish_unit()

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _join(plan: Plan) -> None:
    """Be a driver of the cluster.

    Raises:
        BadInput: it does not answer, another treetap or Ray runs there, or it is another machine and does not encrypt.
    """
    config, failure = plan.config, list[str]()
    # A service manager signals every process of a unit. The party ends this one, and Ray would log where it stood.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # Ray prints there what the party names itself
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

    if config.address != "auto" and (why := _wait_for(config.address, config.start_s)):
        raise BadInput(
            f"cluster.address: no cluster answers at {config.address} within cluster.start_s = {config.start_s:g} s "
            f"({why}): start its head there (ray start --head --port={config.address.rpartition(':')[2]}), or correct "
            "the address"
        )

    def init() -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            ray.init(config.address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR)
        except Exception as error:  # noqa: BLE001 - Ray names no types
            failure.append(_translated(error, config.address))

    connecting = threading.Thread(target=init, daemon=True)
    connecting.start()
    connecting.join(config.start_s + LATE_S)
    if connecting.is_alive():
        failure.append(
            f"cluster.address: {config.address} takes connections, but no cluster of Ray answered there within "
            f"cluster.start_s = {config.start_s:g} s"
        )
    hosts = [] if failure else sorted({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})
    failure += filter(None, (exposed(host, unencrypted=config.unencrypted) for host in hosts))
    if failure:
        raise BadInput(failure[0])


def _wait_for(address: str, patience_s: float) -> str:
    """Try to connect for `patience_s`; returns why that failed, or an empty text."""
    until = time.monotonic() + patience_s
    while why := why_closed(address, max(0.1, until - time.monotonic())):
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
