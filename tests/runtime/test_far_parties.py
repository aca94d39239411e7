"""Parties that are far from each other: who has new connections to several peers makes them at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.simulator import Call, Federation, Process, finished
from tests.worlds import PARTIES, spec, world
from treetap.party.config import PartyConfig
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.rpc import GIVE_UP_S

pytestmark = pytest.mark.second_tier

HERE = world(60, (2, 2, 1), seed=5)
SILENCE_S = 5.0
#: Seconds of a round trip, and round trips of a message over a used and a new connection: TCP and TLS to look at the
#: server's certificate, TCP, TLS and settings of gRPC, the call.
ROUND_TRIP_S, USED, NEW = 0.6, 1, 6


class _Far(Federation):
    """Every message between parties takes as long as over such lines; the coordinator is near, and patient."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self._used_at: dict[tuple[str, str], float] = {}
        super().__init__(folder, HERE.tables, silence_s=60.0, **more)

    def _config(self, *about: Any) -> PartyConfig:
        return super()._config(*about).model_copy(update={"silence_s": SILENCE_S})

    async def carry(self, sender: Process, to: str, word: str, call: Call[Any]) -> Any:
        if sender.name not in PARTIES or to not in PARTIES:
            return await super().carry(sender, to, word, call)
        clock, line = asyncio.get_running_loop().time, (sender.name, to)
        idle = clock() - self._used_at.get(line, -GIVE_UP_S) >= GIVE_UP_S
        self._used_at[line] = clock()
        await asyncio.sleep(ROUND_TRIP_S * ((NEW if idle else USED) - 0.5))
        answer = await super().carry(sender, to, word, call)
        await asyncio.sleep(ROUND_TRIP_S / 2)
        self._used_at[line] = clock()
        return answer


@pytest.mark.parametrize("params", [BoostingParams(2, max_depth=2, max_bin=4), ForestParams(2, max_depth=2, max_bin=4)])
async def test_a_round_trip_of_600_ms_trains_and_predicts(
    params: BoostingParams | ForestParams, tmp_path: Path
) -> None:
    """With the shortest silence, though every connection is new: no party waits for what goes to another one first."""
    with ciphers(KeysMade(), transparent=True):  # arithmetic takes no virtual time
        federation = _Far(tmp_path)
        finished(await federation.train(spec(params, alignment="psi")))
        for form in ("batched", "per-tree"):
            finished(await federation.predict(predict_request(model="job", job=form, form=form)))
