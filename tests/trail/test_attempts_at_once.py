"""Attempts that overlap, and those whose exchange has not ended: which heads are held, and which are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from party.runtime.context import StepContext
from party.runtime.ledger import Ledger
from party.runtime.metrics import PartyMetrics
from party.trail.exchange import Exchange
from party.trail.journal import Kind, Trail
from tests.simulator import run
from treetap.errors import DataError, Malformed
from treetap.wire.tls import Insecure
from treetap.wire.v2.setup_pb2 import TrailHead
from treetap.wire.v2.types_pb2 import Signed

BANK, TELCO = "bank", "telco"
EARLIER, LATER = (TrailHead(head=bytes([n]) * 32, signed=Signed(unix_nanos=n * 10**9)) for n in (1, 2))


class Post:
    """Stands for outbox and mailbox: keeps what is sent, and has one head of the partner."""

    def __init__(self, head: TrailHead | None) -> None:
        self.sent: list[TrailHead] = []
        self.timeouts = SimpleNamespace(silence_s=60.0)
        self._head = head

    async def send(self, _to: str, _kind: str, items: list[TrailHead], _round: int) -> None:
        self.sent += items

    async def only_if_sent(self, _sender: str, _kind: str, _round: int) -> TrailHead:
        return await self.only()

    async def only(self, *_: Any) -> TrailHead:
        if self._head is None:
            await asyncio.Event().wait()
        return cast(TrailHead, self._head)


def own(work: Coroutine[Any, Any, None], _what: str) -> asyncio.Task[None]:
    return asyncio.ensure_future(work)


def begun(folder: Path) -> Trail:
    trail = Trail(BANK, folder)
    trail.begin(Ledger(folder).head(), {})
    return trail


def attempt(trail: Trail, head: TrailHead | None = LATER, job: str = "credit") -> tuple[Exchange, Post]:
    """The exchange of an attempt that opens now."""
    post = Post(head)
    context = SimpleNamespace(job=job, attempt=1, party=BANK, outbox=post, mailbox=post, metrics=PartyMetrics(BANK))
    return Exchange(trail, cast(StepContext, context), [TELCO], Insecure(BANK), own), post


def came(trail: Trail, kind: Kind) -> list[dict[str, Any]]:
    return [line["came"] for line, _ in trail.lines() if line["kind"] == kind]


def test_a_head_that_was_signed_before_one_of_a_later_attempt_is_not_held(tmp_path: Path) -> None:
    """It stays in the trail; else its signer would hear of an older head than before, and take this party for older."""

    async def main() -> None:
        trail = begun(tmp_path)
        (slow, _), (fast, _) = attempt(trail), attempt(trail, job="scores")
        trail.note(Kind.HEADS, came={TELCO: fast._checked(TELCO, LATER) | {"held": ""}})
        row = slow._checked(TELCO, EARLIER)
        assert row["late"]
        trail.note(Kind.LEFT, came={TELCO: row})
        for reader in (trail, Trail(BANK, tmp_path)):
            assert reader.held(TELCO).head == LATER.head.hex()
        alone, _ = attempt(trail)
        assert "late" not in alone._checked(TELCO, EARLIER)  # its clock was set back

    run(main())


def test_what_a_partner_holds_is_compared_with_what_it_said_before_the_attempt(tmp_path: Path) -> None:
    """An attempt that ends first may bring a later head of it: that is no older state."""

    async def main() -> None:
        trail = begun(tmp_path)
        first = trail.head
        trail.note(Kind.ENDED, job="credit", attempt=1)
        slow, _ = attempt(trail)
        head = {"head": LATER.head.hex(), "signed": ""}
        trail.note(Kind.HEADS, came={TELCO: head | {"held": trail.head}})
        row: dict[str, Any] = head | {"held": first}
        slow._compare(TELCO, row)
        assert "older" not in row
        stated = trail.held(TELCO).stated
        trail.note(Kind.HEADS, came={TELCO: row})
        assert trail.held(TELCO).stated == stated
        later, _ = attempt(trail)
        later._compare(TELCO, row)
        assert row["older"] == stated
        ((_, labels, times),) = later._context.metrics.samples("treetap_trail_faults_total")
        assert (labels, times) == ({"peer": TELCO, "fault": "peer's state"}, 1)

    run(main())


def test_no_last_head_goes_or_comes_without_the_exchange_at_the_opening(tmp_path: Path) -> None:
    """A coordinator that asks for an account after a failed exchange lays no older head in place of a newer one."""

    async def main() -> None:
        trail = begun(tmp_path)
        exchange, post = attempt(trail)
        await exchange.end()
        assert post.sent == []
        await exchange.leave(discard=False)
        assert came(trail, Kind.LEFT) == [{}]
        assert trail.held(TELCO).head == ""

    run(main())


def test_a_last_head_that_comes_in_part_holds_no_job_up(tmp_path: Path) -> None:
    """The trail names the partner."""

    async def main() -> None:
        trail = begun(tmp_path)
        exchange, _ = attempt(trail, None)
        exchange._noted = True
        before = asyncio.get_running_loop().time()
        await exchange.leave(discard=False)
        assert asyncio.get_running_loop().time() - before < 5
        (line,) = [line for line, _ in trail.lines() if line["kind"] == Kind.LEFT]
        assert line["missing"] == [TELCO]
        assert "did not come within 3 s" in line["faults"][TELCO]

    run(main())


def test_heads_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    """By partner and kind: one without its form, and one of this party's trail that it lacks."""

    async def main() -> None:
        exchange, _ = attempt(begun(tmp_path))
        with pytest.raises(Malformed, match="it has 5 bytes"):
            exchange._checked(TELCO, TrailHead(head=b"short"))
        with pytest.raises(DataError, match="an older state was brought back"):
            exchange._check_held(TELCO, LATER)
        samples = exchange._context.metrics.samples("treetap_trail_faults_total")
        assert {labels["fault"]: times for _, labels, times in samples} == {"unsound": 1, "own state": 1}

    run(main())
