"""JSON of the HTTP endpoint: figures by class under the names of a file of predictions, and faults in plain words."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import ValidationError

from treetap.ops.gateway import http
from treetap.ops.gateway.http_json import document, faults_of_request, predict_reply, predict_request
from treetap.wire.v2 import serving_pb2

FORM = predict_request(256)


def _reply(classes: list[str], label: str, probabilities: list[float], scores: list[float]) -> dict[str, object]:
    row = serving_pb2.RecordPrediction(
        id="a", status=serving_pb2.PREDICTED, label=label, probabilities=probabilities, scores=scores
    )
    if not classes:
        row = serving_pb2.RecordPrediction(id="a", status=serving_pb2.PREDICTED, value=1.5, scores=scores)
    answer = serving_pb2.PredictedRecords(
        model="m", job="j", classes=classes, class_type=serving_pb2.CLASS_TEXT, predictions=[row]
    )
    (found,) = json.loads(predict_reply(answer, ["a"]).model_dump_json(exclude_none=True))["predictions"]
    return dict(found)


@pytest.mark.parametrize(
    ("classes", "label", "probabilities", "scores", "figures"),
    [
        (["no", "yes"], "yes", [0.75], [1.1], {"prediction": "yes", "probability_yes": 0.75, "score": 1.1}),
        (["a", "b\t%"], "a", [0.25], [-1.0], {"prediction": "a", "probability_b%09%25": 0.25, "score": -1.0}),
        (
            ["a", "b c"],
            "a",
            [0.75, 0.25],
            [3.0, 1.0],
            {"prediction": "a", "probability_a": 0.75, "probability_b c": 0.25, "score_a": 3.0, "score_b c": 1.0},
        ),
        ([], "", [], [1.5], {"prediction": 1.5, "score": 1.5}),
    ],
)
def test_a_figure_of_a_class_has_its_name(
    classes: list[str], label: str, probabilities: list[float], scores: list[float], figures: dict[str, object]
) -> None:
    """As in a file of predictions; every member is one that the OpenAPI document describes."""
    found = _reply(classes, label, probabilities, scores)
    assert found == {"id": "a", "status": "predicted", **figures}
    described = document(FORM, secured=True)["components"]["schemas"]["RecordPrediction"]
    assert described["additionalProperties"] is False
    patterns = list(described["patternProperties"])
    assert patterns == ["^probability_", "^score_"]
    for name in found:
        assert name in described["properties"] or any(re.search(pattern, name) for pattern in patterns)


def test_a_record_of_which_no_query_is_left_names_the_party() -> None:
    """In a request with one id as a fault of its own, which names it too."""
    row = serving_pb2.RecordPrediction(id="a", status=serving_pb2.QUERIES_SPENT, party="shop")
    answer = serving_pb2.PredictedRecords(model="m", job="j", predictions=[row])
    (found,) = json.loads(predict_reply(answer, ["a"]).model_dump_json(exclude_none=True))["predictions"]
    assert found == {"id": "a", "status": "queries_spent", "party": "shop"}
    fault = http._fault(row)
    assert fault is not None
    text = json.loads(str(fault.text))
    assert (fault.status, text["record"], text["party"]) == (403, "queries_spent", "shop")
    assert "shop answers no more queries of this record" in str(fault.text)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"ids": [str(k) for k in range(257)]}, "ids: name at most 256 in one request, and the others in further ones"),
        ({}, 'ids: must name the records to predict, such as ["a17"]'),
        ({"ids": []}, 'ids: must name the records to predict, such as ["a17"]'),
        ({"ids": ["a", 7.5]}, "ids[1]: an id is text of 1 to 1,024 characters, or a whole number of 64 bits"),
        ({"ids": ["a"], "deadline_s": 0}, "deadline_s: must be a number of seconds above 0"),
        ({"ids": ["a"], "id\n": 1}, "id\\n: is unknown; a request has ids, model, deadline_s; did you mean 'ids'?"),
        ([], 'the body must be an object, such as {"ids": ["a17"]}'),
    ],
)
def test_a_fault_says_what_a_request_must_be(body: object, said: str) -> None:
    """In the words of treetap, not of the library that found it."""
    with pytest.raises(ValidationError) as failure:
        FORM.model_validate_json(json.dumps(body))
    assert faults_of_request(failure.value) == said


def test_many_faults_are_counted() -> None:
    """The answer to a request of nothing but faults stays short."""
    with pytest.raises(ValidationError) as failure:
        FORM.model_validate_json(json.dumps({"ids": [7.5] * 256, "model": "Not a name"}))
    said = faults_of_request(failure.value)
    assert said.startswith("ids[0]: an id is text")
    assert said.endswith("; and 249 more")
    with pytest.raises(ValidationError) as failure:
        FORM.model_validate_json("{")
    assert faults_of_request(failure.value).startswith("the body is not JSON: EOF while parsing")
