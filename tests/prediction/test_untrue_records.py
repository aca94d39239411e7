"""Records of a prediction that a label holder makes up: refused by name, and answered where the check is taken out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, spec, world
from treetap.errors import Malformed
from treetap.models.store import read_model
from treetap.party.interactive.feature_party import FeatureParty
from treetap.party.masked.passing import Routes, Standing
from treetap.party.prediction.steps import TakenBlocks
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, B, _ = PARTIES
#: A world in which a feature party has splits below its own ones.
HERE, FRESH = world(60, (1, 3), seed=3, fresh=12), 12
PARAMS = BoostingParams(n_estimators=3, max_depth=4, max_bin=8, min_child_weight=0.1)
REMEDY = f"ask {LABEL_HOLDER} what it runs before any other job with it"
Lie = Callable[[Any], bool]


async def _predicted(folder: Path, kind: str, answer: str, lie: Lie, **asked: Any) -> tuple[str, bool]:
    """The error of a prediction in which a feature party is lied to, and True if it answered the lie."""
    lied: list[tuple[str, int, int]] = []
    answers: list[bool] = []

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(folder, HERE.tables, silence_s=5.0)
        status = finished(await federation.train(spec(PARAMS, parties=2, obfuscation="standard")))
        lie.above = _above(federation.state(B))  # type: ignore[attr-defined]

        def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
            if lied:
                answers.append((name_of(parcel), parcel.round, parcel.stage) == lied[0])
            elif (to, name_of(parcel)) == (B, kind) and lie(parcel):
                lied.append((answer, parcel.round, parcel.stage))

        federation.tamper = tamper
        status = await federation.predict(predict_request(model="job", **asked))
        await federation.close()
    assert lied
    return status.error, any(answers)


def _above(state: Path) -> dict[int, int]:
    """Own split of the feature party → an own one above it."""
    lines = read_model(state / "models" / "job")[1]
    return {int(way[k][0]): int(way[k - 1][0]) for line in lines for way in line["leaves"] for k in range(1, len(way))}


def _strayed(parcel: Any) -> bool:
    """As many other records are asked about at a split that lies below another of the party's."""
    for query in parcel.protocol.interactive.route_queries.queries:
        rows = rows_of([query.records], FRESH)
        if query.handle in _strayed.above and 0 < len(rows) <= FRESH // 2:  # type: ignore[attr-defined]
            others = np.setdiff1d(np.arange(FRESH), rows)[: len(rows)]
            query.records.CopyFrom(next(iter(chunks_of(others, FRESH))))
            return True
    return False


async def test_records_that_an_own_split_sends_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label holder asks at a lower split about records that never came there, to learn a further bit of each."""
    error, answered = await _predicted(tmp_path / "checked", "route_queries", "route_answers", _strayed)
    assert error.startswith(f"Malformed: {LABEL_HOLDER} sent, of split ")
    assert "above it sends to the other side" in error
    assert REMEDY in error
    assert not answered
    made = FeatureParty.__init__

    def unchecked(self: FeatureParty, job: Any) -> None:
        made(self, job)
        self._above = {}

    monkeypatch.setattr(FeatureParty, "__init__", unchecked)
    error, answered = await _predicted(tmp_path / "unchecked", "route_queries", "route_answers", _strayed)
    assert "sends to the other side" not in error
    assert answered


@pytest.mark.second_tier
async def test_records_of_an_earlier_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that holds a record once more, of which a second encrypted answer would be made."""
    first: list[Any] = []

    def again(parcel: Any) -> bool:
        chunk = parcel.prediction.block_records.chunks[0]
        if not first:
            first.extend(rows_of([chunk], FRESH).tolist())
            return False
        rows = rows_of([chunk], FRESH).tolist()
        chunk.CopyFrom(next(iter(chunks_of(np.array(sorted([*rows[1:], first[0]])), FRESH))))
        return True

    asked = {"protocol": "eini", "block": 4}
    error, answered = await _predicted(tmp_path / "checked", "block_records", "leaf_sums", again, **asked)
    assert f"{LABEL_HOLDER} sent, in block 1, 1 records that were in a block before" in error
    assert REMEDY in error
    assert not answered
    first.clear()
    monkeypatch.setattr(TakenBlocks, "_check_new", lambda *_: None)
    error, answered = await _predicted(tmp_path / "unchecked", "block_records", "leaf_sums", again, **asked)
    assert "in a block before" not in error


def test_records_that_were_not_passed_on() -> None:
    """Masked sums: below a node of another party only those arrive that this one has sent there."""
    line = {
        "nodes": [{"node": 1, "source": "a"}, {"node": 2, "source": "b"}],
        "leaves": [{"node": node, "keeper": keeper} for node, keeper in ((3, "b"), (4, "a"), (5, "b"))],
    }
    left = np.array([1, 1, 0, 0, 1], dtype=bool)

    def standing() -> Standing:
        made = Standing(Routes([line]), "a", 5)
        made.split(0, lambda _: left)
        made.split(1, lambda _: left)
        return made

    made = standing()
    made.take("b", 1, [((0, 4), left & (np.arange(5) > 0))])
    made.check()
    untrue = np.array([1, 0, 1, 0, 0], dtype=bool)
    fault = "b passed on, to node 4 of tree 0, records that a did not pass on to node 2 above; no party that follows"
    with pytest.raises(Malformed, match=fault):
        standing().take("b", 1, [((0, 4), untrue)])
    unchecked = standing()
    unchecked._passed.clear()
    unchecked.take("b", 1, [((0, 4), untrue)])
    unchecked.check()
    weights = {(0, 4): np.array([7], dtype=np.uint64)}
    assert unchecked.sums(weights, 1).ravel().tolist() == [7, 0, 7, 0, 0]  # of a record that never came
