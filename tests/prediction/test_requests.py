"""Predictions that nobody could do: refused where the request is read, by the option's name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pivodl.jobs import PARAMS as PIVODL
from tests.replay import PARAMS
from tests.splitnn.jobs import PARAMS as NETWORK
from tests.worlds import SIX, spec
from treetap.coordinator.prediction import opening_of
from treetap.errors import ConfigError
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import setup_pb2

OF_TREES, OF_SIX, OF_PIVODL, OF_NETWORK = spec(PARAMS), spec(PARAMS, len(SIX)), spec(PIVODL), spec(NETWORK)


@pytest.mark.parametrize(
    ("job", "asked", "named"),
    [
        (OF_TREES, {"protocol": "magic"}, "protocol = 'magic': must be one of interactive, eini, eini-lattice"),
        (OF_TREES, {"protocol": "eini", "key_bits": 1000}, "key_bits = 1000: must be"),
        (OF_TREES, {"protocol": "interactive", "form": "sideways"}, "form = 'sideways': must be one of"),
        (OF_TREES, {"protocol": "masked"}, "'masked': does not predict with models of boosting; use interactive or"),
        (OF_TREES, {"recipient": "feature-b"}, "recipient = 'feature-b': the scores of a model of boosting go to its"),
        (
            OF_TREES,
            {"protocol": "eini", "attributions": True, "explain_limit": 3},
            "explain-limit = 3: is an option",
        ),
        (OF_SIX, {"protocol": "eini", "attributions": True}, "attributions: 5 feature parties are too many"),
        (OF_PIVODL, {"protocol": "interactive"}, "'interactive': does not predict with models of pivodl; use masked"),
        (OF_PIVODL, {"protocol": "eini"}, "'eini': does not predict with models of pivodl; use masked"),
        (OF_PIVODL, {"recipient": "nobody"}, r"recipient = 'nobody': is no party of model job \(label-holder, feature"),
        (OF_PIVODL, {"protocol": "masked", "prediction_weights": "blurred"}, "prediction_weights = 'blurred': must be"),
        (OF_NETWORK, {"protocol": "interactive"}, "does not predict with models of splitnn; use splitnn"),
    ],
)
def test_a_request_is_refused_by_name(job: setup_pb2.JobSpec, asked: dict[str, Any], named: str) -> None:
    """Before any party is asked; options that do not go together are rows of the exclusions."""
    with pytest.raises(ConfigError, match=named):
        opening_of(predict_request(model="job", **asked), job, "submission", "word")
