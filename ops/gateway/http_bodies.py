"""Bodies of the HTTP endpoint: answers in JSON, and how long a request's may be and how many are in memory at once.

No answer has a `Server` header, which would name the library and its version. Until the turn of a request's body has
come its connection holds `BUFFER` bytes or a few times as many; the client has to wait.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any
from weakref import WeakValueDictionary

from aiohttp import hdrs, web
from pydantic import BaseModel

from treetap.errors import Overloaded
from treetap.ops.gateway.http_json import (
    ID_CHARACTERS,
    MOST_BODY,
    PROBLEMS,
    SLOWEST_S,
    PredictRequest,
    Problem,
    predict_request,
)

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


def problem(status: int, detail: str, headers: dict[str, Any] | None = None, **more: Any) -> Answer:
    """The reason why there is no answer (RFC 9457); `more`: further members."""
    made = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, **more)
    kept = {name: value for name, value in (headers or {}).items() if name.lower() == "allow"}
    if status in (429, 503):
        kept["Retry-After"] = str(RETRY_AFTER_S)
    return respond(status, made, PROBLEMS, kept)


#: Bodies of one client that are read at once; further ones wait.
AT_ONCE = 4
#: Bytes of a request that a connection takes before a handler reads them.
BUFFER = 16 * 1024
#: Most bytes of a character in JSON: two escapes of six.
_CHARACTER = 12
#: Bytes for everything beside the ids.
_REST = 4096


def longest_body(most_ids: int) -> int:
    """Most bytes of a request's body: what its longest ids take, if that is less than `MOST_BODY`."""
    return min(MOST_BODY, _REST + most_ids * (ID_CHARACTERS * _CHARACTER + len('"", ')))


class Bodies:
    """Reads and parses the bodies of requests with at most `most_ids` ids."""

    def __init__(self, most_ids: int) -> None:
        self.form: type[PredictRequest] = predict_request(most_ids)
        self._longest = longest_body(most_ids)
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()  # of clients whose bodies are read

    async def read(self, client: str, request: web.Request) -> PredictRequest:
        """The request in the body, which is gone from memory then.

        Raises:
            HTTPRequestEntityTooLarge: the body is too long.
            Overloaded: other bodies of the client take too long.
            TimeoutError: this one takes too long.
            ValidationError: it is no request for predictions.
        """
        if (request.content_length or 0) > self._longest:
            raise self._too_long(request.content_length or 0)
        turn = self._turns.setdefault(client, asyncio.Semaphore(AT_ONCE))
        try:
            async with asyncio.timeout(SLOWEST_S):
                await turn.acquire()
        except TimeoutError:
            raise Overloaded(f"{AT_ONCE} bodies of {client} are being read already, for {SLOWEST_S:g} s") from None
        try:
            body = bytearray()
            async with asyncio.timeout(SLOWEST_S):
                while piece := await request.content.readany():
                    body += piece
                    if len(body) > self._longest:
                        raise self._too_long(len(body))
            return self.form.model_validate_json(body)
        finally:
            turn.release()

    def _too_long(self, size: int) -> web.HTTPRequestEntityTooLarge:
        return web.HTTPRequestEntityTooLarge(self._longest, size)
