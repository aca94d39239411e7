"""A console at a party of a federation: jobs shown, approved and refused, and what goes on to their end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the console needs the extra console")

from tests.approvals.people import ANN, BEN, LABEL_HOLDER, MANUAL, B, begin, certify, the_one, waiting
from tests.campaign.small_jobs import play, wrong
from tests.console.asking import Browser, Near, console, entered
from tests.simulator import COORDINATOR, Federation
from treetap.errors import BadInput, Refused
from treetap.ops.console.pages import VIEWS
from treetap.ops.console.server import Decision, confirmation
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import overview_pb2

PATHS = ("/", *(f"/{view}" for view in VIEWS))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    return certify(tmp_path_factory.mktemp("certificates"))


async def _opened(federation: Federation, approver: str) -> Browser:
    return await entered(console(Near(federation.node(B), approver), approver=approver, party=B))


async def _asks_again(browser: Browser, path: str, **given: str) -> tuple[str, dict[str, str]]:
    """What the page that asks again says, and its form, after a decision on a job's page."""
    page = await browser.get(path)
    forms = [page.fields("/decision"), {}]
    asked = await browser.post("/decision", {**forms[0], **given})
    assert asked.status == 200, asked.words
    return asked.words, asked.fields("/decision/confirmed")


async def test_a_job_is_approved_on_a_page_and_seen_to_its_end(
    tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """Every view has what the party has: of an empty one, of a waiting, a running and a finished job."""

    federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
    federation.faults.delay_s = 0.5  # else a job takes no time
    ann = await _opened(federation, ANN)
    for path in PATHS:
        assert (page := await ann.get(path)).status == 200, page.words
    playing = asyncio.ensure_future(play(federation, "boosting"))
    await waiting(federation, "job", B)
    asked = the_one(federation, B)
    listed = await ann.get("/")
    assert asked.words[0].removeprefix("• ") in listed.words
    path = f"/jobs/job/{asked.digest}"
    assert path in listed.text
    page = await ann.get(path)
    assert all(" ".join(sentence.removeprefix("• ").split()) in page.words for sentence in asked.words)
    assert "&#34;parameters&#34;: {\n" in page.text
    assert "  &#34;n_estimators&#34;: 2" in page.text
    said, form = await _asks_again(ann, path, days="7")
    assert "Approve job job for 7 days?" in said
    assert federation.node(B).approvals.state(the_one(federation, B)) == "waiting"
    done = await ann.post("/decision/confirmed", form)
    assert (done.status, done.headers["Location"]) == (303, path)
    assert "approved by ann (command) on" in (await ann.get(path)).words
    running = ""
    async with asyncio.timeout(600):
        while " of 2 trees" not in running or "not known yet" in running:
            running = (await ann.get("/running")).words
            assert not playing.done(), "no page showed how long the job takes"
            await asyncio.sleep(0.5)
    assert f"job, attempt 2 train (boosting) train {LABEL_HOLDER}" in running
    assert (await playing).state == "finished"
    assert wrong(federation, "boosting") == ""
    assert "No job is under way." in (await ann.get("/running")).words
    exchanged = (await ann.get("/exchanged")).words
    left, _, came = exchanged.partition("What came in")
    assert f"{LABEL_HOLDER} CANDIDATE_SUM" in left or f"{LABEL_HOLDER} CIPHERTEXT" in left
    assert f"{COORDINATOR} CONTROL" in came
    assert f"{LABEL_HOLDER} INSTANCE_SPACE" in came
    ledger = (await ann.get("/ledger")).words
    assert f"training 1 train {LABEL_HOLDER}" in ledger
    assert "job, 2" in ledger
    assert "boosting feature party" in (await ann.get("/models")).words
    assert "feature-b" in (await ann.get("/certificates")).words
    assert "job " in (await ann.get("/transcripts")).words


async def test_the_second_of_two_approvers_hears_what_the_first_decided(
    tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """Neither the page that asks again nor its answer decides once another has; a refusal has its reason."""

    federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
    playing = asyncio.ensure_future(play(federation, "boosting"))
    await waiting(federation, "job", B)
    path = f"/jobs/job/{the_one(federation, B).digest}"
    ann, ben = await _opened(federation, ANN), await _opened(federation, BEN)
    before = (await ann.get(path)).fields("/decision")
    _, late = await _asks_again(ann, path)
    said, form = await _asks_again(ben, path, decision="refuse", why="no contract <b>yet</b>")
    assert "Refuse job job ?" in said
    assert "Reason: no contract <b>yet</b>" in said
    assert (await ben.post("/decision/confirmed", form)).status == 303
    for place, fields in (("/decision/confirmed", late), ("/decision", before)):
        told = await ann.post(place, fields)
        assert told.status == 409
        assert "Somebody has decided since this page was made, and you have not: refused by ben" in told.words
        assert "no contract <b>yet</b>" in told.words
        assert "<b>yet" not in told.text
    (verdict,) = the_one(federation, B).verdicts
    assert (verdict.approver, verdict.decision) == (BEN, "refused")
    assert (await playing).state == "failed"


async def test_another_job_than_was_shown_is_not_approved(tmp_path: Path, certificates: dict[str, TlsFiles]) -> None:
    """The digest that was shown is what the party is asked about; it answers that the job is another one.

    So does a console whose page did not ask about it.
    """

    federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
    playing = asyncio.ensure_future(play(federation, "boosting"))
    await waiting(federation, "job", B)
    ann = await _opened(federation, ANN)
    _, form = await _asks_again(ann, f"/jobs/job/{the_one(federation, B).digest}")
    changed = form | {"sha256": "0" * 64}
    unasked = await ann.post("/decision/confirmed", changed)
    assert (unasked.status, "No page has asked about this" in unasked.words) == (403, True)
    changed["shown"] = confirmation(form["form"], Decision(changed).fields)
    for place in ("/decision", "/decision/confirmed"):
        told = await ann.post(place, changed)
        assert (told.status, "This is another job than was shown" in told.words) == (409, True)
    assert "job job is not the one that was shown (digest 000000000000" in told.words
    assert federation.node(B).approvals.state(the_one(federation, B)) == "waiting"
    playing.cancel()


async def test_only_the_policys_approvers_are_shown_anything(tmp_path: Path, certificates: dict[str, TlsFiles]) -> None:
    """Another approver's certificate is refused every page; so is everybody once the policy names nobody."""
    federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
    overview, carl = federation.node(B).overview, await _opened(federation, "carl")
    for path in PATHS:
        page = await carl.get(path)
        assert (page.status, "carl is no approver of feature-b" in page.words) == (403, True)
    with pytest.raises(BadInput, match="there is no such view; did you mean 'models'"):
        await overview.show(ANN, overview_pb2.AskedView(view="model"))
    config = federation.node(B).config
    federation.node(B).go_by(config.under(config.policy.with_lines({"people": {"approval": "none", "approvers": []}})))
    with pytest.raises(Refused, match="ann is no approver"):
        await overview.show(ANN, overview_pb2.AskedView(view="running"))
