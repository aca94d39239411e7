"""The OpenAPI 3.1 document of the HTTP endpoint, generated from the models that validate its messages."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from party.server.http_json import HealthReply, ModelReply, PredictReply, PredictRequest, Problem
from treetap.version import package_version

PROBLEMS = "application/problem+json"
#: Status → its meaning in this endpoint.
MEANINGS = {
    400: "Several models are served and the request names none.",
    403: "The certificate is not that of a client of this party.",
    404: "No such model is served; or, in a request with one id, the label holder has no such id.",
    413: "The body is too large.",
    415: "The body is not JSON, or compressed.",
    422: "The request does not match the schema; or, in a request with one id, another party has no such id.",
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
