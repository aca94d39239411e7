"""Masked predictions that cannot be: policies, models, options, and messages that do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from party.masked.routes import Routes
from tests.blindness.observed import Observed
from tests.masked.predictions import implied_scores, predicted, scores_of, trained
from tests.pivodl.federations import federation_of, job_of, transparent
from tests.pivodl.jobs import DEEP, fitting
from tests.replay import ask
from tests.simulator import run
from tests.worlds import PARTIES, spec, world
from treetap.errors import ConfigError, DataError
from treetap.models.store import read_job
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import control_pb2, exchange_pb2, prediction_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
FIRST, B, C = PARTIES
HERE = fitting(world(30, (1, 1, 1), seed=25, fresh=6), DEEP)


def _restarted(federation: Observed, party: str, **changes: Any) -> None:
    """Give a party's policy other lines, and start the party again."""
    federation.policies[party] = {**federation.policies[party], **changes}
    federation.kill(party)
    federation.configs[party] = federation.configs[party].under(federation.policy(party))
    federation.start(party)


@pytest.mark.second_tier
def test_records_of_the_training_are_refused_unless_every_policy_says_otherwise(tmp_path: Path) -> None:
    """The error names the party, the rule and where it stands; with the rule everywhere they are scored."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        for party in PARTIES:
            for other in PARTIES:
                _restarted(federation, other, score_training_records=other != party)
            status = await federation.predict(predict_request(model="job", table="train"))
            assert status.state == "failed"
            assert f"{party} takes no part: some of the records common to all parties" in status.error
            assert "score_training_records = false" in status.error
        for name in PARTIES:
            _restarted(federation, name, score_training_records=True)
        assert len(scores_of((await predicted(federation, table="train")).predictions)) == len(HERE.y)
        await federation.close()

    with transparent():
        run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", PARTIES)
def test_a_policy_that_wants_more_paths(party: str, tmp_path: Path) -> None:
    """Few small trees leave fewer paths open than a score has bits."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        _restarted(federation, party, min_candidate_bits=1.0)
        status = await federation.predict(predict_request(model="job"))
        assert status.state == "failed"
        assert (
            f"{party} takes no part: its policy says min_candidate_bits = 1, and the nodes of {FIRST}" in status.error
        )
        await federation.close()

    with transparent():
        run(main())


def test_a_recipient_that_a_policy_does_not_name(tmp_path: Path) -> None:
    """It opens sums, so the others name it under label_holders and let masked shares go to it."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP, label_holders=[FIRST])
        status = await federation.predict(predict_request(model="job", recipient=B))
        assert status.state == "failed"
        assert f'label_holders = [..., "{B}"]' in status.error
        _restarted(federation, FIRST, label_holders=[B])
        _restarted(federation, C, label_holders=[B], emits={"MASKED_SHARE": [FIRST]})
        status = await federation.predict(predict_request(model="job", recipient=B))
        assert status.state == "failed"
        assert f"{C} does not send MASKED_SHARE to {B}: its policy says emits.MASKED_SHARE" in status.error
        _restarted(federation, C, emits={"MASKED_SHARE": [B]})
        assert len(scores_of((await predicted(federation, recipient=B)).predictions)) == len(HERE.new[0])
        await federation.close()

    with transparent():
        run(main())


#: Options → the error.
OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "another protocol": (
        {"protocol": "interactive"},
        "'interactive': does not predict with models of pivodl; use masked",
    ),
    "an encrypted one": ({"protocol": "eini"}, "'eini': does not predict with models of pivodl; use masked"),
    "no party": ({"recipient": "nobody"}, r"recipient = 'nobody': is no party of model job \(label-holder, feature-b"),
    "serving": ({"serve": True}, "serve and protocol 'masked' do not go together: every party"),
    "explanations": ({"explain": True}, "explain and protocol 'masked' do not go together: no party knows all leaf"),
    "attributions": ({"attributions": True}, "attributions and protocol 'masked' do not go together: no party"),
    "weights": (
        {"protocol": "masked", "prediction_weights": "blurred"},
        "prediction_weights = 'blurred': must be one of exact, noised",
    ),
}


def test_requests_that_no_federation_could_do(tmp_path: Path) -> None:
    """They are refused at once; so are noised weights of a job without noise, by the first party that is asked."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        for asked, message in OPTIONS.values():
            with pytest.raises(ConfigError, match=message):
                await federation.predict(predict_request(model="job", **asked))
        noised = predict_request("masked", model="job", prediction_weights="noised")
        status = await federation.predict(noised)
        assert (status.state, status.bad_input) == ("failed", True)
        assert "model job was trained without epsilon" in status.error
        await federation.close()

    with transparent():
        run(main())


def test_models_of_a_label_holder_have_other_protocols(tmp_path: Path) -> None:
    """Masked sums are refused for them, and so is another recipient; a party itself refuses them too."""
    here = world(20, (1, 1, 1), seed=3)

    async def main() -> None:
        job = spec(BoostingParams(n_estimators=1, max_depth=2, max_bin=4), obfuscation="standard")
        federation = federation_of(tmp_path, here, job_of(here, DEEP))
        assert (await federation.train(job)).state == "finished"
        with pytest.raises(ConfigError, match="'masked': does not predict with models of boosting; use interactive or"):
            await federation.predict(predict_request("masked", model="job"))
        with pytest.raises(ConfigError, match=f"recipient = '{B}': the scores of a model of boosting go to its label"):
            await federation.predict(predict_request(model="job", recipient=B))
        status = await federation.predict(predict_request(model="job", recipient=FIRST))
        assert status.state == "finished"
        opening = prediction_pb2.OpenModel(model="job", recipient=FIRST, feature_parties=[B, C], alignment="sorted-ids")
        opening.submission = read_job(federation.state(B) / "models" / "job")["submission"]
        opening.away_policy, opening.parameters.masked.prediction_weights = "fail", "exact"
        request = control_pb2.StepRequest(job="forged", attempt=1)
        filled(request, "open_model", opening)
        with pytest.raises(DataError, match="model job was trained by boosting, and masked does not predict with it"):
            await ask(federation, B, request)
        await federation.close()

    with transparent():
        run(main())


def _shorter(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.masked.score_shares.values = parcel.protocol.masked.score_shares.values[:-8]


def _other_node(parcel: exchange_pb2.PeerMessage) -> None:
    for each in parcel.protocol.masked.arrived_records.nodes:
        each.node += 2


def _a_node_too_many(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.masked.arrived_records.nodes.add(tree=1, node=2, records=b"\0")


def _fewer_bits(parcel: exchange_pb2.PeerMessage) -> None:
    for each in parcel.protocol.masked.arrived_records.nodes:
        each.records = b""


def _everywhere(parcel: exchange_pb2.PeerMessage) -> None:
    for each in parcel.protocol.masked.arrived_records.nodes:
        each.records = b"\x3f"


def _low_order(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.protocol.masked.mask_key.key = bytes(32)


#: Kind of message, what is changed in those that have something to change, and the error.
LIES: dict[str, tuple[str, Callable[[exchange_pb2.PeerMessage], None], str]] = {
    "a share that is too short": ("score_shares", _shorter, "sent 40 bytes of shares, 6 outputs have 48"),
    "records of other nodes": ("arrived_records", _other_node, "passes on records of other nodes than those of"),
    "a node too many": ("arrived_records", _a_node_too_many, "passes on records of other nodes than those of"),
    "too few bits": ("arrived_records", _fewer_bits, "6 bits take 1 bytes, not 0"),
    "a record on both sides": (
        "arrived_records",
        _everywhere,
        "has passed on the same record to two nodes of tree|records that .* did not pass on to node . above",
    ),
    "a key of low order": ("mask_key", _low_order, "is no X25519 key of 32 bytes and full order"),
}


def test_messages_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """The prediction fails with what is wrong and writes nothing; on an honest line the next one succeeds."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        honest = federation.tamper
        for what, (kind, change, message) in LIES.items():
            changed = []

            def tamper(
                sender: str,
                to: str,
                parcel: exchange_pb2.PeerMessage,
                kind: str = kind,
                change: Callable[[exchange_pb2.PeerMessage], None] = change,
                changed: list[str] = changed,
            ) -> exchange_pb2.PeerMessage:
                if name_of(parcel) == kind and sender == B:
                    before = parcel.SerializeToString()
                    change(parcel)
                    changed.extend([to] if parcel.SerializeToString() != before else [])
                return parcel

            federation.tamper = tamper
            status = await federation.predict(predict_request(model="job"))
            assert changed, what
            assert status.state in ("failed", "interrupted"), what
            assert re.search(message, status.error), status.error
            for state in federation.states.values():
                assert list((state / "predictions").iterdir()) == []
        federation.tamper = honest
        status = await predicted(federation)
        assert (scores_of(status.predictions) == implied_scores(federation.states, HERE)).all()
        await federation.close()

    with transparent():
        run(main())


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
