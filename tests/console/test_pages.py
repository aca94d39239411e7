"""The pages of a console: empty, full, with hostile texts in every field, and of a party that does not answer."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the console needs the extra console")

from google.protobuf.message import Message

from tests.console.asking import Given, Seen, a_job, console, entered
from tests.simulator import run
from treetap.errors import Overloaded, Refused, TreetapError, Unreachable
from treetap.ops.console.pages import VIEWS, clipped, duration, figure, moment
from treetap.ops.console.server import ANSWER_S
from treetap.party.runtime.ledger import Kind
from treetap.wire.v2 import approvals_pb2, overview_pb2

JOB = f"/jobs/job/{bytes(32).hex()}"
PATHS = ("/", JOB, *(f"/{view}" for view in VIEWS))
#: What a hostile party or coordinator may have put into a name: markup, marks of direction, control characters, much.
HOSTILE = "<script>alert(1)</script>\"'&<b>\u202e\u2066\x1b[31m\x00\x9f\r\n{{ 7*7 }}" + "x" * 1_000_000
#: Fields that a page does not show: a text that another field has, or that no person reads.
UNSHOWN = {"StandingApproval.text", "Signed.certificate"}


def _hostile(message: Message, number: float, name: str = "") -> list[str]:
    """Fill every field, at every depth: texts begin with their own name. Returns the names of texts."""
    names = []
    for field in message.DESCRIPTOR.fields:
        own = f"{message.DESCRIPTOR.name}.{field.name}"
        if field.message_type is not None:
            inner = getattr(message, field.name)
            names += _hostile(inner.add() if field.is_repeated else inner, number)
            continue
        value: Any = {
            field.CPPTYPE_STRING: f"{own}:{HOSTILE}" if field.type == field.TYPE_STRING else b"\x00" * 100_000,
            field.CPPTYPE_DOUBLE: number,
            field.CPPTYPE_BOOL: True,
        }.get(field.cpp_type, 2**32 - 1)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
        if field.type == field.TYPE_STRING:
            names.append(own)
    return names


async def _every_page(party: Given) -> Iterator[Seen]:
    browser = await entered(console(party))
    return iter([await browser.get(path) for path in PATHS])


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e300, -1.0])
def test_hostile_texts_in_every_field_are_seen_and_do_nothing(number: float) -> None:
    """Each is on a page as its characters, cut; no page has markup, a control character or megabytes of it."""
    asked, standing, view = approvals_pb2.AskedJob(), approvals_pb2.StandingApproval(), overview_pb2.View()
    names = {name for message in (asked, standing, view) for name in _hostile(message, number)}
    known = approvals_pb2.AskedJob()
    known.CopyFrom(asked)
    known.job, known.digest = "job", bytes(32)
    waits = approvals_pb2.AskedJob()
    waits.CopyFrom(asked)
    waits.state, waits.digest = "waiting", bytes(32)
    pages = list(run(_every_page(Given([known, waits, asked], [standing], view))))
    whole = "".join(page.text for page in pages)
    for page in pages:
        assert page.status == 200, page.words[:300]
        assert len(page.text) < 400_000
        assert all(letter.isprintable() or letter == "\n" for letter in page.text.replace("\r\n", "\n"))
        assert "<script" not in page.text
        assert "<b>\\u202e" not in page.text
    for name in names - UNSHOWN:
        assert f"{name}:&lt;script&gt;alert(1)&lt;/script&gt;" in whole, name
    assert r"\u202e\u2066\x1b[31m\x00\x9f\r\n{{ 7*7 }}x" in whole
    assert "characters more)" in whole


async def test_hostile_texts_in_questions_and_errors() -> None:
    """The page that asks again, and an error's, show them likewise; the reason that goes on is what was shown."""

    class Refusing(Given):
        async def decide(self, decision: approvals_pb2.DecideRequest) -> approvals_pb2.AskedJob:
            self.decided.append(decision)
            raise Refused(HOSTILE)

    party = Refusing([a_job()], [approvals_pb2.StandingApproval(name=HOSTILE, text=HOSTILE)])
    browser = await entered(console(party))
    fields = (await browser.get(JOB)).fields("/decision")
    asked = await browser.post("/decision", {**fields, "decision": "refuse", "why": HOSTILE[:2000]})
    told = await browser.post("/decision/confirmed", asked.fields("/decision/confirmed"))
    for page in (asked, told):
        assert "<script" not in page.text
        assert "&lt;script&gt;alert(1)" in page.text
        assert r"\u202e" in page.text
    assert told.status == 403
    assert party.decided[0].why.isprintable()
    assert party.decided[0].why.startswith("<script>alert(1)")


async def test_pages_of_an_empty_party_say_so() -> None:
    """Each has a sentence in the place of a table, which says what will be here."""

    browser = await entered(console(Given()))
    said = {path: (await browser.get(path)).words for path in PATHS if path != JOB}
    assert "No job waits." in said["/"]
    for view, shown in VIEWS.items():
        for table in shown.tables:
            assert table.empty in said[f"/{view}"]
            assert " here" in table.empty
    assert (await browser.get(JOB)).status == 404


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (Unreachable("telco at 10.0.0.2:7301 does not listen"), 503, "The party cannot be reached"),
        (Overloaded("ann has 64 calls under way"), 503, "The party has too much to do"),
        (Refused("ann is no approver of telco"), 403, "The party refuses this"),
        (TreetapError("unlike any"), 502, "The party's answer cannot be used"),
        (RuntimeError("a secret path"), 500, "This is a defect of the console"),
    ],
)
async def test_a_party_that_fails_gives_pages_that_say_so(error: Exception, status: int, says: str) -> None:
    """With its reason; of a defect its kind alone. The session stays."""

    class Failing(Given):
        async def jobs(self, name: str = "", *, brief: bool = False) -> list[approvals_pb2.AskedJob]:
            raise error

        async def view(self, name: str, page: int = 0) -> overview_pb2.View:
            raise error

    browser = await entered(console(Failing()))
    for path in PATHS:
        page = await browser.get(path)
        assert (page.status, says in page.words) == (status, True)
        assert (str(error) in page.words) is not isinstance(error, RuntimeError)


async def test_a_party_that_is_silent_is_waited_for_within_a_deadline() -> None:
    """The page comes within 25 s."""

    class Silent(Given):
        async def view(self, name: str, page: int = 0) -> overview_pb2.View:
            await asyncio.sleep(1e6)
            raise AssertionError

    browser, begun = await entered(console(Silent())), asyncio.get_running_loop().time()
    page = await browser.get("/running")
    assert (page.status, "The party does not answer" in page.words) == (504, True)
    assert asyncio.get_running_loop().time() - begun == pytest.approx(ANSWER_S)


async def test_a_document_that_is_cut_is_said_to_be() -> None:
    """By the party, or since it has more lines than a page shows; a whole one is not."""

    for document, cut in (
        ("{}", False),
        (json.dumps({"names": ["x" * 90] * 2000})[:100_000], True),
        (json.dumps({"numbers": [1] * 30_000}), True),
        ('{"a":' * 10_000, True),
    ):
        browser = await entered(console(Given([a_job(document=document)])))
        assert ("Only its beginning is shown" in (await browser.get(JOB)).words) is cut


def test_amounts_have_units_and_all_their_digits() -> None:
    """A million records is no power of ten; a kind that is not known here has no unit."""
    view = overview_pb2.View()
    for kind, amount in ((Kind.RECORDS, 1_234_567), (Kind.NOISY_LABELS, 0.1), (Kind.TRAINING, 1), ("new", 2.5)):
        view.ledger.add(kind=kind, amount=amount)
    view.limits.add(limit="records_per_day", unit="in 24 hours", most=2e6, spent=1_234_567)
    (table,), (limits,) = VIEWS["ledger"].tables, VIEWS["limits"].tables
    assert [row[2] for row in table.rows(view)] == ["1,234,567 records", "0.1 ε", "1", "2.5"]
    assert list(limits.rows(view)[0][2:]) == ["1,234,567 in 24 hours", "2,000,000", "765,433"]


async def test_standing_approvals_are_ended_after_asking_again() -> None:
    """One that is not there is not."""

    kept = approvals_pb2.StandingApproval(name="weekly", approver="ann", count=3, used=1, until=2e9)
    party = Given([], [kept, approvals_pb2.StandingApproval(name="old", revoked="ben")])
    browser = await entered(console(party))
    page = await browser.get("/")
    assert "weekly by ann: 1 of 3 jobs, until 2033-05-18 03:33 UTC" in page.words
    assert page.text.count('action="/standing"') == 1
    asked = await browser.post("/standing", page.fields("/standing"))
    assert ("End standing approval weekly ?" in asked.words, party.ended) == (True, [])
    assert (await browser.post("/standing/confirmed", asked.fields("/standing/confirmed"))).status == 303
    assert party.ended == ["weekly"]
    none = await browser.post("/standing", {**page.fields("/standing"), "name": "none"})
    assert none.status == 404


async def test_long_lists_have_pages() -> None:
    """Of decided jobs 50 each; a number that is none is the first."""
    party = Given([a_job(state="refused", job=f"job-{number}") for number in range(120)])
    browser = await entered(console(party))
    for asked, wanted in (("", "job-119"), ("?page=1", "job-69"), ("?page=2", "job-19"), ("?page=-1", "job-119")):
        page = await browser.get(f"/{asked}")
        assert page.words.partition("Decided, or open by the policy ")[2].startswith(f"{wanted} refused")
    assert "Further" in (await browser.get("/")).words
    assert "Further" not in (await browser.get("/?page=2")).words


def test_figures_in_words() -> None:
    """Times and texts of any size."""
    assert [duration(seconds) for seconds in (4.4, 90, 5400, math.inf)] == ["4 s", "2 min", "1.5 h", "not known"]
    assert [figure(number) for number in (math.nan, -math.inf, 1e300, 0, -2.0, 0.0123)] == [
        *("nan", "-inf", "1e+300", "0", "-2", "0.0123")
    ]
    assert moment(0) == "1970-01-01 00:00 UTC"
    assert clipped("x" * 605) == "x" * 600 + " … (5 characters more)"
