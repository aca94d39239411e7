"""The table [cluster] of a party's file: the cluster of Ray in which its workers run, and what each of them needs."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from treetap.names import check_address
from treetap.strict import Strict

#: What Ray counts by itself, and the key that reserves it; None: what a worker does not use.
_COUNTED = {"CPU": "cluster.cpus", "memory": "cluster.memory", "GPU": None, "object_store_memory": None}


def _check_head(address: str) -> str:
    if "://" in address:
        raise ValueError('is for another kind of client: write the head\'s HOST:PORT, or "auto"')
    return address if address == "auto" else check_address(address)


Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _check_resources(resources: dict[str, Amount]) -> dict[str, Amount]:
    for name in _COUNTED.keys() & resources.keys():
        instead = f"{_COUNTED[name]} reserves it" if _COUNTED[name] else "a worker uses none"
        raise ValueError(f"{name} is no custom resource: {instead}")
    return resources


class ClusterConfig(Strict):
    """Address of the cluster, and what each worker reserves there.

    `address`: HOST:PORT of the head (of its global control service), or "auto": the cluster that `ray start` has
    started on this machine. Either way this machine is one of its nodes, if only with `--num-cpus=0`.
    `memory`: bytes. `resources`: custom resources of Ray, by which workers can be kept to some nodes.
    `start_s`: seconds within which the cluster answers and has room for all workers.
    `unencrypted`: workers on other machines although Ray does not encrypt: where the network does.
    """

    address: Annotated[str, AfterValidator(_check_head)] = "auto"
    cpus: Amount = 1.0
    memory: Annotated[int, Field(gt=0)] | None = None
    resources: Annotated[dict[str, Amount], AfterValidator(_check_resources)] = {}
    start_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    unencrypted: bool = False
