"""The JSON messages of the HTTP endpoint: models that validate them, and the OpenAPI 3.1 document made of these."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.json_schema import models_json_schema
from pydantic_core import ErrorDetails

from treetap.errors import did_you_mean, visible
from treetap.names import NAME, NAME_RULE, of_class
from treetap.strict import Name
from treetap.version import package_version
from treetap.wire.v2 import serving_pb2

#: Most bytes of a request's body, in HTTP and in gRPC.
MOST_BODY = 1024 * 1024
#: Most characters of an id.
ID_CHARACTERS = 1024
#: Seconds that a client may take for the TLS handshake, for a request's head, and for its body.
SLOWEST_S = 10.0
#: Seconds that a connection may be idle between two requests.
IDLE_S = 60.0


def _whole(value: object) -> object:
    """A whole number that JSON writes with a point, as 7.0, as far as it is exact."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


#: As in files of ids, or a whole number as 64 bits hold it.
Id = (
    Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=ID_CHARACTERS),
        Field(json_schema_extra={"pattern": r"\S"}),  # since white space at the ends does not count
    ]
    | Annotated[int, Field(ge=-(2**63), lt=2**64), BeforeValidator(_whole)]
)
#: A class in the type that it has in the label's table.
Class = bool | int | float | str
#: Outcome of one record in JSON.
Status = Literal["predicted", "unknown_id", "not_common", "queries_spent", "invalid"]
STATUS: dict[serving_pb2.RecordStatus.ValueType, Status] = {
    serving_pb2.PREDICTED: "predicted",
    serving_pb2.UNKNOWN_ID: "unknown_id",
    serving_pb2.NOT_COMMON: "not_common",
    serving_pb2.QUERIES_SPENT: "queries_spent",
    serving_pb2.INVALID: "invalid",
}
#: A cell of a record; null where it has no value.
Cell = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | str | None


class NewRecord(BaseModel):
    """A record that the label holder's table lacks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Id
    fields: Annotated[
        dict[str, Cell], Field(description="The label holder's columns of the model; null where there is no value.")
    ]


class PredictRequest(BaseModel):
    """The ids of the records to predict, or records that are in no table yet."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"anyOf": [{"required": ["ids"]}, {"required": ["records"]}]}
    )

    ids: Annotated[list[Id], Field(min_length=1, description="Ids of the prediction table.")] = []
    records: Annotated[
        list[NewRecord], Field(min_length=1, description="Of a model with look-ups; answered after the ids.")
    ] = []
    model: Annotated[
        Annotated[Name, Field(json_schema_extra={"pattern": NAME.pattern.replace(r"\Z", "$")})] | None,
        Field(description="Name of a served model; optional if only one is served."),
    ] = None
    deadline_s: Annotated[
        float | None, Field(gt=0, description="Seconds to wait for the answer, if fewer than the server allows.")
    ] = None
    reasons: Annotated[
        int,
        Field(ge=0, le=16, description="Most reasons of each record; the model is served with reasons."),
        BeforeValidator(_whole),
    ] = 0

    @model_validator(mode="after")
    def _asks(self) -> PredictRequest:
        if not self.named:
            raise ValueError("names no record")
        return self

    @property
    def named(self) -> list[str | int]:
        """The ids of all records, in the order of the answer."""
        return [*self.ids, *(record.id for record in self.records)]

    def message(self) -> serving_pb2.PredictRecords:
        """The request to the party."""
        return serving_pb2.PredictRecords(
            model=self.model or "",
            ids=map(str, self.ids),
            reasons=self.reasons,
            records=[
                serving_pb2.NewRecord(id=str(record.id), fields=map(_field, record.fields.items()))
                for record in self.records
            ],
        )


class Reason(BaseModel):
    """A column that moved a record's score towards the refused class."""

    party: str
    column: Annotated[str | None, Field(description="Its name, if nameable.")] = None
    number: Annotated[int, Field(description="Its number among those of the party, from 1.")]
    nameable: Annotated[bool, Field(description="False where the party keeps the name of its column.")]


#: Type of a cell → its field.
_FIELDS = {bool: "truth", int: "whole", float: "number", str: "text"}


def _field(cell: tuple[str, Any]) -> serving_pb2.OwnField:
    column, value = cell
    return serving_pb2.OwnField(column=column, **({} if value is None else {_FIELDS[type(value)]: value}))


def _with_figures_of_classes(schema: dict[str, Any]) -> None:
    """Describe the members whose names have a class in them."""
    schema["additionalProperties"] = False
    schema["patternProperties"] = {
        "^probability_": {
            "type": "number",
            "description": "The probability of a class, as `probability_yes`: of two classes that of the second.",
        },
        "^score_": {"type": "number", "description": "The score of a class, where the model has one for each."},
    }


class RecordPrediction(BaseModel):
    """The answer for one record, with the column names of a file of predictions."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_with_figures_of_classes)
    __pydantic_extra__: dict[str, float] = Field(init=False)

    id: Annotated[str | int, Field(description="As it was requested.")]
    status: Annotated[
        Status,
        Field(
            description="predicted; unknown_id: the label holder lacks the record; not_common: another party lacks it; "
            "queries_spent: `party` answers no more queries of it; invalid: a new record is not as the model wants it."
        ),
    ]
    party: Annotated[
        str | None,
        Field(description="Of queries_spent: whose policy says so; of a new record: who lacks it."),
    ] = None
    fault: Annotated[str | None, Field(description="Of invalid: what is wrong, by column.")] = None
    prediction: Annotated[
        Class | None,
        Field(description="The class, in the type of the label's column; in a regression, the value."),
    ] = None
    score: Annotated[float | None, Field(description="The raw score, where the model has one.")] = None
    reasons: Annotated[
        list[Reason] | None, Field(description="If asked for: the columns, the one that moved the score most first.")
    ] = None
    unreasoned: Annotated[
        list[str] | None,
        Field(description="If asked for: parties whose columns are left out, as they lack the record or it is spent."),
    ] = None


class PredictReply(BaseModel):
    """One answer for each id, in the order of the request."""

    model: str
    job: str
    predictions: list[RecordPrediction]
    away: Annotated[
        list[str],
        Field(description="Feature parties that were away when the answer was computed; empty: all of them took part."),
    ]


class ModelReply(BaseModel):
    """A served model."""

    model: str
    job: str
    protocol: str
    objective: str
    classes: Annotated[
        list[Class], Field(description="Values of the label, in the type of its column; empty for a regression.")
    ]
    records: Annotated[int, Field(description="Number of records that can be predicted.")]
    most_ids: Annotated[int, Field(description="Most ids in one request.")]
    deadline_s: Annotated[float, Field(description="Most seconds that a request waits.")]
    most_reasoned: Annotated[int, Field(description="Most ids in a request for reasons; 0: there are none.")]


class HealthReply(BaseModel):
    """The state of the endpoint."""

    status: Literal["serving", "idle"]


class Problem(BaseModel):
    """The reason why there is no answer (RFC 9457)."""

    title: str
    status: int
    detail: str
    record: Annotated[
        Literal["unknown_id", "not_common", "queries_spent", "invalid"] | None,
        Field(description="Of a request with one id: the status of its record, which has no prediction."),
    ] = None
    party: Annotated[str | None, Field(description="Of queries_spent: the party whose policy says so.")] = None


def predict_request(most_ids: int) -> type[PredictRequest]:
    """The request's model with the server's limit on ids."""
    said = {name: PredictRequest.model_fields[name].description for name in ("ids", "records")}
    ids = Annotated[list[Id], Field(min_length=1, max_length=most_ids, description=said["ids"])]
    records = Annotated[list[NewRecord], Field(min_length=1, max_length=most_ids, description=said["records"])]
    none: Any = Field(default_factory=list)  # a default would be in the document, and be no list of one at least
    fields: dict[str, Any] = {"ids": (ids, none), "records": (records, none)}
    return create_model("PredictRequest", __base__=PredictRequest, __doc__=PredictRequest.__doc__, **fields)


#: Faults of a request that are said one by one.
_SAID = 8


def faults_of_request(failure: ValidationError) -> str:
    """The faults of a request's body, each with its place and what it must be."""
    said = list(dict.fromkeys(map(_fault, failure.errors(include_url=False, include_input=False))))
    more = f"; and {len(said) - _SAID} more" if len(said) > _SAID else ""
    return "; ".join(said[:_SAID]) + more


#: Member of a request → what it must be.
_WANTED = {
    "ids": 'ids: must name the records to predict, such as ["a17"]',
    "records": 'records: must be new ones with their fields, such as [{"id": "a17", "fields": {"age": 41}}]',
    "model": f"model: must be the name of a served model; {NAME_RULE}",
    "deadline_s": "deadline_s: must be a number of seconds above 0",
    "reasons": "reasons: must be a whole number, 0 to 16",
}


_AN_ID = f"an id is text of 1 to {ID_CHARACTERS:,} characters, or a whole number of 64 bits"
#: The same of one of them.
_ONE = {
    "ids": _AN_ID,
    "records": f"a record has an id and fields, of columns with numbers, texts, true, false or null; {_AN_ID}",
}


def _fault(error: ErrorDetails) -> str:
    match error["type"], error["loc"]:
        case "json_invalid", _:
            return f"the body is not JSON: {error['ctx']['error']}"
        case _, ():
            return 'the body must be an object with ids or records, such as {"ids": ["a17"]}'
        case "extra_forbidden", (name, *_):
            known = ", ".join(_WANTED)
            return f"{visible(str(name))}: is unknown; a request has {known}{did_you_mean(str(name), _WANTED)}"
        case "too_long", ("ids" | "records" as name,):
            return f"{name}: name at most {error['ctx']['max_length']:,} in one request, and the others in further ones"
        case _, (str(name), int(place), *_):
            return f"{name}[{place}]: {_ONE[name]}"
    return _WANTED[str(error["loc"][0])]


def predict_reply(
    answer: serving_pb2.PredictedRecords, ids: Sequence[str | int], *, reasons: bool = False
) -> PredictReply:
    """The answer to a client who requested these ids, and their `reasons` if so."""
    entries = zip(answer.predictions, ids, strict=True)
    records = [_record(prediction, value, answer, reasons=reasons) for prediction, value in entries]
    return PredictReply(model=answer.model, job=answer.job, predictions=records, away=list(answer.away))


def model_reply(description: serving_pb2.ModelDescription) -> ModelReply:
    """The description of a served model."""
    return ModelReply(
        model=description.model,
        job=description.job,
        protocol=description.protocol,
        objective=description.objective,
        classes=[_class(name, description.class_type) for name in description.classes],
        records=description.records,
        most_ids=description.most_ids,
        deadline_s=description.deadline_s,
        most_reasoned=description.most_reasoned,
    )


def _class(name: str, kind: serving_pb2.ClassType.ValueType) -> Class:
    """A class in its type; text where that is not known."""
    if kind == serving_pb2.CLASS_BOOLEAN:
        return name == "True"
    if kind == serving_pb2.CLASS_WHOLE_NUMBER:
        return int(name)
    return float(name) if kind == serving_pb2.CLASS_NUMBER else name


def _record(
    prediction: serving_pb2.RecordPrediction, asked: str | int, answer: serving_pb2.PredictedRecords, *, reasons: bool
) -> RecordPrediction:
    status, classes = STATUS[prediction.status], list(answer.classes)
    if status != "predicted":
        party, fault = prediction.party or None, prediction.fault or None
        return RecordPrediction(id=asked, status=status, party=party, fault=fault)
    is_class = prediction.WhichOneof("prediction") == "label"
    value = _class(prediction.label, answer.class_type) if is_class else prediction.value
    figures: dict[str, Any] = {}
    if reasons:
        figures["unreasoned"] = list(prediction.unreasoned)
        figures["reasons"] = [
            Reason(party=it.party, column=it.column or None, number=it.number, nameable=bool(it.column))
            for it in prediction.reasons
        ]
    if len(prediction.probabilities) == len(classes) > 0:
        figures |= {of_class("probability", name): p for name, p in zip(classes, prediction.probabilities, strict=True)}
        figures |= {of_class("score", name): score for name, score in zip(classes, prediction.scores, strict=True)}
        return RecordPrediction(id=asked, status=status, party=None, fault=None, prediction=value, **figures)
    figures |= {of_class("probability", classes[1]): p for p in prediction.probabilities}  # one, or none of numbers
    return RecordPrediction(
        id=asked, status=status, party=None, fault=None, prediction=value, score=prediction.scores[0], **figures
    )


PROBLEMS = "application/problem+json"
#: Status → its meaning in this endpoint.
MEANINGS = {
    400: "Several models are served and the request names none.",
    403: "The certificate is not that of a client of this party; or, in a request with one id, its queries are spent.",
    404: "No such model is served; or, in a request with one id, the label holder has no such id.",
    413: "The body is too large.",
    415: "The body is not JSON, or compressed.",
    422: "The request does not match the schema; or, in a request with one id, another party has no such id, or the "
    "record's fields are not the model's.",
    429: "Too many records, or bodies of this client, wait already.",
    503: "No model is served now.",
    504: "There was no answer within the deadline.",
}


def document(request: type[PredictRequest], *, secured: bool) -> dict[str, Any]:
    """The whole document; `secured`: clients are identified by certificates."""
    models: list[type[BaseModel]] = [PredictReply, ModelReply, HealthReply, Problem]
    _, schemas = models_json_schema(
        [(request, "validation"), *((model, "serialization") for model in models)],
        ref_template="#/components/schemas/{model}",
    )
    components: dict[str, Any] = {"schemas": schemas["$defs"]}
    if secured:
        components["securitySchemes"] = {
            "certificate": {"type": "mutualTLS", "description": "A certificate whose name is in [serve] clients."}
        }
    named = {"name": "model", "in": "query", "required": False, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "treetap serving",
            "version": package_version(),
            "description": "Predictions of a federated model, by the ids of records that all parties hold.",
        },
        "paths": {
            "/v1/predict": {
                "post": {
                    "operationId": "predict",
                    "summary": "Predict records",
                    "requestBody": {"required": True, "content": _json(request)},
                    "responses": _responses(PredictReply, 400, 403, 404, 413, 415, 422, 429, 503, 504),
                }
            },
            "/v1/model": {
                "get": {
                    "operationId": "model",
                    "summary": "Describe a served model",
                    "parameters": [{**named, "description": "Optional if only one model is served."}],
                    "responses": _responses(ModelReply, 400, 403, 404, 503),
                }
            },
            "/healthz": {
                "get": {
                    "operationId": "health",
                    "summary": "State of the endpoint",
                    "responses": {
                        "200": {"description": "A model is served.", "content": _json(HealthReply)},
                        "503": {"description": "No model is served.", "content": _json(HealthReply)},
                    },
                }
            },
        },
        "components": components,
        **({"security": [{"certificate": []}]} if secured else {}),
    }


def _responses(reply: type[BaseModel], *problems: int) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": str(reply.__doc__), "content": _json(reply)}}
    for status in problems:
        content = {PROBLEMS: {"schema": _reference(Problem)}}
        responses[str(status)] = {"description": MEANINGS.get(status, HTTPStatus(status).phrase), "content": content}
    return responses


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(model)}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
