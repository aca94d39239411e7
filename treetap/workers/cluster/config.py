"""The table [cluster] of a party's file: the cluster of Ray in which its workers run, and what each of them needs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from treetap.names import Address
from treetap.strict import Strict

Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ClusterConfig(Strict):
    """Where the cluster is, and what each worker reserves there.

    `address`: HOST:PORT of the head (of its global control service), or "auto": the cluster that `ray start` has
    started on this machine. Either way this machine is one of its nodes, if only with `--num-cpus=0`.
    `memory`: bytes. `resources`: custom resources of Ray, by which workers can be kept to some nodes.
    `start_s`: seconds within which the cluster answers and has room for all workers.
    `unencrypted`: workers on other machines although Ray does not encrypt: where the network does.
    """

    address: Literal["auto"] | Address = "auto"
    cpus: Amount = 1.0
    memory: Annotated[int, Field(gt=0)] | None = None
    resources: dict[str, Amount] = {}
    start_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    unencrypted: bool = False
