"""What a browser sends to a console: forms of a bounded size, and the number of a page."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from urllib.parse import parse_qsl

from aiohttp import web

from treetap.errors import BadInput
from treetap.names import visible
from treetap.ops.gateway.http_json import SLOWEST_S
from treetap.wire.v2 import approvals_pb2

#: Most bytes of a form, and most fields.
MOST_FORM, MOST_FIELDS = 8192, 12
#: Most characters of a reason, as a party keeps it.
MOST_WHY = 400


class Decision:
    """A decision in a form: about which job, which digest, and how many decisions were shown with it.

    Raises BadInput for a form that no page of the console has.
    """

    def __init__(self, form: dict[str, str]) -> None:
        try:
            self.job, self.sha256, self.seen = form["job"], form["sha256"], int(form["seen"])
            self.approve, self.why = (
                {"approve": True, "refuse": False}[form["decision"]],
                visible(form.get("why", ""))[:MOST_WHY],
            )
            self.days = float(form.get("days", "0"))
            self._digest = bytes.fromhex(self.sha256)
        except (KeyError, ValueError):
            raise BadInput("this form is none of the console's: open the job again") from None
        if self.seen < 0:
            raise BadInput("this form is none of the console's: open the job again")

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the form that confirms it."""
        own = {
            "job": self.job,
            "sha256": self.sha256,
            "seen": str(self.seen),
            "days": f"{self.days:g}",
            "why": self.why,
        }
        return {"decision": "approve" if self.approve else "refuse", **own}

    def message(self) -> approvals_pb2.DecideRequest:
        """The decision for the party."""
        days, why = (self.days, "") if self.approve else (0.0, self.why)
        return approvals_pb2.DecideRequest(job=self.job, digest=self._digest, approve=self.approve, days=days, why=why)


def confirmation(session: str, fields: Mapping[str, str]) -> str:
    """The token of a form that confirms these fields, in hexadecimal: that a page has shown them in a session.

    `session`: the token of its forms.
    """
    return hmac.new(session.encode(), json.dumps(sorted(fields.items())).encode(), "sha256").hexdigest()


async def form_of(request: web.Request) -> dict[str, str]:
    """The fields of a form; of several of one name the last."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPUnsupportedMediaType(reason="This is no form of these pages")
    try:
        async with asyncio.timeout(SLOWEST_S):
            content = await request.read()
        return dict(parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"The form did not come within {SLOWEST_S:g} s") from None
    except ValueError:
        raise web.HTTPBadRequest(reason="This is no form of these pages") from None


def page_of(request: web.Request) -> int:
    """The page of a list that a request asks for, from 0."""
    asked = request.query.get("page", "0")
    return int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0
