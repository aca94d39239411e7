"""The progress of a job, for its watchers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from treetap.process.together import within
from treetap.wire.metric_history import append
from treetap.wire.v2 import control_pb2, jobs_pb2, prediction_pb2, serving_pb2, setup_pb2, types_pb2

#: Bytes of a job that its status can hold; parties that claim more are believed up to here.
MOST = 2**64 - 1
_MOST_STAGE = 2**32 - 1


class Progress:
    """The live status of one job. Watchers wait on `changed`."""

    def __init__(self, status: jobs_pb2.JobStatus) -> None:
        self.status = status
        self._changed = asyncio.Event()
        self._started = asyncio.get_running_loop().time()
        self._phase_started = self._started
        self._bytes: dict[str, int] = {}
        self._turn: dict[str, tuple[int, int]] = {}  # of a preview: party → identifiers done, and all, of this turn
        self._before = status.seconds
        self.served = False  #: of serving: this attempt has served
        self.ending = False  #: of serving: an operator has cancelled it, and waits for its last figures
        self.settled = asyncio.Event()  #: of serving: its last figures have come
        self.back: list[str] = []  #: of serving: parties that were away when the attempt began, and answer again
        self.binding = False  #: of a training: a tree is stored, or draws are open that no new submission may repeat
        self.scorer = ""  #: of a prediction: the party whose progress counts records
        self.stager = ""  #: the party whose progress counts the stages of a round, where one step does them all

    def phase(self, name: str) -> None:
        """Begin a new phase; the seconds of the last one are kept."""
        now = asyncio.get_running_loop().time()
        if self.status.phase:
            row = next((row for row in self.status.phases if row.name == self.status.phase), None)
            if row is None:
                row = self.status.phases.add(name=self.status.phase)
            row.amount += now - self._phase_started
        self._phase_started = now
        self.status.phase = name
        self.touch()

    def round(self, round: int, rounds: int) -> None:
        """Begin a new round: a tree, or a block of records."""
        self.status.round, self.status.rounds, self.status.stage = round + 1, rounds, 0
        self._turn.clear()
        self.touch()

    def planned(self, traffic: setup_pb2.PlannedTraffic) -> None:
        """Set the most bytes of words and sums that an attempt takes on a lattice, and the MiB that a party holds."""
        self.status.planned_bytes, self.status.planned_mib = min(traffic.words + traffic.sums, MOST), traffic.mib
        self.touch()

    def grown(self, trees: int) -> None:
        """Set the number of a training's trees that every party has stored."""
        self.status.stored_trees = trees
        self.binding = self.binding or trees > 0
        self.touch()

    def published(self, model: setup_pb2.PublishedModel) -> None:
        """Set records, trees and metrics of a training's published model, which may use fewer trees than were grown."""
        self.status.stored_trees, self.status.used_trees = model.trees, model.used_trees
        self.status.records = model.records
        self.metrics(model.metrics)

    def stage(self, stage: int) -> None:
        self.status.stage = stage
        self.touch()

    def metrics(self, metrics: Iterable[types_pb2.NamedMetric]) -> None:
        """Replace the metrics by those that the label holder published last."""
        named = list(metrics)
        if named:
            del self.status.metrics[:]
            self.status.metrics.extend(named)
        self.touch()

    def measured(self, metrics: Iterable[types_pb2.NamedMetric]) -> None:
        """Take the metrics that the label holder published after a round, if it did, and add them to the history."""
        named = list(metrics)
        if named:
            append(self.status.history, named)
        self.metrics(named)

    def measured_before(self, history: Iterable[types_pb2.MetricHistory]) -> None:
        """Set the history to that of the rounds that earlier attempts stored."""
        del self.status.history[:]
        self.status.history.extend(history)
        self.touch()

    def records(self, scored: int, total: int) -> None:
        """Of a prediction: set the number of scored records."""
        self.status.scored, self.status.records = scored, total
        self.touch()

    def opened(self, by_party: Mapping[str, prediction_pb2.OpenedModel]) -> None:
        """Of a prediction: set the counts of cells that are unknown or missing, of the parties that have some."""
        del self.status.cells[:]
        for party, model in sorted(by_party.items()):
            if model.unknown_cells or model.empty_columns:
                self.status.cells.add(party=party, unknown_cells=model.unknown_cells, empty_columns=model.empty_columns)
        self.touch()

    def serving(self, figures: serving_pb2.ServingFigures) -> None:
        self.status.serving.CopyFrom(figures)
        self.touch()

    def accounts(self, by_party: Mapping[str, setup_pb2.Accounted]) -> None:
        """Set the cost of the job at each party so far."""
        del self.status.accounts[:]
        for party, account in by_party.items():
            self.status.accounts.append(jobs_pb2.PartyAccount(party=party, account=account))
        self.touch()

    def away(self, parties: Iterable[str]) -> None:
        """Of a prediction: set the parties without which it continues."""
        self.status.away[:] = list(parties)
        self.touch()

    def on_loss(self, party: str) -> None:
        """Note that a party does not answer; only the status of serving shows it."""
        if self.status.kind == "serve" and party not in self.status.away:
            self.status.away.append(party)
            self.touch()

    async def settle(self, within_s: float) -> None:
        """Of serving: wait for its last figures and costs; without them the figures before stay."""
        self.ending = True
        await within(within_s, self.settled.wait())

    def on_progress(self, party: str, progress: control_pb2.Progress) -> None:
        if self.status.kind == "serve" and party in self.status.away:
            self.status.away.remove(party)
        self._bytes[party] = max(progress.bytes, self._bytes.get(party, 0))
        if progress.arithmetic:
            row = next((row for row in self.status.arithmetic if row.party == party), None)
            row = row or self.status.arithmetic.add(party=party)
            row.backend = progress.arithmetic  # a party that comes back may compute with another one
        if party == self.scorer and progress.total and self.status.phase == "predict":
            self.status.scored, self.status.records = progress.done, progress.total
        if self.status.kind == "align" and progress.total:
            self._turn[party] = progress.done, progress.total
            done, total = (min(sum(numbers), MOST) for numbers in zip(*self._turn.values(), strict=True))
            self.status.scored, self.status.records = done, total
        if party == self.stager and progress.total:
            self.status.stage = min(progress.done, progress.total, _MOST_STAGE)
        self.touch()

    def end(self, state: str, error: str = "", *, bad_input: bool = False) -> None:
        self.phase("")
        if self.status.kind == "serve":
            del self.status.away[:]  # the job waits for no party; the error names the missing one
        self.status.state, self.status.error, self.status.bad_input = state, error, bad_input
        self.touch()

    def touch(self) -> None:
        self.status.seconds = self._before + asyncio.get_running_loop().time() - self._started
        self.status.bytes = min(sum(self._bytes.values()), MOST)
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()
