"""The two forms of an interactive prediction: what one round asks about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator import Federation, run
from tests.worlds import PARTIES, assert_oracles_scores, spec, world
from treetap.models.store import read_model
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

PARAMS = BoostingParams(n_estimators=4, max_depth=3, max_bin=6)
HERE = world(60, (1, 2, 2), seed=4)


@pytest.mark.parametrize("form", ["batched", "per-tree"])
def test_what_a_round_asks_about(form: str, tmp_path: Path) -> None:
    """Batched: all trees at one depth, as many rounds as the trees are deep. Per tree: one tree, one depth a round."""
    asked: dict[int, set[tuple[str, int]]] = {}

    def keep(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "route_queries":
            asked.setdefault(parcel.stage, set()).update(
                (to, query.handle) for query in parcel.protocol.interactive.route_queries.queries
            )
        return parcel

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(spec(PARAMS, obfuscation="standard"))
        federation.tamper = keep
        status = await federation.predict(predict_request(model="job", table="train", form=form))
        assert_oracles_scores(status.predictions, HERE.oracle(PARAMS), HERE.parties, 0)
        tree_of: dict[tuple[str, int], int] = {}
        for party in PARTIES[1:]:
            for number, tree in enumerate(read_model(federation.state(party) / "models" / "job")[1]):
                for split in tree["splits"]:
                    tree_of[party, split["handle"]] = number
        walked = [{tree_of[handle] for handle in handles} for _, handles in sorted(asked.items())]
        if form == "batched":
            assert len(walked) <= PARAMS.max_depth
            assert len(walked[0]) > 1
        else:
            assert PARAMS.max_depth < len(walked) <= PARAMS.max_depth * PARAMS.n_estimators
            assert all(len(trees) == 1 for trees in walked)
            order = [min(trees) for trees in walked]
            assert order == sorted(order)
        await federation.close()

    run(main())
