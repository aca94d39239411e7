"""A federation in one process under virtual time: the same coordinator and party code, another transport.

Messages are serialised and parsed as on a socket; from one seed they are dropped, delayed, doubled and
reordered, and any process can be killed at any message and started again on its own disk.
"""

from __future__ import annotations

import asyncio
import gc
import io
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tests.virtual_time import AT_END, Deadlock, run
from treetap.coordinator.jobs import Jobs
from treetap.coordinator.runtime.journal import Journal
from treetap.errors import Unreachable
from treetap.party.config import DealerConfig, PartyConfig, ServeConfig
from treetap.party.defences.settings import Defences
from treetap.party.node import PartyNode
from treetap.party.policy import Policy, merged
from treetap.party.runtime.transcript_recorder import Recorders
from treetap.party.runtime.workers import PartyWorkers
from treetap.process.config import TlsConfig
from treetap.protocols.agreement import Request, named
from treetap.tables.config import Encode, TableConfig
from treetap.wire.frame import name_of
from treetap.wire.ports import ORGANISATION, Address
from treetap.wire.v2 import control_pb2, exchange_pb2, growth_pb2, jobs_pb2, setup_pb2
from treetap.workers.engines import Engine, InWorkers

__all__ = ["COORDINATOR", "DEALER", "LIFE", "Deadlock", "Faults", "Federation", "Message", "run"]

T = TypeVar("T")
COORDINATOR = "coordinator"
DEALER = "dealer"
NOWHERE = TlsConfig(ca=Path("none"), certificate=Path("none"), key=Path("none"))


@dataclass
class Faults:
    """How bad the network is; 0 everywhere is a perfect one.

    Chances that a request is lost, that its answer is lost, that a copy of it arrives once more after up to `late_s`;
    and the longest delay of a request, so that requests overtake each other.
    """

    drop: float = 0.0
    lose_reply: float = 0.0
    double: float = 0.0
    delay_s: float = 0.0
    late_s: float = 0.0
    seed: int = 0
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def hits(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def delay(self, longest: float) -> float:
        return self.random.random() * longest if longest else 0.0


class Message(NamedTuple):
    """A request on the network: its number, who sends it to whom, its word, and whether it has been `served` yet."""

    number: int
    sender: str
    to: str
    word: str
    served: bool


#: Called for every request twice, before it reaches its receiver and before the answer sets out. May kill and start
#: processes, and raise `Unreachable` to cut a line.
Hook = Callable[[Message], None]
#: Changes a parcel on its way: (sender, receiver, parcel).
Tamper = Callable[[str, str, exchange_pb2.PeerMessage], object]


#: Tables that were written last, and their files: many federations have the same ones.
_written: dict[int, tuple[pa.Table, bytes]] = {}
_MOST_WRITTEN = 64


def _file_of(table: pa.Table) -> bytes:
    """A Parquet file of a table."""
    found = _written.get(id(table))
    if found is None or found[0] is not table:
        content = io.BytesIO()
        pq.write_table(table, content)
        if len(_written) == _MOST_WRITTEN:
            _written.pop(next(iter(_written)))
        found = _written[id(table)] = table, content.getvalue()
    return found[1]


async def in_place(work: Callable[[], T], *, whole: bool = False, us: float = 0.0) -> T:
    return work()


@dataclass(eq=False)
class Process:
    """One life of a process: everything that runs on its behalf ends with it, and knows it by `LIFE`."""

    name: str
    alive: bool = True
    frozen: bool = False
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    node: PartyNode | None = None
    recorders: Recorders | None = None
    jobs: Jobs | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self.within(lambda: asyncio.ensure_future(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def within(self, work: Callable[[], T]) -> T:
        """Call a function on behalf of this process: tasks that it begins are the process's own."""

        def lived() -> T:
            LIFE.set(self)
            return work()

        return copy_context().run(lived)


#: The process on whose behalf code runs; None: a person, or the test.
LIFE: ContextVar[Process | None] = ContextVar("LIFE", default=None)
#: What a process does with a request: (the process, whether the answer is heard) → the answer.
Call = Callable[[Process, bool], Coroutine[Any, Any, T]]


async def _awake(*processes: Process) -> None:
    """Wait for ever if one of the processes is frozen: what it took is in its socket's queue."""
    if any(process.frozen for process in processes):
        await asyncio.get_running_loop().create_future()


def _abandon(recorders: Recorders) -> None:
    """The system closes a dead process's files and frees its locks; nothing more is written."""
    for writer in recorders._writers.values():
        writer._file.close()
        writer._unlock()


def _ignored(ended: asyncio.Task[Any]) -> None:
    """Nobody waits for this task: its error, if any, has been seen."""
    if not ended.cancelled():
        ended.exception()


def finished(status: jobs_pb2.JobStatus) -> jobs_pb2.JobStatus:
    """The status of a job, which has finished.

    Raises:
        AssertionError: it has not.
    """
    assert (status.state, status.error) == ("finished", "")
    return status


def failed(status: jobs_pb2.JobStatus, *words: str, bad_input: bool | None = None) -> jobs_pb2.JobStatus:
    """The status of a job, which has failed with an error that contains all the words.

    Raises:
        AssertionError: it has not; or, where `bad_input` says so, it did not fail by what it was given.
    """
    assert status.state == "failed"
    assert bad_input in (None, status.bad_input)
    for word in words:
        assert word in status.error
    return status


def decisions_in(growth: growth_pb2.GrowthResult) -> list[growth_pb2.Decision]:
    """The splits of a stage in an answer of the label holder, which is one of these."""
    answers = (growth.chosen_splits, growth.relayed_children, growth.finished_tree)
    return [each for answer in answers for each in answer.decisions]


class Federation:
    """Parties and a coordinator on one virtual network; made inside `run`, it is closed at its end.

    `tables`: party → (columns, {table name: pyarrow table}); the first column has the ids, or all do whose names begin
    with `key`; `y` is the label, `w` the weight, `exposure` and `margins` offsets.
    `encode`: its columns of text; `drop_constant`: all parties train without constant columns; `serve`: party → whom it
    answers; `coordinators`: whom all parties obey, the first is the one that `jobs` means; `engine`: party → what
    computes for it, `cluster`: what sums shards of words; `defences`, `constraints`, `cuts`, `keys` (an `id` of several
    keys): by party. `tls`: party → certificates, by which it only signs. `dealer`: there is one, and all name it;
    `organisations`: process → whose it is, as others see it; without an entry its own name's.
    """

    def __init__(
        self,
        folder: Path,
        tables: dict[str, tuple[list[str], dict[str, pa.Table]]],
        *,
        faults: Faults | None = None,
        record: Literal["received", "both", "off"] = "off",
        silence_s: float = 20.0,
        policies: dict[str, dict[str, Any]] | None = None,
        encode: Encode | None = None,
        drop_constant: bool = False,
        serve: dict[str, ServeConfig] | None = None,
        coordinators: tuple[str, ...] = (COORDINATOR,),
        engine: Callable[[str], Engine] = lambda _: Engine(),
        cluster: Callable[[str], Any] = lambda _: None,
        defences: dict[str, Defences] | None = None,
        constraints: dict[str, dict[str, int]] | None = None,
        cuts: dict[str, dict[str, list[float]]] | None = None,
        normalise: dict[str, list[str]] | None = None,
        keys: dict[str, list[list[str]]] | None = None,
        tls: Callable[[str], TlsConfig | None] = lambda _: None,
        dealer: bool = False,
        organisations: dict[str, str] | None = None,
    ) -> None:
        self.coordinators, self.engine, self.cluster = coordinators, engine, cluster
        self.policies, self.encode, self.serve = policies or {}, encode, serve or {}
        self.drop_constant, self.normalise, self.keys = drop_constant, normalise or {}, keys or {}
        self.defences, self.constraints, self.cuts = defences or {}, constraints or {}, cuts or {}
        self.tables, self.tls = tables, tls
        self.folder, self.faults, self.record, self.silence_s = folder, faults or Faults(), record, silence_s
        self.hook: Hook | None = None
        self.tamper: Tamper | None = None
        self.log: list[Message] = []
        self.seen_by_coordinator: list[bytes] = []  # every event that reached it, as it was on the wire
        self.told_coordinator: list[str] = []  # every error that reached it
        self.conducted: list[tuple[Literal["begin", "end"], str, control_pb2.StepRequest]] = []
        self.decided: list[tuple[int, int, int]] = []  # (tree, stage, node) of each split, as the coordinator heard it
        self.dealers, self.organisations = [DEALER] if dealer else [], organisations or {}
        self.configs = {name: self._config(name, *spec) for name, spec in tables.items()}
        self.configs |= {name: self._dealer(name) for name in self.dealers}
        self._processes: dict[str, Process] = {}
        for name in [*self.configs, *coordinators]:
            self.start(name)
        if (ends := AT_END.get()) is not None:
            ends.append(self.close)

    # --- processes

    def start(self, name: str) -> None:
        """Start a process on what its disk holds."""
        process = Process(name)
        process.within(lambda: self._begin(process))
        self._processes[name], self._closed = process, False

    def _begin(self, process: Process) -> None:
        name, dialer = process.name, SimDialer(self, process)
        if name in self.coordinators:
            parties = {party: f"{party}:1" for party in self.configs}
            journal = Journal(self.folder / name / "journal")
            process.jobs = Operated(name, parties, dialer, journal, self.silence_s)
            return
        config = self.configs[name]
        process.recorders = Recorders(config.state / "transcripts", config.policy.people.record)
        workers = PartyWorkers(self.engine(name), self.cluster(name))
        process.node = PartyNode(config, workers, dialer, process.recorders, in_place)

    def kill(self, name: str, *, amid_writing: bool = False) -> None:
        """kill -9: nothing is said to anybody, nothing more is written. `amid_writing`: it is just writing a file."""
        process = self._processes[name]
        process.alive = False
        if process.jobs is not None:
            process.tasks.update(process.jobs._running.values())
            process.tasks.update(process.jobs._questions._tasks.values())
        if process.node is not None:
            for session in process.node._sessions.values():
                process.tasks.update(task for _, task in session.book._tasks.values())
                if session.expiry is not None:
                    session.expiry.cancel()
            process.tasks.update(process.node.tasks)
        if process.recorders is not None:
            # Those that it was just using are closed when that has unwound.
            abandon = partial(_abandon, process.recorders)
            asyncio.get_running_loop().call_soon(abandon) if amid_writing else abandon()
        for task in list(process.tasks):
            task.cancel()

    def restart(self, name: str) -> None:
        """kill -9, and the next process on what is on the disk."""
        self.kill(name)
        self.start(name)

    def kill_at(
        self,
        name: str,
        when: Callable[[Message], object],
        *,
        nth: int = 1,
        back: bool = False,
        defences: Defences | None = None,
    ) -> None:
        """Kill a process at the nth message of which that holds.

        `back`: it is started again at once, a party with other `defences`, if there are some.
        """
        met = 0

        def hook(message: Message) -> None:
            nonlocal met
            met += bool(when(message))
            if met == nth:
                self.hook = None
                self.kill(name)
                if defences is not None:
                    self.configs[name] = self.configs[name].model_copy(update={"defences": defences})
                if back:
                    self.start(name)

        self.hook = hook

    def freeze(self, name: str, *, thaw: bool = False) -> None:
        """SIGSTOP: it takes connections, and nothing else leaves or reaches it until it is thawed by SIGCONT."""
        self._processes[name].frozen = not thaw

    @staticmethod
    def life() -> Process | None:
        """The process on whose behalf the caller runs."""
        return LIFE.get()

    def alive(self, name: str) -> bool:
        """Whether the process runs."""
        return self._processes[name].alive

    @property
    def jobs(self) -> Jobs:
        """The coordinator's jobs."""
        return self.jobs_of(self.coordinators[0])

    def jobs_of(self, coordinator: str) -> Jobs:
        """The jobs of one of several coordinators."""
        jobs = self._processes[coordinator].jobs
        assert jobs is not None
        return jobs

    def process(self, name: str) -> Process:
        """The present life of a process."""
        return self._processes[name]

    def node(self, name: str) -> PartyNode:
        """A party behind its port."""
        node = self._processes[name].node
        assert node is not None
        return node

    def remembered(self, name: str) -> list[Any]:
        """What the workers of a party hold."""
        engine, _ = self.node(name)._workers.lease()
        objects = gc.get_objects()
        kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, InWorkers)}  # few, of a million objects
        holders = [each for each in objects if type(each) in kinds]
        return [part for holder in holders if holder._engine is engine for part in holder._parts]

    def state(self, name: str) -> Path:
        """A party's disk."""
        return self.configs[name].state

    @property
    def states(self) -> dict[str, Path]:
        """All parties' disks."""
        return {name: self.state(name) for name in self.tables}

    # --- what an operator does

    async def train(self, spec: setup_pb2.JobSpec, job: str = "job") -> jobs_pb2.JobStatus:
        """Submit a job and wait until it does not run any more."""
        self._told(lambda jobs: jobs.submit(jobs_pb2.SubmitRequest(job=job, spec=spec)))
        return await self.jobs.wait(job)

    async def predict(self, request: jobs_pb2.PredictRequest) -> jobs_pb2.JobStatus:
        """The same for a prediction."""
        return await self.jobs.wait(self._told(lambda jobs: jobs.submit(request)))

    async def preview(
        self, *parties: str, answer: str = "count", table: str = "train", job: str = "p"
    ) -> jobs_pb2.JobStatus:
        """The same for a preview of the alignment, by default of all parties."""
        asked = jobs_pb2.AlignRequest(job=job, answer=answer, table=table, parties=parties or self.tables)
        return await self.jobs.wait(self._told(lambda jobs: jobs.submit(asked)))

    async def resume(self, job: str = "job") -> jobs_pb2.JobStatus:
        """Go on with a job and wait."""
        self._told(lambda jobs: jobs.resume(job))
        return await self.jobs.wait(job)

    def _told(self, what: Callable[[Jobs], T]) -> T:
        """An operator's order to the coordinator."""
        return self._processes[self.coordinators[0]].within(lambda: what(self.jobs))

    async def close(self) -> None:
        """End everything in good order, once."""
        if self._closed:
            return
        self._closed = True
        for process in self._processes.values():
            if process.jobs is not None and process.alive:
                await process.jobs.close()
        for process in self._processes.values():
            if process.node is not None and process.alive:
                await process.node.close()

    # --- the network

    async def carry(self, sender: Process, to: str, word: str, call: Call[T]) -> T:
        """One request and its answer over the bad network."""
        message = Message(len(self.log), sender.name, to, word, served=False)
        self.log.append(message)
        self._pass(message, sender)
        await _awake(sender, self._processes[to])
        if self.faults.hits(self.faults.double):
            copy = self._processes[to].run(self._late(to, self.faults.delay(self.faults.late_s), call))
            copy.add_done_callback(_ignored)
        await asyncio.sleep(self.faults.delay(self.faults.delay_s))
        if self.faults.hits(self.faults.drop):
            raise Unreachable(f"the request to {to} was lost")
        answer = await self._serve(to, call)
        await _awake(sender, self._processes[to])
        self._pass(message._replace(served=True), sender)
        if not self._processes[to].alive:
            raise Unreachable(f"{to} died before it could answer")
        if self.faults.hits(self.faults.lose_reply):
            raise Unreachable(f"the answer of {to} was lost")
        return answer

    def _pass(self, message: Message, sender: Process) -> None:
        """Show a message to the hook, which may kill; the dead do not go on."""
        if self.hook is not None:
            self.hook(message)
        if not sender.alive:
            raise asyncio.CancelledError

    async def _serve(self, to: str, call: Call[T]) -> T:
        """Run a handler as a task of the process that answers, so that it dies with it and not with its caller."""
        process = self._processes[to]
        if not process.alive:
            await asyncio.sleep(0.01)
            raise Unreachable(f"{to} does not answer")
        task = process.run(call(process, True))
        task.add_done_callback(_ignored)  # its caller may be gone
        await asyncio.wait({task})
        if task.cancelled():
            raise Unreachable(f"{to} died")
        return task.result()

    async def _late(self, to: str, seconds: float, call: Call[T]) -> None:
        """A copy of a request that arrives by itself; nobody hears its answer."""
        await asyncio.sleep(seconds)
        process = self._processes[to]
        if process.alive:
            await call(process, False)

    def _config(self, name: str, columns: list[str], tables: dict[str, pa.Table]) -> PartyConfig:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        configs = {}
        for table_name, table in tables.items():
            path = folder / f"{table_name}.parquet"
            path.write_bytes(_file_of(table))
            label = "y" if "y" in table.column_names else None
            weight = "w" if "w" in table.column_names else None
            offsets = {"exposure": "exposure", "base_margin": "margins", "label_upper": "upper"}
            offsets = {key: name for key, name in offsets.items() if name in table.column_names}
            beside = (*columns, label, weight, *offsets.values())
            others = [name for name in table.column_names if name not in beside]
            ids = [name for name in others if name.startswith("key")] or next(iter(others), "id")
            given: dict[str, Any] = {"encode": self.encode, "drop_constant": self.drop_constant, "weight": weight}
            given |= offsets
            given |= {"monotone_constraints": self.constraints.get(name, {}), "cuts": self.cuts.get(name, {})}
            given["normalise"] = self.normalise.get(name, [])
            own_ids = self.keys.get(name, ids)
            configs[table_name] = TableConfig(path=path, id=own_ids, columns=columns, label=label, **given)
        more: dict[str, Any] = {"tables": configs, "data": folder, "serve": self.serve.get(name)}
        more["defences"] = self.defences.get(name, Defences())
        tls = self.tls(name)
        more |= {"tls": tls} if tls is not None else {"insecure": True}
        config = PartyConfig(name=name, state=folder / "state", silence_s=self.silence_s, **more)
        return config.under(self.policy(name))

    def _dealer(self, name: str) -> PartyConfig:
        given: dict[str, Any] = {"organisation": name, "insecure": True, "silence_s": self.silence_s}
        return DealerConfig(name=name, state=self.folder / name / "state", **given).under(self.policy(name))

    def policy(self, name: str) -> Policy:
        """A party's policy: with room for every job, the others named, and what the test wants."""
        others = [party for party in self.tables if party != name]
        people = {"record": self.record, "coordinators": list(self.coordinators), "dealers": self.dealers}
        named = {"people": {**people, "label_holders": others, "peers": others}}
        return Policy.permissive(merged(named, self.policies.get(name, {})))


class Operated(Jobs):
    """A coordinator's jobs as operators submit them: with a name, and a nonce of the submission."""

    def submit(self, request: Request, operator: str = "") -> str:
        asked = request if request.submission else named(request)  # type: ignore[type-var] # one of the three
        return super().submit(asked, operator)


class SimDialer:
    """`Dialer` over the virtual network, of one process."""

    def __init__(self, federation: Federation, me: Process) -> None:
        self._federation, self._me = federation, me

    async def step(self, to: Address, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        """See `Dialer.step`. Signs of life arrive while the step is done, as on a socket."""
        federation, me = self._federation, self._me
        wire = request.SerializeToString()
        arrived: asyncio.Queue[control_pb2.StepEvent | None] = asyncio.Queue()

        async def call(process: Process, heard: bool) -> None:
            assert process.node is not None
            try:
                async for event in process.node.step(me.name, control_pb2.StepRequest.FromString(wire)):
                    if heard and not process.frozen:
                        federation.seen_by_coordinator.append(event.SerializeToString())
                        arrived.put_nowait(control_pb2.StepEvent.FromString(federation.seen_by_coordinator[-1]))
            except Exception as error:
                federation.told_coordinator.append(str(error))
                raise

        federation.conducted.append(("begin", to.name, request))
        carried = me.run(federation.carry(me, to.name, name_of(request), call))
        carried.add_done_callback(lambda _: arrived.put_nowait(None))
        carried.add_done_callback(_ignored)  # its caller may have been killed
        result = None
        try:
            while (event := await arrived.get()) is not None:
                if event.HasField("result"):
                    result = event  # held back until the answer as a whole has got through
                else:
                    yield event
            await carried
        finally:
            carried.cancel()
        federation.conducted.append(("end", to.name, request))
        if result is not None:
            nodes = [each.node for each in decisions_in(result.result.growth)]
            federation.decided += [(request.round, request.stage, node) for node in nodes]
            yield result

    async def deliver(self, to: Address, wire: bytes) -> exchange_pb2.Receipt:
        """See `Dialer.deliver`."""
        federation, me = self._federation, self._me.name

        async def call(process: Process, heard: bool) -> exchange_pb2.Receipt:
            assert process.node is not None
            arrived = exchange_pb2.PeerMessage.FromString(wire)
            ORGANISATION.set(federation.organisations.get(me, me))
            if federation.tamper:
                federation.tamper(me, to.name, arrived)
                return await process.node.deliver(me, arrived)
            return await process.node.deliver(me, arrived, wire)

        kind = name_of(exchange_pb2.PeerMessage.FromString(wire))
        return await federation.carry(self._me, to.name, kind, call)

    async def close(self) -> None:
        """See `Dialer.close`."""
