"""Starts the workers that a party's file asks for: processes here, actors of a cluster, or both."""

from __future__ import annotations

from party.config import PartyConfig
from party.runtime.metrics import PartyMetrics
from party.runtime.workers import PartyWorkers
from treetap.workers.cluster.engine import ClusterEngine
from treetap.workers.engines import ProcessEngine
from treetap.workers.entrusted import EntrustedHost

#: Of `silence_s`, what a worker may be silent: it is named before those who wait for what it computes give up.
WORKER_SHARE = 0.8
#: What workers import, without what needs an extra: imported at the start, so that no job waits for it.
OF_WORKERS = ("treetap.additive.sums.key_holder", "treetap.additive.sums.tree_sums", "treetap.psi.kernels")


def start_workers(config: PartyConfig) -> PartyWorkers:
    """The workers, which start while this process goes on; `PartyWorkers.ready` waits for them.

    Those of a cluster get no key, which stays with processes here, unless the policy entrusts them.
    """
    silence_s = WORKER_SHARE * config.silence_s
    cluster, here = None, None
    if config.engine == "ray":
        cluster = ClusterEngine(config.on_cluster, config.cluster_workers, silence_s, OF_WORKERS)
        cluster.start()
    if config.processes:
        here = ProcessEngine(config.processes, silence_s, OF_WORKERS)
        here.start()
    if here is not None:
        return PartyWorkers(here, cluster, nodes=lambda: [] if cluster is None else cluster.nodes)
    assert cluster is not None, "a party has workers somewhere"
    return PartyWorkers(EntrustedHost(cluster), named="cluster worker", nodes=lambda: cluster.nodes)


def count_workers(config: PartyConfig, workers: PartyWorkers, metrics: PartyMetrics) -> str:
    """Enter the workers, which are ready, into the metrics; returns them in words, for the log."""
    holds_key = config.policy.cluster_holds_key
    here = f"{config.processes} processes here"
    if config.processes:
        metrics.workers("process", config.processes, holds_keys=True)
    if config.engine == "process":
        return here
    metrics.workers("ray", config.cluster_workers, holds_keys=holds_key)
    keys = "which hold the keys too (policy: cluster_holds_key = true)" if holds_key else f"and {here} for the keys"
    where = f"{config.on_cluster.address} (nodes {', '.join(workers.nodes())})"
    return f"{config.cluster_workers} on the cluster at {where}, {keys}"
