"""How far a job is, for those who watch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from treetap.wire.v2 import control_pb2, jobs_pb2, serving_pb2, setup_pb2, types_pb2


class Progress:
    """The live status of one job. Watchers wait on `changed`."""

    def __init__(self, status: jobs_pb2.JobStatus) -> None:
        self.status = status
        self._changed = asyncio.Event()
        self._started = asyncio.get_running_loop().time()
        self._phase_started = self._started
        self._bytes: dict[str, int] = {}
        self._before = status.seconds
        self.served = False  #: of serving: this attempt has shown that it can
        self.ending = False  #: of serving: an operator ends it, and its last figures are wanted
        self._settled = asyncio.Event()
        self.scorer = ""  #: of a prediction: the party whose signs of life count records

    def phase(self, name: str) -> None:
        """A new phase begins; the seconds of the last one are kept."""
        now = asyncio.get_running_loop().time()
        if self.status.phase:
            self._add(self.status.phase, now - self._phase_started)
        self._phase_started = now
        self.status.phase = name
        self.touch()

    def round(self, round: int, rounds: int) -> None:
        """A new round begins: a tree, or a block of records."""
        self.status.round, self.status.rounds, self.status.stage = round + 1, rounds, 0
        self.touch()

    def stage(self, stage: int) -> None:
        """A new stage of the round begins."""
        self.status.stage = stage
        self.touch()

    def metrics(self, metrics: Iterable[types_pb2.NamedMetric]) -> None:
        """What the label holder published last."""
        found = list(metrics)
        if found:
            del self.status.metrics[:]
            self.status.metrics.extend(found)
        self.touch()

    def records(self, scored: int, total: int) -> None:
        """Of a prediction: how many records have their score."""
        self.status.scored, self.status.records = scored, total
        self.touch()

    def serving(self, figures: serving_pb2.ServingFigures) -> None:
        """Of serving: how it goes."""
        self.status.serving.CopyFrom(figures)
        self.touch()

    def accounts(self, told: Mapping[str, setup_pb2.Accounted]) -> None:
        """What the job has cost each party so far."""
        del self.status.accounts[:]
        for party, account in told.items():
            self.status.accounts.append(jobs_pb2.PartyAccount(party=party, account=account))
        self.touch()

    def away(self, parties: Iterable[str]) -> None:
        """Of a prediction: the parties without which it goes on."""
        self.status.away[:] = list(parties)
        self.touch()

    def on_loss(self, party: str) -> None:
        """A party does not answer; of serving, whoever watches wants to know for whom it waits."""
        if self.status.kind == "serve" and party not in self.status.away:
            self.status.away.append(party)
            self.touch()

    def settled(self) -> None:
        """Of serving that ends: all that can be known is."""
        self._settled.set()

    async def settle(self, within_s: float) -> None:
        """Of serving: have it say once more what it has done and cost; for want of that, the last it said stays."""
        self.ending = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()

    def on_progress(self, party: str, progress: control_pb2.Progress) -> None:
        """A party's sign of life."""
        if self.status.kind == "serve" and party in self.status.away:
            self.status.away.remove(party)
        self._bytes[party] = max(progress.bytes, self._bytes.get(party, 0))
        if party == self.scorer and progress.total and self.status.phase == "predict":
            self.status.scored, self.status.records = progress.done, progress.total
        self.touch()

    def end(self, state: str, error: str = "", *, bad_input: bool = False) -> None:
        """The job is not running any more."""
        self.phase("")
        if self.status.kind == "serve":
            del self.status.away[:]  # nobody is waited for; the error says who was missing
        self.status.state, self.status.error, self.status.bad_input = state, error, bad_input
        self.touch()

    def touch(self) -> None:
        """Wake the watchers."""
        self.status.seconds = self._before + asyncio.get_running_loop().time() - self._started
        self.status.bytes = sum(self._bytes.values())
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def _add(self, phase: str, seconds: float) -> None:
        for row in self.status.phases:
            if row.name == phase:
                row.amount += seconds
                return
        self.status.phases.append(types_pb2.NamedAmount(name=phase, amount=seconds))
