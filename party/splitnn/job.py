"""A training job of a network at any party: its table, its inputs and its stored states."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from party.alignment.steps import Alignment
from party.config import PartyConfig
from party.runtime.context import StepContext, required
from party.splitnn.stored_states import StoredStates
from treetap.errors import BadInput
from treetap.models.store import WEIGHTS
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs, InputScaler, has_inputs
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.protocols.job_spec import params_as
from treetap.protocols.messages import members_of
from treetap.protocols.splitnn_prediction import NetworkSizes
from treetap.tables.reading import Table
from treetap.wire.v2 import setup_pb2

#: Stages of an epoch: its batches, whose number is known once the records are aligned.
BATCHES = 1 << 31


class NetworkJob:
    """The aligned table of a job as inputs, the schedule of its batches, and the states on disk.

    Attributes:
        params: the job's parameters.
        sizes: those of the job, as far as they are known.
        alignment: this party's part in finding the common records.
        states: those on disk.
    """

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
        self._schedule: Schedule | None = None
        self._scaler: InputScaler | None = None
        self._draws: Draws | None = None

    async def fit(self, table: Table) -> Inputs | None:
        """The inputs of the common records, `table`, scaled by those that are trained on; None: there is no column.

        Raises:
            DataError: the records are fewer than a batch.
        """
        try:
            schedule = self._schedule = Schedule.of(self.params, len(table.ids))
            self.sizes.held = len(schedule.validation)
            self.sizes.blocks = -(-len(schedule.validation) // self.params.batch_size)
            self._draws = self.states.draws(self.params, self._context.party)
            scaler = self._scaler = await self._context.offload(lambda: InputScaler.fit(table, self.schedule.training))
            return await self._context.offload(lambda: scaler.apply(table)) if has_inputs(table) else None
        except BadInput as failure:
            raise failure.at(self._context.party) from None

    @property
    def schedule(self) -> Schedule:
        """The batches, once the records are aligned."""
        return required(self._schedule)

    @property
    def draws(self) -> Draws:
        """The party's private draws, once the records are aligned."""
        return required(self._draws)

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

    async def publish(self, manifest: dict[str, Any], kinds: tuple[str, ...] = ()) -> None:
        """Publish the best epoch's weights as a model with a manifest, and further files of these kinds."""

        def write() -> None:
            self.states.write_shard()
            self._context.store.publish(manifest, (WEIGHTS, *kinds))

        await self._context.offload(write, whole=True)
