"""Everything that parties send each other in an encrypted prediction along a chain of three."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulator import Federation, run
from tests.worlds import FOUR, joined_model, spec, world
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

PARAMS = BoostingParams(n_estimators=3, max_depth=3, max_bin=8, reg_lambda=0.5)
HERE = world(90, (2, 2, 2, 2), missing=0.1, seed=6)
N = len(HERE.y)
BLOCK = 40
LABEL_HOLDER, *CHAIN = FOUR


@dataclass
class Crossed:
    """Every parcel between parties of a prediction, as (sender, receiver, parcel), in order; and the model."""

    parcels: list[tuple[str, str, exchange_pb2.PeerMessage]] = field(default_factory=list)
    trees: list[dict[int, tuple[Any, ...]]] = field(default_factory=list)

    def of(self, kind: str, to: str) -> list[exchange_pb2.PeerMessage]:
        """Parcels of one kind to one party."""
        return [parcel for _, there, parcel in self.parcels if (name_of(parcel), there) == (kind, to)]


def crossing(folder: Path, protocol: str) -> Crossed:
    """The training records predicted in blocks, all parcels kept."""
    found = Crossed()

    def keep(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        found.parcels.append((sender, to, parcel))

    async def main() -> None:
        federation = Federation(folder, HERE.tables)
        assert (await federation.train(spec(PARAMS, 4))).state == "finished"
        federation.tamper = keep
        asked = predict_request(model="job", table="train", protocol=protocol, block=BLOCK)
        assert (await federation.predict(asked)).state == "finished"
        found.trees = joined_model(federation.states)

    run(main())
    return found
