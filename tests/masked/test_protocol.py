"""Prediction with masked sums: the scores are those of the model, whoever gets them, and shares show nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.masked.predictions import implied_scores, predicted, scores_of, trained
from tests.pivodl.federations import centralised, transparent
from tests.pivodl.jobs import DEEP, WITHOUT_SPLITS, fitting
from tests.pivodl.worlds import OBJECTIVES, binned, some_params, some_world
from tests.worlds import PARTIES, World, world
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
FIRST, B, C = PARTIES
WIDE = fitting(world(40, (1, 1, 1), seed=25, fresh=20), DEEP)


def _model_scores(here: World, params: PivodlParams) -> Any:
    """Scores (n, K) of the new records by the centralised model, in the unit of the label."""
    model = centralised(here, params)
    tables = dict(binned(here, params))
    scores = model.predict([(name, tables[name].encode(block)) for name, block in here.newcomers])
    return scores * model.loss.label_scale + model.loss.base_score if params.regression else scores


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("parties", [2, 3, 4])
async def test_scores_are_those_of_the_model(objective: str, parties: int, tmp_path: Path) -> None:
    """Each party in turn gets, block by block, the sums of the stored weights in fixed point, to the last bit."""
    params = some_params(parties, **OBJECTIVES[objective], gamma=0.0)
    here = some_world(10 + parties, params.objective, parties)

    with transparent():
        federation = await trained(tmp_path, here, params)
        expected = implied_scores(federation.states, here)
        assert np.abs(expected - _model_scores(here, params)).max() < 1e-9 * max(1.0, np.abs(expected).max())
        for recipient in here.tables:
            status = await predicted(federation, recipient=recipient, block=4)
            assert Path(status.predictions).is_relative_to(federation.state(recipient))
            assert (scores_of(status.predictions) == expected).all()


async def test_trees_without_splits(tmp_path: Path) -> None:
    """Their weights are kept by the encryption party, and every record has the same score."""
    here = fitting(WIDE, WITHOUT_SPLITS)

    with transparent():
        federation = await trained(tmp_path, here, WITHOUT_SPLITS)
        status = await predicted(federation)
        assert (scores_of(status.predictions) == implied_scores(federation.states, here)).all()


@pytest.mark.second_tier
async def test_noised_weights_are_those_of_the_release(tmp_path: Path) -> None:
    """Scores are sums of the weights that the sources got, not of the exact ones."""
    params = PivodlParams(**{**vars(DEEP), "epsilon": 8.0})

    with transparent():
        federation = await trained(tmp_path, WIDE, params)
        noised = implied_scores(federation.states, WIDE, "released")
        exact = implied_scores(federation.states, WIDE)
        assert (scores_of((await predicted(federation)).predictions) == exact).all()
        status = await predicted(federation, protocol="masked", prediction_weights="noised")
        assert (scores_of(status.predictions) == noised).all()
        assert (noised != exact).any()


@pytest.mark.second_tier
async def test_shares_are_masked_afresh_in_every_prediction(tmp_path: Path) -> None:
    """The same records twice: no element of any share comes again, and all are spread over the whole ring."""
    with transparent():
        federation = await trained(tmp_path, WIDE, DEEP)
        for _ in range(2):
            await predicted(federation, block=7)
        shares = [
            (sender, message.protocol.masked.score_shares.values)
            for sender, _, step, message in federation.crossed
            if step == "score_shares" and isinstance(message, exchange_pb2.PeerMessage)
        ]
        assert {sender for sender, _ in shares} == {B, C}
        elements = np.concatenate([np.frombuffer(values, dtype="<u8") for _, values in shares])
        assert len(elements) == len(set(elements.tolist())) == 2 * 2 * len(WIDE.new[0])
        bits = np.unpackbits(elements.view(np.uint8))  # 5,120, of which half are ones, by a deviation of 0.7 %
        assert 0.45 < bits.mean() < 0.55


async def test_files_have_the_classes_and_the_regressions_unit(tmp_path: Path) -> None:
    """The recipient writes classes by the names of the job; values of a regression are in the label's own unit."""
    params = some_params(3, **OBJECTIVES["softmax"], gamma=0.0)
    here = some_world(13, params.objective, 3)

    with transparent():
        federation = await trained(tmp_path, here, params)
        found = pq.read_table((await predicted(federation)).predictions).sort_by("id")
        scores = np.stack([found.column(f"score_{name}").to_numpy() for name in params.classes], axis=1)
        assert found.column("prediction").to_pylist() == [params.classes[k] for k in scores.argmax(axis=1)]
