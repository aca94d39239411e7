"""The machines of a federation: nodes of each party, and the lines between parties."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from treetap.errors import BadInput


@dataclass(frozen=True)
class Nodes:
    """The machines of one party. Its main process is on the first.

    Attributes:
        count: machines.
        workers: worker processes on each.
        cores: processors of each.
        memory_gb: memory of each, in 10^9 bytes.
    """

    count: int = 1
    workers: int = 1
    cores: int = 1
    memory_gb: float = inf

    @property
    def all_workers(self) -> int:
        """The party's workers."""
        return self.count * self.workers


@dataclass(frozen=True)
class Site:
    """Machines on which the processes run.

    Attributes:
        label_holder: its nodes.
        feature_party: those of each feature party.
        bits_per_s: of each party's connection to the others, in each direction.
        delay_s: of a message between parties, one way.
        inner_bits_per_s: of each node's connection within a party.
        cluster_holds_key: True if the label holder encrypts and decrypts on all its nodes; otherwise on the first.
        one_machine: True if all processes of all parties share the machine of `label_holder`, and no line is passed.
    """

    label_holder: Nodes
    feature_party: Nodes
    bits_per_s: float = inf
    delay_s: float = 0.0
    inner_bits_per_s: float = inf
    cluster_holds_key: bool = False
    one_machine: bool = False

    @property
    def key_nodes(self) -> Nodes:
        """The label holder's nodes that compute with the key; it has no other work for workers."""
        return self.label_holder if self.cluster_holds_key else replace(self.label_holder, count=1)

    def check(self) -> None:
        """Raise BadInput naming what no machine can be."""
        for role, nodes in (("label holder", self.label_holder), ("feature party", self.feature_party)):
            for what, value in (("nodes", nodes.count), ("cores", nodes.cores), ("workers", nodes.workers)):
                if value < 1:
                    raise BadInput(f"{what} of the {role} = {value}: must be at least 1")
            if not nodes.memory_gb > 0:
                raise BadInput(f"memory of the {role} = {nodes.memory_gb} GB: must be above 0")
        for what, rate in (("line", self.bits_per_s), ("inner line", self.inner_bits_per_s)):
            if not rate > 0:
                raise BadInput(f"bandwidth of the {what} = {rate} bit/s: must be above 0")
        if not 0 <= self.delay_s < inf:
            raise BadInput(f"delay = {self.delay_s} s: must be 0 or more")
