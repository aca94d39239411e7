"""`treetap party`: workers first, then the server, until SIGTERM, or until a kernel hangs."""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import logging
import os
import warnings
from pathlib import Path
from typing import Any, NoReturn

from grpc_health.v1 import health_pb2

from treetap.errors import BadInput, ConfigError, TreetapError
from treetap.native import arithmetic
from treetap.party.config import DealerConfig, PartyConfig, check_folders, read
from treetap.party.node import PartyNode
from treetap.party.policy_tables import TABLES
from treetap.party.runtime.job_store import TRANSCRIPTS
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.runtime.transcript_recorder import Recorders
from treetap.party.runtime.workers import PartyWorkers
from treetap.party.server.services import ScoringServer, Threads, register, register_for_approvers
from treetap.process.lifecycle import forwarder_of, serve_until_stopped, sole_user
from treetap.process.limits import collect_rarely, import_numpy, leave_out_pandas, raise_descriptors, share_heaps
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.ports import Role, Timeouts
from treetap.wire.probe import serve_health
from treetap.workers.engines import ThreadEngine

log = logging.getLogger(__name__)
#: Keys of a party's file that jobs read when they open.
REREAD = ("tables", "tables_folder", "tables_folder_sources", "data", "defences", "most_jobs", "policy_file")
#: Those of its table `serve`.
REREAD_SERVE = ("clients", "window_ms", "deadline_s", "refresh")


def reread(path: Path, running: PartyConfig) -> tuple[PartyConfig, list[str], list[str]]:
    """Read a party's file and its policy again.

    Returns:
        The configuration for jobs that open from now on; the keys of the file and of the policy that differ, as
        `policy.people.peers`; and those that differ, but hold only after a restart.

    Raises:
        BadInput: a file has a fault, or names a folder that is not there.
    """
    read_now = read(path, type(running))
    check_folders(read_now)
    changed, left = _differing(running, read_now, REREAD)
    updates: dict[str, Any] = {key: getattr(read_now, key) for key in REREAD}
    if "serve" in left and running.serve is not None and read_now.serve is not None:
        left.remove("serve")
        of_clients, of_servers = _differing(running.serve, read_now.serve, REREAD_SERVE)
        changed, left = changed + [f"serve.{key}" for key in of_clients], left + [f"serve.{key}" for key in of_servers]
        renewed = {key: getattr(read_now.serve, key) for key in REREAD_SERVE}
        updates["serve"] = running.serve.model_copy(update=renewed)
    for table in _differing(running.policy, read_now.policy)[1]:
        before, now = getattr(running.policy, table), getattr(read_now.policy, table)
        keys = _differing(before, now)[1] if table in TABLES else []
        changed += [f"policy.{table}.{key}" for key in keys] or [f"policy.{table}"]
    config = running.model_copy(update=updates).under(read_now.policy)
    config.check_apart()  # of clients that stay until a restart, too
    config.check_decisions()  # likewise
    return config, changed, left


async def follow(path: Path, node: PartyNode) -> None:
    """Read a party's file again and have its node go by it; a fault is logged, and nothing changes."""
    try:
        config, changed, left = await asyncio.to_thread(reread, path, node.config)
    except (TreetapError, OSError) as fault:
        log.error("SIGHUP: nothing has changed, since the file or the policy has a fault: %s", fault)
        return
    node.go_by(config)
    log.info(
        "SIGHUP: read again: %s; jobs that begin from now on go by it, and models that this party serves begin anew",
        ", ".join(changed) or "no key has changed",
    )
    if left:
        log.warning("SIGHUP: these keys have changed too, and need a restart of this party: %s", ", ".join(left))


def _differing(before: Any, now: Any, reread_keys: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """The fields of two settings of one type that differ: those that are read again, and the others."""
    differ = [key for key in type(now).model_fields if getattr(before, key) != getattr(now, key)]
    return [key for key in differ if key in reread_keys], [key for key in differ if key not in reread_keys]


#: Seconds that calls under way may take to end when the party stops.
GRACE_S = 2.0

#: Of `silence_s`, what a worker may be silent: it is named before those who wait for what it computes give up.
WORKER_SHARE = 0.8
#: Exit status of a party one of whose kernels hangs: started again, it goes on with jobs that are resumed.
HUNG = 3
#: What workers on a cluster run.
ON_CLUSTER = "treetap.lattice.histogram_shards"
#: What this process imports before it serves: jobs open by it, with what reads tables; and the roles of most of them.
OF_JOBS = ("treetap.party.opening",)
OF_BOOSTING = ("treetap.party.boosting.label_holder", "treetap.party.boosting.feature_party")


def run(
    config_path: Path,
    *,
    until_stdin_closes: bool,
    in_terminal: bool = False,
    kind: type[PartyConfig] = PartyConfig,
) -> None:
    """Serve one party, or a dealer; returns after SIGTERM, SIGINT or, if asked, when standard input closes.

    `in_terminal`: what `hold_hangup` said. `kind`: of the file.
    """
    faulthandler.enable(all_threads=False)  # a crash in C says where on stderr, and so by which kernel
    leave_out_pandas()
    config = read(config_path, kind)
    config.transport().check(config.name, Role.PARTY)
    check_folders(config)
    if isinstance(config, DealerConfig):
        config.check_alone()
    backend = choose_arithmetic(config, config_path)
    raise_descriptors()
    share_heaps()
    import_numpy()
    for module in (*OF_JOBS, *OF_BOOSTING):
        importlib.import_module(module)
    with sole_user(config.state), warnings.catch_warnings():
        warnings.simplefilter("default")
        # The workers; `PartyWorkers.ready` waits for those on a cluster, which start while this process goes on.
        silence_s, cluster = WORKER_SHARE * config.silence_s, None
        if config.cluster is not None:
            from treetap.workers.cluster.engine import ClusterHost  # most parties have no cluster

            cluster = ClusterHost(config.cluster, silence_s, [ON_CLUSTER])
        workers = PartyWorkers(ThreadEngine(config.threads, silence_s, end_hung), cluster)
        stops = {"until_stdin_closes": until_stdin_closes, "in_terminal": in_terminal}
        asyncio.run(_serve(config, workers, backend, config_path, **stops))


def choose_arithmetic(config: PartyConfig, path: Path) -> arithmetic.Backend:
    """The backend that this process computes with from now on.

    Raises:
        ConfigError: the file asks for a backend that cannot be had here.
    """
    try:
        backend = arithmetic.choose(config.arithmetic)
    except BadInput as error:
        raise ConfigError(f"{path}: {error}", party=config.name) from error
    arithmetic.use(backend.name)
    return backend


async def _serve(
    config: PartyConfig,
    workers: PartyWorkers,
    backend: arithmetic.Backend,
    path: Path,
    *,
    until_stdin_closes: bool,
    in_terminal: bool,
) -> None:
    for name, table in config.tables.items():
        for file in table.local():
            if file.name != "*" and not file.exists():  # what matches a pattern may come and go
                log.warning("table %s: %s: there is no such file yet", name, file)
    _warn_unanswered(config)
    dialer = rpc.GrpcDialer(config.transport(), Timeouts(config.silence_s))
    recorders = Recorders(config.state / TRANSCRIPTS, config.policy.people.record, config.transport())
    metrics = PartyMetrics(config.name)
    metrics.export_spans(config.telemetry)
    measured = metrics.serve(config.metrics)
    metrics.certificates(config.transport())
    node = PartyNode(config, workers, dialer, recorders, Threads(config.silence_s), metrics)
    callers = Callers(config.name, config.transport(), node.served_models.own_paths)
    server, credentials = rpc.server(callers)
    register(server, callers, node)
    register_for_approvers(server, lambda: node.desk, lambda: node.overview)
    status = serve_health(server)
    address = rpc.bind(server, credentials, config.listen)
    forwarder = forwarder_of(config, address)
    front = ScoringServer()

    async def again() -> None:
        """Read the file and the policy again: after SIGHUP."""
        await follow(path, node)
        _warn_unanswered(node.config)

    try:
        await workers.ready()
        await front.open(config, node.served_models)  # before a job can need the address
        collect_rarely()
        await server.start()
        await status.set("", health_pb2.HealthCheckResponse.SERVING)
        log.info("workers: %s", count_workers(config, workers, metrics))
        log.info("arithmetic: %s (%s)", backend.name, backend.reason)
        where = {"name": config.name, "address": address, **({"metrics": measured} if measured else {})}
        if node.served_models.address:
            where["predict_grpc"] = node.served_models.address
        if measured:
            node.watch_limits()
        if forwarder is not None:
            forwarder.begin()
        await serve_until_stopped(
            "party",
            where,
            until_stdin_closes=until_stdin_closes,
            reread=again,
            in_terminal=in_terminal,
        )
    finally:
        await status.enter_graceful_shutdown()
        await workers.close()  # first: it ends the calls that wait for a worker
        await node.close()
        await front.close(GRACE_S)
        await server.stop(GRACE_S)
        if forwarder is not None:
            await forwarder.close()  # after the last answers have left
        await dialer.close()
        metrics.close()


def _warn_unanswered(config: PartyConfig) -> None:
    """Log the clients of `[serve]` that get no answer by the policy."""
    if silent := config.unanswered():
        log.warning("the policy sends PREDICTION to none of these serve.clients: %s", ", ".join(silent))


def end_hung(why: str) -> NoReturn:
    """End this process, whose thread nothing else ends."""
    log.critical("%s, and this party ends with it: start it again and resume its jobs", why)
    logging.shutdown()
    os._exit(HUNG)


def count_workers(config: PartyConfig, workers: PartyWorkers, metrics: PartyMetrics) -> str:
    """Enter the workers, which are ready, into the metrics; returns them in words, for the log."""
    metrics.workers.labels("process").set(config.threads)
    here = f"{config.threads} threads here"
    if workers.cluster is None or config.cluster is None:
        return here
    metrics.workers.labels("ray").set(config.cluster.workers)
    workers.cluster.traffic = metrics.cluster_bytes
    where = f"{config.cluster.address} (nodes {', '.join(workers.cluster.nodes)})"
    return f"{here}, and {config.cluster.workers} on the cluster at {where} for sums by scheme = 'lattice' alone"
