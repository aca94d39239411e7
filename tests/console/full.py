"""A party with something in every view of its console, for pictures of the pages and checks in a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from tests.console.asking import Given, a_job, console
from treetap.ops.console.listening import MOST_FIELD
from treetap.ops.console.server import Console
from treetap.ops.gateway.http_connections import HttpListener, Waiting, awaits_requests
from treetap.wire.v2 import approvals_pb2, overview_pb2

#: Seconds since 1970 of all that is shown.
NOW = 1_795_824_000.0
DAY = 86_400.0
WORDS = [
    '• bank will receive what the training needs of your 12 columns in table "loans".',
    "• In an audit of such a job without a defence the label holder read 53 % of the cells, to the range that each is "
    "in (breast cancer, twenty trees); yours may tell more or less.",
    "• It differs from job credit-6, which you approved last of this kind for bank, in the settings below.",
    "    n_estimators = 20  # was 10",
    "Operator risk-team has signed job credit-7; coordinator coordinator conducts it.",
    'bank wants to train trees (boosting) on table "loans" with telco, insurer.',
    "– in 20 rounds",
    "– to depth 4",
    "You send bank:",
    "– sums over the records left of a split candidate, and their number",
    "  – over groups of any size, also of one",
    "At least 500 records must be common.",
]
DOCUMENT = '{"protocol": "boosting", "table": "loans", "aggregator": "bank", "parameters": {"n_estimators": 20}}'


def full() -> Given:
    """What the party answers."""
    until = NOW + 30 * DAY
    verdict = approvals_pb2.Verdict(decision="approved", approver="ben", way="command", since=NOW - DAY, until=until)
    refused = approvals_pb2.Verdict(
        decision="refused", approver="ann", way="command", since=NOW, until=NOW, why="no contract"
    )
    about = {"kind": "train", "coordinator": "coordinator", "operator": "risk-team", "fingerprint": "5f0c" * 16}
    jobs = [
        a_job(job="credit-5", digest=b"\x05" * 32, state="refused", since=NOW - DAY, decisions=[refused], **about),
        a_job(job="credit-6", digest=b"\x06" * 32, state="approved", since=NOW - DAY, decisions=[verdict], **about),
        a_job(job="credit-7", digest=b"\x07" * 32, since=NOW - 900, words=WORDS, document=DOCUMENT, **about),
    ]
    weekly = approvals_pb2.StandingApproval(name="weekly", approver="ben", count=12, used=3, until=NOW + 200 * DAY)
    view, partners = overview_pb2.View(at=NOW), ("bank", "insurer", "coordinator")
    view.running.add(
        job="credit-6",
        attempt=2,
        kind="train",
        protocol="boosting",
        table="loans",
        coordinator="coordinator",
        parties=["bank", "insurer"],
        step="build_histograms",
        done=7,
        rounds=20,
        seconds=412.0,
        seconds_left=724.0,
        bytes_sent=48_200_000,
    )
    for sent, peer, name, size in (
        (True, "bank", "CANDIDATE_SUM", 36_400_000),
        (True, "bank", "CONTROL", 121_000),
        (True, "insurer", "SPLIT_DIRECTION", 264_000),
        (False, "bank", "CIPHERTEXT", 91_300_000),
        (False, "bank", "INSTANCE_SPACE", 412_000),
        (False, "coordinator", "CONTROL", 64_000),
    ):
        view.exchanged.add(sent=sent, peer=peer, disclosure=name, bytes=size)
    view.limits.add(limit="jobs_per_day", of="bank", unit="in 24 hours", most=4, spent=2)
    view.limits.add(limit="column_budget", of="columns of table loans", unit="ε", most=4.0, spent=1.5)
    view.limits.add(limit="label_budget", of="labels", unit="ε", spent=0.5)
    view.ledger.add(at=NOW, kind="training", amount=1, table="loans", partners=partners, job="credit-6", attempt=2)
    view.ledger.add(at=NOW, kind="records", amount=8123, table="loans", partners=partners, job="credit-6", attempt=2)
    view.models.add(model="credit-4", protocol="boosting", role="feature_party", trees=20, published=NOW - 9 * DAY)
    fault = "its manifest cannot be read: bring a back-up of it back"
    view.models.add(model="credit-3", published=NOW - 30 * DAY, fault=fault)
    view.certificates.add(what="own", subject="CN=telco", ends=NOW + 21 * DAY)
    view.certificates.add(what="authority", subject="CN=treetap authority", ends=NOW + 900 * DAY)
    view.transcripts.add(job="credit-4", bytes=12_400_000, changed=NOW - 9 * DAY, reports=["audit.html"])
    return Given(jobs, [weekly], view)


@contextmanager
def listening(party: Given) -> Iterator[tuple[str, Console]]:
    """The address of a console over a socket, in a thread of its own."""
    made = console(party)
    made.application.middlewares.insert(0, awaits_requests)
    loop, ready = asyncio.new_event_loop(), threading.Event()
    address: list[str] = []

    async def listen() -> web.AppRunner:
        runner = web.AppRunner(made.application, access_log=None)
        await runner.setup()
        listener = HttpListener(runner, "127.0.0.1", 0, None, None, Waiting(64), MOST_FIELD)
        await listener.start()
        address.append(f"http://127.0.0.1:{listener.port}")
        return runner

    def serve() -> None:
        runner = loop.run_until_complete(listen())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait(30)
    try:
        yield address[0], made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
