"""The part of a party's file that says where its workers are: on this machine, and on the cluster of [cluster]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from treetap.names import check_address
from treetap.strict import Strict

if TYPE_CHECKING:
    from treetap.native.arithmetic import Name

#: What Ray counts by itself, and the key that reserves it; None: what a worker does not use.
_COUNTED = {"CPU": "cluster.cpus", "memory": "cluster.memory", "GPU": None, "object_store_memory": None}
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
#: Most workers of a party: threads of its process, and actors of a cluster.
MOST_THREADS, MOST_ON_CLUSTER = 256, 1024


def _check_head(address: str) -> str:
    if "://" in address:
        raise ValueError('is for another kind of client: write the head\'s HOST:PORT, or "auto"')
    return address if address == "auto" else check_address(address)


def _check_resources(resources: dict[str, Amount]) -> dict[str, Amount]:
    for name in _COUNTED.keys() & resources.keys():
        instead = f"{_COUNTED[name]} reserves it" if _COUNTED[name] else "a worker uses none"
        raise ValueError(f"{name} is no custom resource: {instead}")
    return resources


class ClusterConfig(Strict):
    """The cluster, of which this machine is a node, if only with `--num-cpus=0`, and what workers reserve there."""

    address: Annotated[str, AfterValidator(_check_head)] = "auto"
    """HOST:PORT of the cluster's head, or "auto": the cluster that `ray start` has started on this machine."""
    workers: Annotated[int, Field(ge=1, le=MOST_ON_CLUSTER)]
    """Workers on the cluster, each with a shard of the records; at most 1,024."""
    cpus: Amount = 1.0
    """Processors that each worker reserves."""
    memory: Annotated[int, Field(gt=0)] | None = None
    """Bytes that each worker reserves; without it none."""
    resources: Annotated[dict[str, Amount], AfterValidator(_check_resources)] = {}
    """Custom resources that each worker reserves, such as `{ treetap = 1 }`, which keep workers to some nodes."""
    start_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds within which the cluster answers and has room for all workers; else the party ends with status 2."""
    unencrypted: bool = False
    """Permit workers on other machines although Ray does not encrypt: where the network does."""


@dataclass(frozen=True)
class Plan:
    """What all workers of a party have in common: what they reserve, import and compute with.

    `silence_s`: seconds without a finished unit of work after which one hangs.
    """

    config: ClusterConfig
    silence_s: float
    backend: Name
    modules: list[str]

    @property
    def beat_s(self) -> float:
        """Seconds between two signs of life."""
        return min(1.0, self.silence_s / 10)

    @property
    def needs(self) -> dict[str, float]:
        """Amounts of Ray's resources that one worker reserves."""
        memory = {} if self.config.memory is None else {"memory": float(self.config.memory)}
        return {"CPU": self.config.cpus, **memory, **self.config.resources}

    @property
    def needs_in_words(self) -> str:
        """Amounts that each worker reserves, for messages."""
        return " and ".join(f"{amount:g} {name}" for name, amount in self.needs.items())


class WorkerSettings(Strict):
    """Workers for the arithmetic of ciphertexts and blinded identifiers."""

    engine: Literal["process", "ray"] = "process"
    """Place of a feature party's sums by `scheme = "lattice"`: "process", on this machine; "ray", on a Ray cluster of
    this party (extra `cluster`). The model is the same, bit for bit. All else is computed on this machine.
    """
    workers: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = None
    """Threads of this party that compute; by default as many as processors it may use, at most 256."""
    cluster: ClusterConfig | None = None
    """With "ray": the cluster."""

    @model_validator(mode="after")
    def _of_engine(self) -> Self:
        if self.engine == "ray" and self.cluster is None:
            raise ValueError('engine = "ray" needs [cluster] with workers = N, the number of workers there')
        if self.engine != "ray" and self.cluster is not None:
            raise ValueError('[cluster] is for engine = "ray": write that line beside workers, or leave [cluster] out')
        return self
