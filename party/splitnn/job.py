"""A training job of a network at any party: its table, its inputs and its states on disk.

The states are those after the last two epochs and the best one's weights; beside them lies the private key of draws.
Two files take turns, so that a party whose last state the others do not have can go back by one epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from treetap.arrays import Array
from treetap.errors import DataError, naming
from treetap.models.arrays import content_of
from treetap.models.store import STATES, WEIGHTS
from treetap.neural.draws import Draws, new_key
from treetap.neural.inputs import Inputs, InputScaler, has_inputs
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.party.alignment.steps import Alignment
from treetap.party.config import PartyConfig
from treetap.party.runtime.context import StepContext, required
from treetap.protocols.job_spec import params_as
from treetap.protocols.messages import members_of
from treetap.protocols.splitnn_prediction import NetworkSizes
from treetap.tables.reading import Table
from treetap.wire.v2 import setup_pb2

#: Stages of an epoch: its batches, whose number is known once the records are aligned.
BATCHES = 1 << 31
log = logging.getLogger(__name__)
Arrays = Mapping[str, Array]
BEST, PRIVATE, EPOCHS = "best", "private", "epochs"


class NetworkJob:
    """The aligned table of a job as inputs, the schedule of its batches, and the states on disk.

    Attributes:
        params: the job's parameters.
        sizes: those of the job, as far as they are known.
        alignment: this party's part in finding the common records.
        states: those on disk.
    """

    #: The batches, once the records are aligned.
    schedule: Schedule

    #: The party's private draws, once the records are aligned.
    draws: Draws

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self.config, self._context, self.spec = config, context, spec
        self.params = params_as(spec, SplitnnParams)
        members = members_of(spec, context.coordinator)
        self.sizes = NetworkSizes(
            members=members,
            rounds=self.params.epochs,
            stages=BATCHES,
            widths={party: self.params.bottom_of(party).width for party in members.parties},
            wire_type=self.params.wire_type,
            rows=self.params.batch_size + 1,
        )
        self.alignment = Alignment(context, spec.alignment, "min_common_records", self.sizes)
        self.states = StoredStates(context)
        self._scaler: InputScaler | None = None

    async def fit(self, table: Table) -> Inputs | None:
        """The inputs of the common records, `table`, scaled by those that are trained on; None: there is no column.

        Raises:
            DataError: the records are fewer than a batch.
        """
        with naming(self._context.party):
            schedule = self.schedule = Schedule.of(self.params, len(table.ids))
            self.sizes.held = len(schedule.validation)
            self.sizes.blocks = -(-len(schedule.validation) // self.params.batch_size)
            self.draws = self.states.draws(self.params, self._context.party)
            scaler = self._scaler = await self._context.offload(lambda: InputScaler.fit(table, self.schedule.training))
            return await self._context.offload(lambda: scaler.apply(table)) if has_inputs(table) else None

    def described(self) -> dict[str, Any]:
        """The part of the model's manifest about networks that every party writes."""
        params = self.params
        return {
            "inputs": required(self._scaler).to_dict(),
            "bottom": asdict(params.bottom_of(self._context.party)),
            "wire_type": params.wire_type,
            "threads": params.threads,
            "reproducible": params.reproducible,
        }

    async def publish(self, manifest: dict[str, Any], files: Mapping[str, bytes] = {}) -> None:
        """Publish the best epoch's weights as a model with a manifest, and further files."""

        def write() -> None:
            self._context.store.publish(manifest, {WEIGHTS: self.states.shard(), **files})

        await self._context.offload(write, whole=True)


class StoredStates:
    """The states of one party for one job."""

    def __init__(self, context: StepContext) -> None:
        self._store, self._job, self._party = context.store, context.job, context.party
        self._best = 0  # epochs after which the best weights are, as far as the state in memory knows

    @property
    def epochs(self) -> int:
        """The epochs after which the last stored state is; 0: none is stored."""
        return max((int(arrays[EPOCHS]) for name in STATES if (arrays := self._store.load_arrays(name))), default=0)

    def load(self, epochs: int) -> dict[str, Array]:
        """The state after this number of epochs, at least one.

        Raises:
            DataError: it is not stored.
        """
        arrays = self._store.load_arrays(_name(epochs))
        if arrays is None or int(arrays.pop(EPOCHS)) != epochs:
            raise DataError(
                f"{self._store.folder}: has no state of job {self._job} after epoch {epochs}; bring a back-up of it "
                "back, or cancel the job and train again"
            )
        self._best = int(arrays.pop(BEST))
        return arrays

    def save(self, epochs: int, state: Arrays, best: Arrays | None) -> None:
        """Put the state after this number of epochs on disk; `best`: its weights, where they are to be published.

        Raises:
            DataError: these are not finite, as after the last step of a network that diverges.
        """
        if best is not None:
            if not all(np.isfinite(array).all() for array in best.values()):
                fault = f"the weights after epoch {epochs - 1} are not finite; a smaller learning_rate keeps them so"
                raise DataError(fault).at(self._party)
            self._best = epochs
            self._store.save_arrays(BEST, {**best, EPOCHS: np.array(epochs)})
        self._store.save_arrays(_name(epochs), {**state, EPOCHS: np.array(epochs), BEST: np.array(self._best)})

    def shard(self) -> bytes:
        """The shard of the model: the best epoch's weights.

        Raises:
            DataError: they are not there, or those of an epoch that was trained again after an interruption, and was
                not the best then.
        """
        best, last = self._store.load_arrays(BEST), self._store.load_arrays(_name(self.epochs))
        if best is None or last is None or int(best.pop(EPOCHS)) != int(last[BEST]):
            raise DataError(
                f"{self._store.folder}: has no weights of the best epoch of job {self._job}; cancel the job and train "
                "again"
            )
        return content_of(best)

    def draws(self, params: SplitnnParams, party: str) -> Draws:
        """The party's draws for the job: by a key of the operating system that stays in the job's folder.

        Where the job is reproducible they follow from its seed, which all parties know.

        Raises:
            DataError: states are there and the key is not.
        """
        if params.reproducible:
            log.warning(
                "job %s: reproducible = true: initial weights, noise and random labels follow from the job's seed, "
                "which every party knows; for tests and experiments only",
                self._job,
            )
            return Draws.reproducible(params.seed, party)
        stored = self._store.load_arrays(PRIVATE)
        if stored is None and any(self._store.has(f"{name}.npz") for name in STATES):
            raise DataError(
                f"{self._store.path(f'{PRIVATE}.npz')}: is not there, the key of the private draws of job {self._job}; "
                "bring a back-up of it back, or cancel the job and train again"
            )
        if stored is None:
            stored = {"key": np.frombuffer(new_key(), dtype=np.uint8)}
            self._store.save_arrays(PRIVATE, stored)
        return Draws(stored["key"].tobytes())


def _name(epochs: int) -> str:
    """The name of the file of a state; the states before and after it are in the other one."""
    return STATES[epochs % 2]
