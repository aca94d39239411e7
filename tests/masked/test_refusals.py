"""Masked predictions that cannot be: policies, models, options, and messages that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.blindness.observed import Observed
from tests.masked.predictions import predicted, scores_of, trained
from tests.pivodl.federations import federation_of, job_of, transparent
from tests.pivodl.jobs import DEEP, fitting
from tests.replay import ask
from tests.worlds import PARTIES, spec, world
from treetap.errors import DataError
from treetap.models.store import read_job
from treetap.party.masked.passing import Routes
from treetap.party.policy import merged
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import filled
from treetap.wire.v2 import control_pb2, prediction_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
FIRST, B, C = PARTIES
HERE = fitting(world(30, (1, 1, 1), seed=25, fresh=6), DEEP)


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
