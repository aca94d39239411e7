"""Masked sums: scores and refusals.

- Prediction with masked sums: the scores are those of the model, whoever gets them, and shares show nothing.
- Masked predictions that cannot be: policies, models, options, and messages that do not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.blindness.observed import Observed
from tests.masked.predictions import implied_scores, predicted, scores_of, trained
from tests.pivodl.federations import centralised, federation_of, job_of, transparent
from tests.pivodl.jobs import DEEP, WITHOUT_SPLITS, fitting
from tests.pivodl.worlds import OBJECTIVES, binned, some_params, some_world
from tests.replay import ask
from tests.worlds import PARTIES, World, spec, world
from treetap.errors import DataError
from treetap.models.store import read_job
from treetap.party.masked.passing import Routes
from treetap.party.policy import merged
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.frame import filled
from treetap.wire.v2 import control_pb2, exchange_pb2, prediction_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")

FIRST, B, C = PARTIES
WIDE = fitting(world(40, (1, 1, 1), seed=25, fresh=20), DEEP)
HERE = fitting(world(30, (1, 1, 1), seed=25, fresh=6), DEEP)


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


def _restarted(federation: Observed, party: str, **changes: Any) -> None:
    """Give a party's policy other lines, and start the party again."""
    federation.policies[party] = merged(federation.policies[party], changes)
    federation.kill(party)
    federation.configs[party] = federation.configs[party].under(federation.policy(party))
    federation.start(party)


@pytest.mark.second_tier
async def test_records_of_the_training_are_refused_unless_every_policy_says_otherwise(tmp_path: Path) -> None:
    """The error names the party, the rule and where it stands; with the rule everywhere they are scored."""
    with transparent():
        federation = await trained(tmp_path, HERE, DEEP)
        for party in PARTIES:
            for other in PARTIES:
                _restarted(federation, other, labels={"score_training_records": other != party})
            status = await federation.predict(predict_request(model="job", table="train"))
            assert status.state == "failed"
            assert f"{party} takes no part in a prediction of records" in status.error
            assert "score_training_records = false" in status.error
        for name in PARTIES:
            _restarted(federation, name, labels={"score_training_records": True})
        assert len(scores_of((await predicted(federation, table="train")).predictions)) == len(HERE.y)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", PARTIES)
async def test_a_policy_that_wants_more_paths(party: str, tmp_path: Path) -> None:
    """Few small trees leave fewer paths open than a score has bits."""
    with transparent():
        federation = await trained(tmp_path, HERE, DEEP)
        _restarted(federation, party, columns={"min_candidate_bits": 1.0})
        status = await federation.predict(predict_request(model="job"))
        assert status.state == "failed"
        assert (
            f"{party} takes no part: its policy says min_candidate_bits = 1, and the nodes of {FIRST}" in status.error
        )


async def test_a_recipient_that_a_policy_does_not_name(tmp_path: Path) -> None:
    """It opens sums, so the others name it under label_holders and let masked shares go to it."""
    with transparent():
        federation = await trained(tmp_path, HERE, DEEP, people={"label_holders": [FIRST]})
        status = await federation.predict(predict_request(model="job", recipient=B))
        assert status.state == "failed"
        assert f'label_holders = [..., "{B}"]' in status.error
        _restarted(federation, FIRST, people={"label_holders": [B]})
        _restarted(federation, C, people={"label_holders": [B]}, emits={"MASKED_SHARE": [FIRST]})
        status = await federation.predict(predict_request(model="job", recipient=B))
        assert status.state == "failed"
        assert f"{C} does not send MASKED_SHARE to {B}: its policy says emits.MASKED_SHARE" in status.error
        _restarted(federation, C, emits={"MASKED_SHARE": [B]})
        assert len(scores_of((await predicted(federation, recipient=B)).predictions)) == len(HERE.new[0])
        status = await federation.predict(predict_request("masked", model="job", prediction_weights="noised"))
        assert (status.state, status.bad_input) == ("failed", True)
        assert "model job was trained without epsilon" in status.error


async def test_models_of_a_label_holder_have_other_protocols(tmp_path: Path) -> None:
    """Masked sums are refused for them, and so is another recipient; a party itself refuses them too."""
    here = world(20, (1, 1, 1), seed=3)

    with transparent():
        job = spec(BoostingParams(n_estimators=1, max_depth=2, max_bin=4), obfuscation="standard")
        federation = federation_of(tmp_path, here, job_of(here, DEEP))
        assert (await federation.train(job)).state == "finished"
        status = await federation.predict(predict_request(model="job", recipient=FIRST))
        assert status.state == "finished"
        opening = prediction_pb2.OpenModel(model="job", recipient=FIRST, feature_parties=[B, C], alignment="sorted-ids")
        opening.submission = read_job(federation.state(B) / "models" / "job")["submission"]
        opening.away_policy, opening.parameters.masked.prediction_weights = "fail", "exact"
        request = control_pb2.StepRequest(job="forged", attempt=1)
        filled(request, "open_model", opening)
        with pytest.raises(DataError, match="model job was trained by boosting, and masked does not predict with it"):
            await ask(federation, B, request)


def test_bits_that_a_party_leaves_open() -> None:
    """Two leaves look the same to a party that sees none of the nodes that tell them apart."""
    line = {
        "nodes": [{"node": 1, "source": "a"}, {"node": 2, "source": "b"}, {"node": 3, "source": "c"}],
        "leaves": [{"node": node, "keeper": keeper} for node, keeper in ((4, "c"), (5, "c"), (6, "b"), (7, "b"))],
    }
    routes = Routes([line, line])
    assert routes.levels == 2
    assert routes.path_bits() == 4.0
    assert routes.hidden_bits("a") == 2.0  # sees the first split, and of either side two leaves
    assert routes.hidden_bits("b") == 0.0  # sees its split on one side, its leaves on the other
    assert routes.hidden_bits("d") == 4.0
    assert routes.children("a", "b", 0) == [(0, 2), (1, 2)]
    assert routes.roots("a") == [(0, 1), (1, 1)]
    assert routes.most_children("b") == 4
