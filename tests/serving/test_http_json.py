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
        ({}, 'the body must be an object with ids or records, such as {"ids": ["a17"]}'),
        ({"ids": []}, 'ids: must name the records to predict, such as ["a17"]'),
        ({"ids": ["a", 7.5]}, "ids[1]: an id is text of 1 to 1,024 characters, or a whole number of 64 bits"),
        ({"ids": ["a"], "deadline_s": 0}, "deadline_s: must be a number of seconds above 0"),
        (
            {"ids": ["a"], "id\n": 1},
            "id\\n: is unknown; a request has ids, records, model, deadline_s, reasons; did you mean 'ids'?",
        ),
        ([], 'the body must be an object with ids or records, such as {"ids": ["a17"]}'),
        (
            {"records": [{"id": "a", "fields": {}}] * 257},
            "records: name at most 256 in one request, and the others in further ones",
        ),
        (
            {"records": {}},
            'records: must be new ones with their fields, such as [{"id": "a17", "fields": {"age": 41}}]',
        ),
        (
            {"records": [{"id": "a", "fields": {"age": [1]}}]},
            "records[0]: a record has an id and fields, of columns with numbers, texts, true, false or null; an id is "
            "text of 1 to 1,024 characters, or a whole number of 64 bits",
        ),
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


def test_new_records_keep_the_types_of_their_cells() -> None:
    """Beside ids, before which their answers do not come; a whole number stays one, null is no value."""
    cells = {"age": 41, "income": 2.5, "kind": "a", "owns": True, "born": None}
    form = FORM.model_validate_json(json.dumps({"ids": ["b"], "records": [{"id": 7, "fields": cells}]}))
    asked = form.message()
    assert (list(asked.ids), asked.records[0].id, form.named) == (["b"], "7", ["b", 7])
    found = {one.column: one.WhichOneof("value") for one in asked.records[0].fields}
    assert found == {"age": "whole", "income": "number", "kind": "text", "owns": "truth", "born": None}
    answer = serving_pb2.PredictedRecords(
        predictions=[
            serving_pb2.RecordPrediction(status=serving_pb2.NOT_COMMON, party="telco"),
            serving_pb2.RecordPrediction(status=serving_pb2.INVALID, fault="column 'age' is missing"),
        ]
    )
    rows = [row.model_dump(exclude_none=True) for row in predict_reply(answer, form.named).predictions]
    assert rows == [
        {"id": "b", "status": "not_common", "party": "telco"},
        {"id": 7, "status": "invalid", "fault": "column 'age' is missing"},
    ]


def test_reasons_are_said_where_they_were_asked_for() -> None:
    """By name, or as not nameable by their number; a request without them has no such members."""
    reasons = [serving_pb2.Reason(party="bank", number=2, column="age"), serving_pb2.Reason(party="telco", number=1)]
    entry = serving_pb2.RecordPrediction(
        id="a", status=serving_pb2.PREDICTED, value=1.0, scores=[1.0], reasons=reasons, unreasoned=["shop"]
    )
    answer = serving_pb2.PredictedRecords(model="m", job="j", predictions=[entry])
    (record,) = predict_reply(answer, ["a"], reasons=True).model_dump(exclude_none=True)["predictions"]
    assert record["unreasoned"] == ["shop"]
    assert record["reasons"] == [
        {"party": "bank", "column": "age", "number": 2, "nameable": True},
        {"party": "telco", "number": 1, "nameable": False},
    ]
    (plain,) = predict_reply(answer, ["a"]).model_dump(exclude_none=True)["predictions"]
    assert not {"reasons", "unreasoned"} & plain.keys()
