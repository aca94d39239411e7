"""Trainings by PIVODL of which every message between parties is kept, with their draws and transcripts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.pivodl.federations import centralised, job_of, transparent
from tests.pivodl.jobs import policies
from tests.pivodl.roles import Roles
from tests.pivodl.small_job import nonces
from tests.simulator import Federation, run
from tests.worlds import FOUR, World, spread, world
from treetap.models.store import read_model
from treetap.trees.centralised_pivodl import CentralPivodlModel
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import RoleDraws
from treetap.wire.frame import content_of, name_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

PARAMS = PivodlParams(
    n_estimators=2, max_depth=3, max_bin=4, instance_threshold=3, min_samples=12, objective="reg:squarederror"
)
N = 96
#: Four parties, of which the last labels nothing.
HERE = spread(world(N, (1, 2, 1, 1), objective="reg:squarederror", seed=7, fresh=2), [i % 3 for i in range(N)])
OWNERS = FOUR[:3]
#: Kinds of messages that compare gains in secret.
SECURE = {"blinded_gains", "gain_bits", "gain_orders", "winning_sources"}


@dataclass
class Crossed:
    """A training: every message between its parties in order, the model, the draws, and the parties' transcripts."""

    here: World
    params: PivodlParams
    model: CentralPivodlModel
    parcels: list[tuple[str, str, exchange_pb2.PeerMessage]] = field(default_factory=list)
    shards: dict[str, Any] = field(default_factory=dict)
    transcripts: dict[str, list[TranscriptRecord]] = field(default_factory=dict)

    def contents(self, kind: str) -> Iterator[tuple[str, str, int, int, Any]]:
        """(sender, receiver, tree, stage, content) of all messages of a kind."""
        for sender, to, parcel in self.parcels:
            if name_of(parcel) == kind:
                yield sender, to, parcel.round, parcel.stage, content_of(parcel, kind)

    def roles(self, t: int) -> Roles:
        """The roles of a tree, by the nonces on the wire."""
        nonces = {sender: content.nonce for sender, _, _, _, content in self.contents("party_nonce")}
        return Roles(RoleDraws(self.params.seed, FOUR, nonces), list(FOUR), self.model, t)

    def divisions(self, t: int) -> dict[int, Any]:
        """The splits of a tree by node."""
        return {each["node"]: each for each in self.shards[FOUR[0]][t]["nodes"]}

    def open_at(self, t: int, level: int) -> list[int]:
        """The nodes of a level that were offered for a split."""
        return sorted(node for node in self.model.trees[t].divisible if node.bit_length() - 1 == level)


@cache
def crossed(form: str) -> Crossed:
    """A training as this project has it, "ours", or "as published"."""
    if form == "ours":
        return _crossing(HERE, PARAMS)
    params = replace(
        PARAMS,
        objective="binary:logistic",
        n_estimators=1,
        instance_threshold=2,
        as_published=True,
    )
    return _crossing(spread(world(N, (1, 2, 1, 1), seed=7, fresh=2), [i % 3 for i in range(N)]), params)


def _crossing(here: World, params: PivodlParams) -> Crossed:
    """One training, everything kept."""
    found = Crossed(here, params, centralised(here, params))

    def keep(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        found.parcels.append((sender, to, parcel))

    async def main(folder: Path) -> None:
        job = job_of(here, params)
        federation = Federation(folder, here.tables, record="both", policies=policies(job))
        federation.tamper = keep
        assert (await federation.train(job)).state == "finished"
        await federation.close()
        for name, state in federation.states.items():
            found.shards[name] = read_model(state / "models" / "job")[1]
            found.transcripts[name] = list(TranscriptReader(state / "transcripts" / "job"))

    with tempfile.TemporaryDirectory() as folder, transparent(), nonces(0):
        run(main(Path(folder)))
    return found
