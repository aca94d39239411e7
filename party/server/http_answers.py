"""Answers of the HTTP endpoint: JSON without a `Server` header, which would name the library and its version."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from aiohttp import hdrs, web
from pydantic import BaseModel

from party.server.http_json import Problem
from party.server.openapi import PROBLEMS

#: Seconds after which a client that was turned away may retry.
RETRY_AFTER_S = 1


class Answer(web.Response):
    """A response without a header that names the server's software."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()  # aiohttp adds its own header here, whatever the response has
        self.headers.popall(hdrs.SERVER, None)


def respond(
    status: int, body: BaseModel | str, kind: str = "application/json", headers: dict[str, str] | None = None
) -> Answer:
    """A JSON answer."""
    text = body if isinstance(body, str) else body.model_dump_json(exclude_none=True)
    return Answer(status=status, text=text, content_type=kind, headers=headers)


def problem(status: int, detail: str, headers: dict[str, Any] | None = None) -> Answer:
    """The reason why there is no answer (RFC 9457)."""
    made = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)
    kept = {name: value for name, value in (headers or {}).items() if name.lower() == "allow"}
    if status in (429, 503):
        kept["Retry-After"] = str(RETRY_AFTER_S)
    return respond(status, made, PROBLEMS, kept)
