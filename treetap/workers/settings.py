"""The part of a party's file that says where its workers are."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from treetap.strict import Strict
from treetap.workers.cluster.config import ClusterConfig

#: Most workers of a party: processes here, and actors of a cluster.
MOST_PROCESSES, MOST_ON_CLUSTER = 256, 1024


class WorkerSettings(Strict):
    """Workers for the arithmetic of ciphertexts and blinded identifiers.

    `engine`: "process", `workers` processes of this machine, by default one per core; "ray", `workers` actors of the
    cluster that `[cluster]` describes, and `key_workers` processes here for all that needs a key.
    """

    engine: Literal["process", "ray"] = "process"
    workers: Annotated[int, Field(ge=1, le=MOST_ON_CLUSTER)] | None = None
    key_workers: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] | None = None
    cluster: ClusterConfig | None = None

    @model_validator(mode="after")
    def _of_engine(self) -> Self:
        if self.engine == "ray":
            if self.workers is None:
                raise ValueError('engine = "ray" needs workers = N, the number of workers on the cluster')
            return self
        if self.cluster is not None:
            raise ValueError('[cluster] is for engine = "ray": write that line beside workers, or leave [cluster] out')
        if self.key_workers is not None:
            raise ValueError('key_workers is for engine = "ray"; without it all workers hold keys: leave it out')
        if self.workers is not None and self.workers > MOST_PROCESSES:
            raise ValueError(
                f'workers = {self.workers}: one machine has at most {MOST_PROCESSES}; more are for engine = "ray"'
            )
        return self

    @property
    def cluster_workers(self) -> int:
        """Workers on the cluster; 0 without one."""
        return self.workers or 0 if self.engine == "ray" else 0

    @property
    def on_cluster(self) -> ClusterConfig:
        """The cluster of `engine = "ray"`."""
        return self.cluster or ClusterConfig()
