"""A federation on bad disks, with bad workers, on a bad network, as a plan has it; and how it heals."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.campaign import stages
from tests.campaign.disk import REFUSALS, Disk, DiskFault
from tests.campaign.file_calls import Disks
from tests.campaign.plans import Fault, Plan
from tests.campaign.workers import FaultyEngine, WorkerFault
from tests.simulator import Faults, Message
from treetap.errors import TreetapError, Unreachable
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

#: Virtual seconds without a sign of life after which a process counts as silent.
SILENCE_S = 20.0
#: Virtual seconds after which everything that was late has arrived, and everybody who waited has given up.
SETTLED_S = 300.0
_START_AGAIN_S, _MOST_STARTS = 5.0, 200
_NETWORK = ("drop", "lose_reply", "double", "delay_s", "late_s")


class Rig:
    """A federation with the faults of a plan; make it inside `run`, use it inside `active()`."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.plan = plan
        self.engines: dict[str, FaultyEngine] = {}
        self.killed = 0
        self._kills = 0  # of those that the plan has by themselves
        self._planned: list[DiskFault | WorkerFault] = []
        self._healing = False
        self._rng = random.Random(f"rig {plan.seed}")
        self._loop = asyncio.get_running_loop()
        self._cuts: list[tuple[Fault, float]] = []
        self._begun = 0
        self.federation = stages.federation(
            folder, plan.stage, record=plan.record, silence_s=SILENCE_S, engine=self._engine
        )
        self.federation.hook = self._hook
        self.weights: defaultdict[tuple[Any, ...], set[bytes]] = defaultdict(set)
        self.federation.tamper = self._heard
        self._spoil_network()
        self.disks = Disks(folder)
        for name in (*self.federation.configs, *self.federation.coordinators):
            self.disks.of[name] = self._disk(folder / name, name)

    @contextmanager
    def active(self) -> Iterator[Rig]:
        """Within the block, files are on the bad disks."""
        with self.disks.active():
            yield self

    def begin(self) -> None:
        """The story begins: faults are counted from here."""
        self._begun = len(self.federation.log)
        for disk in self.disks.of.values():
            disk.operations = 0

    @property
    def hits(self) -> int:
        """Faults that happened, but for those of the network as a whole."""
        return self._kills + len(self._cuts) + sum(fault.hit for fault in self._planned)

    async def heal(self) -> None:
        """From here on nothing breaks; everybody is back, and everything late has arrived."""
        self._healing = True
        self.federation.faults = Faults()
        self.federation.hook = None
        for disk in self.disks.of.values():
            disk.faults = []
            disk.refuse_no_more()
        for engine in self.engines.values():
            engine.faults = []
        await asyncio.sleep(SETTLED_S)
        for name in self.disks.of:
            if not self.federation.alive(name):
                self._start(name)

    def start_again_where_deletions_were_refused(self) -> None:
        """Start parties again whose disk refused a deletion: the start deletes the rest."""
        for fault in self.plan.faults:
            if fault["kind"] == "disk" and fault["how"] in REFUSALS and fault["who"] in self.federation.configs:
                self.federation.kill(fault["who"])
                self._start(fault["who"])

    def kill(self, name: str, back_s: float, *, amid_writing: bool = False) -> None:
        """End a process; it is started again after virtual seconds."""
        if self.federation.alive(name):
            self.killed += 1
            self.federation.kill(name, amid_writing=amid_writing)
            self._loop.call_later(back_s, self._come_back, name, 0)

    def _come_back(self, name: str, times: int) -> None:
        """Start a process, as its supervisor does: again and again while it cannot."""
        if self.federation.alive(name):
            return
        try:
            self._start(name)
        except (TreetapError, asyncio.CancelledError):
            if times < _MOST_STARTS:
                self._loop.call_later(_START_AGAIN_S, self._come_back, name, times + 1)

    def _start(self, name: str) -> None:
        self.federation.start(name)
        if name in self.federation.coordinators:
            self.federation.process(name).within(self.federation.jobs_of(name).serve_on)

    def _engine(self, name: str) -> FaultyEngine:
        faults = [
            WorkerFault(fault["at"], fault["how"], fault["for_s"])
            for fault in self.plan.faults
            if (fault["kind"], fault.get("who")) == ("worker", name) and name not in self.engines
        ]
        self._planned += faults
        self.engines[name] = FaultyEngine(SILENCE_S, faults=faults)
        return self.engines[name]

    def _disk(self, root: Path, name: str) -> Disk:
        mine = [each for each in self.plan.faults if (each["kind"], each.get("who")) == ("disk", name)]
        backs = {each["at"]: each["back_s"] for each in mine}

        faults = [DiskFault(each["at"], each["how"], each["for_s"]) for each in mine]
        self._planned += faults

        def crash() -> None:
            self.kill(name, backs.get(disk.operations - 1, 0.0), amid_writing=True)

        disk = Disk(
            root,
            dead=lambda: self._is_of_the_dead(name),
            crash=crash,
            now=self._loop.time,
            rng=self._rng,
            faults=faults,
        )
        return disk

    def _is_of_the_dead(self, name: str) -> bool:
        life = self.federation.life()
        return life is not None and life.name == name and not life.alive

    def _spoil_network(self) -> None:
        given: dict[str, Any] = {}
        for fault in self.plan.faults:
            if fault["kind"] == "network":
                given |= {key: fault[key] for key in _NETWORK if key in fault}
        self.federation.faults = Faults(seed=self.plan.seed, **given)

    def _heard(self, sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        """Note the leaf weights that arrive; their noise is drawn once."""
        if name_of(parcel) == "leaf_weights":
            for each in parcel.protocol.pivodl.leaf_weights.leaves:
                self.weights[parcel.job, parcel.round, each.node, sender, to].add(each.SerializeToString())
        return parcel

    def _hook(self, message: Message) -> None:
        number, now = message.number - self._begun, self._loop.time()
        for fault in self.plan.faults:
            if fault["kind"] == "kill" and (number, message.served) == (fault["at"], fault["served"]):
                self._kills += self.federation.alive(fault["who"])
                self.kill(fault["who"], fault["back_s"])
            elif fault["kind"] == "cut" and number == fault["at"] and not message.served:
                self._cuts.append((fault, now + fault["for_s"]))
        for cut, until in self._cuts:
            there = (message.sender, message.to) == (cut["from"], cut["to"])
            if there and now < until and message.served == cut["half"]:
                raise Unreachable(f"no route to {message.to}")
