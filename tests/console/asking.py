"""A console without sockets: browsers that ask its application, and parties that it asks."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from treetap.commands.approvals.client import PartyCalls
from treetap.ops.console.server import MOST_FORM, Console
from treetap.ops.console.sessions import Sessions
from treetap.party.node import PartyNode
from treetap.wire.frame import visible_message
from treetap.wire.v2 import approvals_pb2, overview_pb2

HOST = "127.0.0.1:8437"
ORIGIN = f"http://{HOST}"


class Near(PartyCalls):
    """The calls of an approver's console to a party of the simulator; texts are made visible as over the wire."""

    def __init__(self, node: PartyNode, approver: str) -> None:
        self._node, self._approver = node, approver

    async def jobs(self, name: str = "", *, brief: bool = False) -> list[approvals_pb2.AskedJob]:
        asked = approvals_pb2.AskedJobs(name=name, brief=brief)
        return [visible_message(job) for job in self._node.desk.jobs(self._approver, asked)]

    async def standing(self, name: str = "") -> list[approvals_pb2.StandingApproval]:
        return [
            visible_message(one) for one in self._node.desk.standing(self._approver, approvals_pb2.AskedJobs(name=name))
        ]

    async def decide(self, decision: approvals_pb2.DecideRequest) -> approvals_pb2.AskedJob:
        return visible_message(self._node.desk.decide(self._approver, decision))

    async def revoke(self, name: str) -> approvals_pb2.StandingApproval:
        return visible_message(self._node.desk.revoke(self._approver, approvals_pb2.RevokeRequest(name=name)))

    async def view(self, name: str, page: int = 0) -> overview_pb2.View:
        asked = overview_pb2.AskedView(view=name, page=page)
        return visible_message(await self._node.overview.show(self._approver, asked))


@dataclass
class Seen:
    """An answer as a browser has it."""

    status: int
    text: str
    headers: Any

    @property
    def words(self) -> str:
        """The text without markup, on one line."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.text)).split())

    def fields(self, action: str) -> dict[str, str]:
        """The fields of the form that is posted to a path, with their values."""
        form = re.search(rf'<form method="post" action="{re.escape(action)}">(.*?)</form>', self.text, re.DOTALL)
        assert form is not None, f"no form for {action} in {self.words}"
        inputs = re.findall(r'<input [^>]*name="([^"]*)"(?:[^>]*?value="([^"]*)")?', form[1])
        return {name: html.unescape(value) for name, value in inputs}


@dataclass
class Browser:
    """A browser at a console: it follows no redirection.

    `own`: the beginning of its session's paths once it has entered, which it asks by and leaves out of what it shows.
    """

    console: Console
    own: str = ""

    async def get(self, path: str, **headers: str) -> Seen:
        return await self._ask("GET", path, b"", headers)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> Seen:
        kind = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
        return await self._ask("POST", path, urlencode(fields).encode(), kind | headers)

    async def enter(self, token: str | None = None) -> Seen:
        """Show a token: a new one, unless one is given."""
        shown = await self.post("/enter", {"token": self.console.sessions.token() if token is None else token})
        if shown.status == 303:
            self.own = shown.headers["Location"].rstrip("/")
        return shown

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Seen:
        path = path if path in ("/enter", "/style.css") else f"{self.own}{path}"
        whole = {"Host": HOST, **headers}
        payload = StreamReader(mock.Mock(spec=BaseProtocol), 2**16)
        payload.feed_data(body)
        payload.feed_eof()
        request = make_mocked_request(
            method, path, {name: value for name, value in whole.items() if value}, payload=payload
        )
        request._client_max_size = MOST_FORM
        application = self.console.application
        if not application.frozen:
            application.freeze()
        answer = await application._handle(request)
        assert isinstance(answer, web.Response)
        content = answer.body or b""
        assert isinstance(content, bytes)
        if self.own and (to := answer.headers.get("Location")):
            answer.headers["Location"] = to.removeprefix(self.own)
        text = content.decode()
        return Seen(answer.status, text.replace(f'"{self.own}/', '"/') if self.own else text, answer.headers)


def console(
    calls: PartyCalls, sessions: Sessions | None = None, approver: str = "ann", party: str = "telco"
) -> Console:
    """A console of an approver, asked for at `HOST`."""
    return Console(calls, approver, party, sessions or Sessions(), {"127.0.0.1", "localhost"}, secured=False)


async def entered(console: Console) -> Browser:
    """A browser that has shown a token."""
    browser = Browser(console)
    assert (await browser.enter()).status == 303
    return browser


@dataclass
class Given(PartyCalls):
    """A party whose answers are given, as they come off the wire before they are made visible.

    `decided`: the decisions that it was asked for.
    """

    asked: list[approvals_pb2.AskedJob] = field(default_factory=list)
    approvals: list[approvals_pb2.StandingApproval] = field(default_factory=list)
    shown: overview_pb2.View = field(default_factory=overview_pb2.View)
    decided: list[approvals_pb2.DecideRequest] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    async def jobs(self, name: str = "", *, brief: bool = False) -> list[approvals_pb2.AskedJob]:
        del brief
        return [job for job in self.asked if name in ("", job.job)]

    async def standing(self, name: str = "") -> list[approvals_pb2.StandingApproval]:
        return [one for one in self.approvals if name in ("", one.name)]

    async def decide(self, decision: approvals_pb2.DecideRequest) -> approvals_pb2.AskedJob:
        self.decided.append(decision)
        decided = approvals_pb2.AskedJob()
        decided.CopyFrom(self.asked[0])
        decided.decisions.add(decision="approved" if decision.approve else "refused", approver="ann", way="command")
        return decided

    async def revoke(self, name: str) -> approvals_pb2.StandingApproval:
        self.ended.append(name)
        return self.approvals[0]

    async def view(self, name: str, page: int = 0) -> overview_pb2.View:
        del name, page
        return self.shown


def a_job(**more: Any) -> approvals_pb2.AskedJob:
    """A job that waits."""
    given = {"job": "job", "digest": bytes(32), "state": "waiting", "words": ["You send sums."], "document": "{}"}
    return approvals_pb2.AskedJob(**{**given, **more})
