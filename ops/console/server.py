"""`treetap console`: pages over HTTP for one approver, from a process of its own that asks the party over gRPC.

Every request names a host that is served here, so that no foreign name that was led to this address (DNS rebinding) is
answered, and every form comes from a page of this origin, with the token of its session. The session is in the path:
browsers send a cookie to every port of its host, whoever listens there.

What a browser sends to a console: forms of a bounded size, and the number of a page.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from hmac import compare_digest
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import hdrs, web

from treetap import errors
from treetap.commands.approvals.client import PartyCalls, moment
from treetap.errors import BadInput, one_line, visible
from treetap.names import host_of
from treetap.ops.console import pages
from treetap.ops.console.sessions import TOKEN_S, Session, Sessions
from treetap.ops.gateway.http_connections import HEADERS, Answer
from treetap.ops.gateway.http_json import SLOWEST_S
from treetap.pages.page import render
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


log = logging.getLogger(__name__)
#: Seconds within which a request is answered, calls to the party included.
ANSWER_S = 25.0
#: Jobs of a page that are decided.
DECIDED = 50
#: Seconds after which a page that refreshes itself does.
REFRESH_S = 10
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Error of the party → status and heading. A subclass stands before its base classes.
_STATUSES: list[tuple[type[Exception], int, str]] = [
    (errors.Conflict, 409, "This is another job than was shown"),
    (errors.BadInput, 400, "The party does not do that"),
    (errors.Refused, 403, "The party refuses this"),
    (errors.UnknownJob, 404, "The party knows no such job"),
    (errors.Overloaded, 503, "The party has too much to do"),
    (errors.Interrupted, 503, "The party cannot be reached"),
    (errors.TreetapError, 502, "The party's answer cannot be used"),
    (TimeoutError, 504, "The party does not answer"),
]
#: The session of the request that is answered, also if it ends meanwhile, and the beginning of its pages' paths.
_asking: ContextVar[tuple[Session | None, str]] = ContextVar("_asking", default=(None, ""))
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Console:
    """The application.

    Args:
        calls: to the party.
        approver, party: their names.
        sessions: who may use the pages.
        hosts: names under which the pages may be asked for, in lower case, without a port.
        secured: the pages go over TLS.
    """

    def __init__(
        self, calls: PartyCalls, approver: str, party: str, sessions: Sessions, hosts: Iterable[str], *, secured: bool
    ) -> None:
        self._calls, self._about = calls, {"approver": approver, "party": party, "views": pages.VIEWS}
        self.sessions, self._hosts = sessions, frozenset(hosts)
        self._scheme = "https" if secured else "http"
        self._style = _file("treetap.pages", "style.css") + _file(__package__, "console.css")
        self.application = web.Application(middlewares=[self._answered], client_max_size=MOST_FORM)
        self.application[HEADERS] = _HEADERS
        job = "/jobs/{job:[a-z0-9-]{1,63}}/{sha256:[0-9a-f]{64}}"
        own = "/{session}"
        self.application.add_routes(
            [
                web.get("/style.css", self._styled),
                web.get("/enter", self._enter_page),
                web.post("/enter", self._enter),
                web.post(f"{own}/leave", self._leave),
                web.get(f"{own}/", self._jobs),
                web.get(f"{own}{job}", self._job),
                web.post(f"{own}/decision", self._confirm),
                web.post(f"{own}/decision/confirmed", self._decide),
                web.post(f"{own}/standing", self._confirm_end),
                web.post(f"{own}/standing/confirmed", self._end),
                *(web.get(f"{own}/{view}", self._view) for view in pages.VIEWS),
            ]
        )

    # ---- admission

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        _asking.set((None, ""))
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._admitted(request, handler)
        except web.HTTPMisdirectedRequest as error:  # it may be a foreign page that reads the answer: without names
            answer = Answer(status=error.status, text=error.reason)
        except web.HTTPException as error:
            answer = self._problem(error.status, error.reason, "Go back to the jobs.")
        except (errors.TreetapError, TimeoutError) as error:
            status, heading = next((code, says) for kind, code, says in _STATUSES if isinstance(error, kind))
            log.warning("not answered: %s: %s", type(error).__name__, error)
            text = pages.clipped(one_line(str(error))) or f"within {ANSWER_S:g} s"
            answer = self._problem(status, heading, text)
        except Exception as error:
            log.exception("a defect")
            text = f"{type(error).__name__}: see its log."
            answer = self._problem(500, "This is a defect of the console", text)
        answer.headers.update(_HEADERS)
        return answer

    async def _admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer to a request of this origin, and of a session but for what opens one."""
        self._check_origin(request)
        form = await form_of(request) if request.method == hdrs.METH_POST else None
        if request.path in ("/style.css", "/enter"):
            return await handler(request)
        secret = _secret(request)
        session = self.sessions.of(secret, by_hand="every" not in request.query)  # a page that refreshes keeps none
        if session is None:
            if form is not None:
                text = "It has ended, or was idle too long: enter again."
                return self._problem(403, "There is no session", text)
            return Answer(status=303, headers={"Location": "/enter"})
        _asking.set((session, f"/{secret}"))
        if form is not None and not compare_digest(form.get("form", "").encode(), session.form.encode()):
            return self._problem(403, "This form is of another session", "Open the page again and repeat it.")
        return await handler(request)

    def _check_origin(self, request: web.Request) -> None:
        hosts = request.headers.getall(hdrs.HOST, [])
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            raise web.HTTPMisdirectedRequest(reason="This host is not served here")
        origins = request.headers.getall(hdrs.ORIGIN, [])
        wanted = (
            []
            if request.method in (hdrs.METH_GET, hdrs.METH_HEAD) and not origins
            else [f"{self._scheme}://{hosts[0].lower()}"]
        )
        if origins == ["null"] and request.headers.get("Sec-Fetch-Site") == "same-origin":
            origins = wanted  # of a form on a page without a referrer (Fetch, 3.2)
        if origins != wanted:
            raise web.HTTPForbidden(reason="This request comes from another origin")

    # ---- sessions

    async def _enter_page(self, _: web.Request) -> web.StreamResponse:
        return self._page("enter.html.j2", title="Enter", fault="", seconds=f"{TOKEN_S:g}")

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        secret = self.sessions.enter((await form_of(request)).get("token", "").strip())
        if secret is None:
            log.warning("a token was shown that opens nothing")
            fault = "This token opens nothing: it was used, is older than allowed, or was not copied as a whole."
            return self._page("enter.html.j2", 403, title="Enter", fault=fault, seconds=f"{TOKEN_S:g}")
        return Answer(status=303, headers={"Location": f"/{secret}/"})

    async def _leave(self, request: web.Request) -> web.StreamResponse:
        self.sessions.leave(_secret(request))
        return Answer(status=303, headers={"Location": "/enter"})

    # ---- pages

    async def _styled(self, _: web.Request) -> web.StreamResponse:
        return Answer(text=self._style, content_type="text/css")

    async def _jobs(self, request: web.Request) -> web.StreamResponse:
        every = await self._calls.jobs(brief=True)
        waiting = [pages.job(one) for one in every if one.state == "waiting"]
        rest, number = [one for one in reversed(every) if one.state != "waiting"], page_of(request)
        decided = [pages.job(one) for one in rest[number * DECIDED : (number + 1) * DECIDED]]
        more = len(rest) > (number + 1) * DECIDED
        standing = [pages.standing(one) for one in await self._calls.standing()]
        return self._page(
            "jobs.html.j2",
            title="Jobs",
            here="/",
            waiting=waiting,
            decided=decided,
            standing=standing,
            number=number,
            more=more,
        )

    async def _job(self, request: web.Request) -> web.StreamResponse:
        asked = await self._asked(request.match_info["job"], request.match_info["sha256"])
        if asked is None:
            raise errors.UnknownJob(f"{self._about['party']} was asked for no job of this name and digest")
        return self._job_page(asked)

    async def _asked(self, job: str, sha256: str) -> approvals_pb2.AskedJob | None:
        """The job of a name and a digest as it is now."""
        return next((one for one in await self._calls.jobs(job) if one.digest.hex() == sha256), None)

    def _job_page(self, asked: approvals_pb2.AskedJob, notice: str = "", status: int = 200) -> web.StreamResponse:
        shown = pages.job(asked)
        return self._page("job.html.j2", status, title=f"Job {shown.name}", job=shown, notice=notice)

    async def _confirm(self, request: web.Request) -> web.StreamResponse:
        """Ask again, with the job as it is now; nothing is decided."""
        decision = Decision(await form_of(request))
        asked = await self._asked(decision.job, decision.sha256)
        if asked is None:
            raise errors.Conflict(f"the party has no job {decision.job} of the digest that was shown; look at it again")
        if (meanwhile := _meanwhile(asked, decision.seen)) is not None:
            return self._job_page(asked, meanwhile, 409)
        shown = pages.job(asked)
        confirms = _confirmation(decision.fields)
        return self._page("confirm.html.j2", title="Confirm", job=shown, asked=decision, shown=confirms)

    async def _decide(self, request: web.Request) -> web.StreamResponse:
        """Decide about the digest that was shown: the party refuses it if the job is another one by now."""
        form = await form_of(request)
        decision = Decision(form)
        _check_shown(form, decision.fields)
        before = await self._asked(decision.job, decision.sha256)
        if before is not None and (meanwhile := _meanwhile(before, decision.seen)) is not None:
            return self._job_page(before, meanwhile, 409)
        decided = await self._calls.decide(decision.message())
        log.info("job %s: %s through these pages", decision.job, "approved" if decision.approve else "refused")
        if len(decided.decisions) != decision.seen + 1:
            notice = _meanwhile(decided, decision.seen) or "It was approved before, as below: that stays as it is."
            return self._job_page(decided, notice, 409)
        return _led_to(f"/jobs/{decision.job}/{decision.sha256}")

    async def _confirm_end(self, request: web.Request) -> web.StreamResponse:
        name = (await form_of(request)).get("name", "")
        kept = next((pages.standing(one) for one in await self._calls.standing(name) if name), None)
        if kept is None:
            raise errors.UnknownJob("the party has no standing approval of this name")
        shown = _confirmation({"name": kept[0]})
        return self._page("confirm_end.html.j2", title="Confirm", standing=kept, shown=shown)

    async def _end(self, request: web.Request) -> web.StreamResponse:
        form = await form_of(request)
        name = form.get("name", "")
        _check_shown(form, {"name": name})
        await self._calls.revoke(name)
        return _led_to("/")

    async def _view(self, request: web.Request) -> web.StreamResponse:
        name, number = request.path.rpartition("/")[2], page_of(request)
        shown, view = pages.VIEWS[name], await self._calls.view(name, number)
        answer = self._page(
            "tables.html.j2",
            title=shown.title,
            here=f"/{name}",
            shown=shown,
            view=view,
            at=moment(view.at),
            number=number,
            more=view.more,
            every=REFRESH_S if "every" in request.query and shown.refreshes else 0,
            refresh_s=REFRESH_S,
        )
        if "every" in request.query and shown.refreshes:
            answer.headers["Refresh"] = str(REFRESH_S)
        return answer

    def _problem(self, status: int, heading: str, text: str) -> Answer:
        return self._page("problem.html.j2", status, title=heading, text=text)

    def _page(self, template: str, status: int = 200, **content: Any) -> Answer:
        session, own = _asking.get()
        whole = {"session": session, "own": own, "here": "", **self._about, **content}
        return Answer(status=status, text=render(__package__, template, **whole), content_type="text/html")


def _confirmation(fields: dict[str, str]) -> str:
    """The token of a form that confirms these fields in the session of the request."""
    session, _ = _asking.get()
    assert session is not None  # every page that asks again is of one
    return confirmation(session.form, fields)


def _secret(request: web.Request) -> str:
    """The first part of a path, the secret of a session."""
    return request.path.removeprefix("/").partition("/")[0]


def _led_to(path: str) -> Answer:
    """A redirection to a page of the session."""
    return Answer(status=303, headers={"Location": f"{_asking.get()[1]}{path}"})


def _check_shown(form: dict[str, str], fields: dict[str, str]) -> None:
    """Refuse a form whose fields no page of this session has asked about."""
    if not compare_digest(form.get("shown", "").encode(), _confirmation(fields).encode()):
        raise web.HTTPForbidden(reason="No page has asked about this")


def _meanwhile(asked: approvals_pb2.AskedJob, seen: int) -> str | None:
    """A notice if others have decided since a page was made that showed so many decisions."""
    if len(asked.decisions) <= seen:
        return None
    last = pages.job(asked).decisions[-1]
    return f"Somebody has decided since this page was made, and you have not: {last}. Look at the job again."


def _file(package: str, name: str) -> str:
    return (resources.files(package) / "templates" / name).read_text(encoding="utf-8")
