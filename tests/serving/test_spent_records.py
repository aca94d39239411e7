"""A served model goes on where a feature party permits no further query of a record: its client hears it by name."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle import OracleSplit, oracle_predict
from tests.replay import HERE, ORACLE, PARAMS
from tests.serving.served import EXACT, IDS, LABEL_HOLDER, WAYS, B, C, ask, config, serve, serving, tolerance
from tests.simulator import Federation
from tests.worlds import World, spec, world
from treetap.party.prediction.query_counts import QueryCounts
from treetap.party.prediction.records import ServedPrediction
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import serving_pb2


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", WAYS)
async def test_a_spent_record_is_refused_by_name_and_the_model_is_served_on(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the edge, beside another record in one request; the score in its place is that of columns that are not its."""
    kept = list[tuple[list[int], list[float]]]()
    keep = ServedPrediction.keep

    def noted(self: Any, rows: Any, scores: Any, *more: Any) -> None:
        kept.append((rows.tolist(), scores[:, 0].tolist()))
        keep(self, rows, scores, *more)

    monkeypatch.setattr(ServedPrediction, "keep", noted)
    elsewhere = [(party, np.full_like(columns, np.inf) if party == C else columns) for party, columns in HERE.newcomers]
    placeholder = np.array(oracle_predict(ORACLE, elsewhere))[:, 0]
    place = int(np.argmax(np.abs(placeholder - EXACT)))
    other_place = (place + 1) % len(IDS)
    assert abs(placeholder[place] - EXACT[place]) > 0.01
    limit = {"partners": {LABEL_HOLDER: {"queries_per_record": 2}}}

    async with serving(tmp_path, WAYS[way], policies={C: limit}) as federation:
        for _ in range(2):
            answer = await ask(federation, IDS[place])
            assert answer.predictions[0].status == serving_pb2.PREDICTED
        spent, other = (await ask(federation, IDS[place], IDS[other_place])).predictions
        assert (spent.status, spent.party) == (serving_pb2.QUERIES_SPENT, C)
        assert (list(spent.scores), spent.label) == ([], "")
        assert (other.status, other.party) == (serving_pb2.PREDICTED, "")
        assert other.scores[0] == pytest.approx(EXACT[other_place], abs=tolerance(way))
        rows, scores = kept[-1]
        assert len(rows) == 2
        assert sorted(scores) == pytest.approx(sorted([placeholder[place], EXACT[other_place]]), abs=tolerance(way))
        assert (await ask(federation, IDS[place])).predictions[0].party == C
        assert QueryCounts(federation.states[C], LABEL_HOLDER).most() == 2
        (status,) = federation.jobs.status("s")
        assert (status.state, status.error) == ("running", "")


async def test_two_parties_limits_hold_each_by_itself(tmp_path: Path) -> None:
    """The first to be reached ends the queries; the other party has counted those that it was asked for."""
    limits = {B: 3, C: 1}
    policies = {party: {"partners": {LABEL_HOLDER: {"queries_per_record": most}}} for party, most in limits.items()}

    async with serving(tmp_path, WAYS["eini"], policies=policies) as federation:
        said = [(await ask(federation, IDS[2])).predictions[0].party for _ in range(5)]
        assert said == ["", C, C, C, C]
        ((_, labels, records),) = federation.node(C)._metrics.samples("treetap_unanswered_records_total")
        assert (labels, records) == ({"peer": LABEL_HOLDER}, 4)
        assert QueryCounts(federation.states[B], LABEL_HOLDER).most() == 3
        assert QueryCounts(federation.states[C], LABEL_HOLDER).most() == 1


def _strays(here: World, params: BoostingParams) -> int:
    """The queries at a split of C's, to the right of one that sends the record left, of records that C calls spent."""
    columns, strays = dict(here.newcomers), 0
    for tree, record in itertools.product(here.oracle(params), range(len(here.newcomers[0][1]))):
        node, above = 1, False
        while isinstance(split := tree.nodes[node], OracleSplit):
            value = columns[split.owner][record, split.feature]
            left = split.missing_left if np.isnan(value) else bool(value < split.cut)
            if split.owner == C:
                strays, above, left = strays + above, left, False
            node = 2 * node + (not left)
    return strays


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", ["interactive", "per-tree"])
async def test_splits_of_one_party_below_each_other(way: str, tmp_path: Path) -> None:
    """A spent record is asked about further down, to the right of a split that sends it left: that is no lie."""
    params = replace(PARAMS, max_depth=3)
    here = world(40, (0, 1, 2), seed=1, fresh=6)
    ids = [f"r{40 + place:05d}" for place in range(6)]
    assert _strays(here, params) > 0

    policies = {C: {"partners": {LABEL_HOLDER: {"queries_per_record": 1}}}}
    federation = Federation(tmp_path, here.tables, serve={LABEL_HOLDER: config()}, policies=policies)
    assert (await federation.train(spec(params, obfuscation="standard"))).state == "finished"
    await serve(federation, **WAYS[way])
    first, second = [(await ask(federation, *ids)).predictions for _ in range(2)]
    assert {each.status for each in first} == {serving_pb2.PREDICTED}
    assert [each.party for each in second] == [C] * len(ids)
    (status,) = federation.jobs.status("s")
    assert (status.state, status.error) == ("running", "")
