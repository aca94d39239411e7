"""Tables read again under a served model: clients are answered all the while, by an attempt beside the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.replay import HERE
from tests.serving.served import EXACT, IDS, LABEL_HOLDER, WAYS, B, ask, phase, tolerance, without
from tests.serving.test_new_records import serving as looking_up
from tests.simulator import Federation, Message, failed
from tests.worlds import PARTIES
from treetap.coordinator.serving import REREAD_S, RETRY_S
from treetap.errors import Refused, TreetapError
from treetap.names import ALL
from treetap.party.config import ServeConfig, seconds_of
from treetap.protocols.limits import Partner
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import control_pb2, serving_pb2, setup_pb2

#: Records that the label holder's table lacks until it is written anew.
LATE = IDS[3:]
SHORT = without(HERE.tables, LABEL_HOLDER, LATE)


def serving(folder: Path, asked: dict[str, Any], **changes: Any) -> Any:
    """A federation that serves a table without these records, and looks nothing up."""
    return looking_up(folder, SHORT, {}, None, {"look_up": False, **asked}, **changes)


def write(federation: Federation, content: bytes | None = None) -> None:
    """Write the label holder's whole table; `content`: of another file."""
    path = federation.folder / LABEL_HOLDER / "predict.parquet"
    pq.write_table(HERE.tables[LABEL_HOLDER][1]["predict"], path)
    if content is not None:
        path.write_bytes(content)


@asynccontextmanager
async def asked_all_the_while(federation: Federation, every_s: float = 0.5) -> AsyncIterator[list[float]]:
    """While the block runs a client asks about one record again and again; yields the scores."""
    scores: list[float] = []

    async def client() -> None:
        while True:
            scores.append((await ask(federation, IDS[0])).predictions[0].scores[0])
            await asyncio.sleep(every_s)

    asking = asyncio.ensure_future(client())
    yield scores
    assert not asking.done(), asking
    asking.cancel()


async def knows(federation: Federation, wanted: bool) -> bool:
    """True if it is answered, or not, about a record that the table lacked."""
    (answer,) = (await ask(federation, LATE[0])).predictions
    return wanted == (answer.status == serving_pb2.PREDICTED)


def sessions(federation: Federation) -> list[tuple[int, int]]:
    """Of each party the attempts that serve: the newest, and the one before; 0: none."""
    nodes = [federation.node(party) for party in PARTIES]
    held = [(node._sessions.get("s"), node._before.get("s")) for node in nodes]
    return [tuple(it.context.attempt if it else 0 for it in pair) for pair in held]  # type: ignore[misc]


@pytest.mark.parametrize("way", ["interactive", pytest.param("eini-lattice", marks=pytest.mark.second_tier)])
@pytest.mark.parametrize("refresh", ["", pytest.param("30s", marks=pytest.mark.second_tier)])
async def test_no_request_is_refused_meanwhile(way: str, refresh: str, tmp_path: Path) -> None:
    """Each is answered, before by the old table and then by the new one; the old attempt is left everywhere."""
    async with (
        serving(tmp_path, WAYS[way], refresh=refresh) as federation,
        asked_all_the_while(federation) as scores,
    ):
        assert await knows(federation, False)
        await asyncio.sleep(REREAD_S)
        write(federation)
        federation.node(LABEL_HOLDER).served_models.rereads += not refresh
        async with asyncio.timeout(90):
            while await knows(federation, False):
                await asyncio.sleep(1)
                assert federation.jobs.status("s")[0].phase == "serve"
        await asyncio.sleep(5)
        assert sessions(federation) == [(2, 0)] * 3
        assert scores == pytest.approx([EXACT[0]] * len(scores), abs=tolerance(way))
        assert len(scores) > 20


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("table", "predict.parquet: is not readable"),
        ("model", B),
        ("limit", "the records_per_day of its policy are used"),
    ],
)
async def test_what_cannot_be_read_leaves_the_old_table_served(fault: str, says: str, tmp_path: Path) -> None:
    """A table, or what a party keeps of the model, which fails before a session is there; records beyond a day's limit.

    The status says why; once it is mended it is read at the next try, without another signal.
    """
    async with serving(tmp_path, WAYS["interactive"]) as federation, asked_all_the_while(federation, every_s=3):
        await asyncio.sleep(REREAD_S)
        model, hidden = federation.state(B) / "models" / "job", tmp_path / "hidden"
        if fault == "table":
            write(federation, b"no table")
        else:
            write(federation)
        if fault == "model":
            model.rename(hidden)
        if fault == "limit":
            policy = federation.policy(B)
            limited = policy.model_copy(update={"partners": {ALL: Partner(records_per_day=1)}})
            federation.node(B).go_by(federation.configs[B].under(limited))
        federation.node(LABEL_HOLDER).served_models.rereads += 1
        await asyncio.sleep(RETRY_S + 20)  # twice
        (status,) = federation.jobs.status("s")
        assert status.state == "running"
        assert status.error.startswith("the tables are not read again, and those before stay served: ")
        assert says in status.error
        assert await knows(federation, False)
        assert sessions(federation) == [(1, 0)] * 3
        write(federation)
        if fault == "model":
            hidden.rename(model)
        if fault == "limit":
            federation.node(B).go_by(federation.configs[B].under(policy))
        await asyncio.sleep(RETRY_S + 10)
        assert await knows(federation, True)
        assert sessions(federation) == [(4, 0)] * 3
        assert not federation.jobs.status("s")[0].error


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("ends", ["cancel", "kill", "close"])
async def test_an_end_amid_it_ends_both(ends: str, tmp_path: Path) -> None:
    """A cancelled job is nowhere; a party that is killed interrupts both attempts, and the next one serves."""
    asked = {**WAYS["interactive"], "away_policy": "retry", "away_deadline_s": 30.0}
    async with serving(tmp_path, asked) as federation:
        await asyncio.sleep(REREAD_S)
        begun = asyncio.Event()

        def look(message: Message) -> None:
            if (message.word, message.sender) == ("block_ids", B) or message.word.startswith("raise"):
                begun.set()

        federation.hook = look
        write(federation)
        federation.node(LABEL_HOLDER).served_models.rereads += 1
        async with asyncio.timeout(30):
            await begun.wait()
        federation.hook = None
        assert sessions(federation) == [(2, 1)] * 3
        if ends == "cancel":
            assert (await federation.jobs.cancel("s")).state == "cancelled"
            assert sessions(federation) == [(0, 0)] * 3
            with pytest.raises(TreetapError):
                await ask(federation, IDS[0])
        if ends == "kill":
            federation.kill(B)
            federation.restart(B)
            async with asyncio.timeout(90):
                while sessions(federation) != [(3, 0)] * 3:
                    await asyncio.sleep(0.5)
            assert (await phase(federation, "s", "serve")).state == "running"
            await asyncio.sleep(1)
            assert await knows(federation, True)


async def test_a_policy_that_refuses_it_ends_the_old_one_too(tmp_path: Path) -> None:
    """Whoever takes its word back is not served on."""
    async with serving(tmp_path, WAYS["interactive"]) as federation:
        await asyncio.sleep(REREAD_S)
        policy = federation.policy(B)
        people = policy.people.model_copy(update={"coordinators": ["another"]})
        federation.node(B).go_by(federation.configs[B].under(policy.model_copy(update={"people": people})))
        federation.node(LABEL_HOLDER).served_models.rereads += 1
        await asyncio.sleep(10)
        failed(federation.jobs.status("s")[0], "is not a coordinator that feature-b obeys")
        assert sessions(federation) == [(0, 0)] * 3


async def test_late_and_foreign_leaves_end_nothing_else(tmp_path: Path) -> None:
    """Of an attempt that was not opened here; of another coordinator; a copy that comes after both."""
    async with serving(tmp_path, WAYS["interactive"]) as federation:
        node, (status,) = federation.node(B), federation.jobs.status("s")
        opened = [it for when, to, it in federation.conducted if (when, to, name_of(it)) == ("begin", B, "open_model")]
        submission = opened[-1].prediction.open_model.prediction

        async def leave(attempt: int, *, alone: bool = False, caller: str = "coordinator") -> None:
            request = filled(
                control_pb2.StepRequest(job="s", attempt=attempt),
                "leave",
                setup_pb2.Leave(submission=submission, alone=alone),
            )
            async for _ in node.step(caller, request):
                pass

        assert status.attempt == 1
        await leave(2, alone=True)
        assert sessions(federation) == [(1, 0)] * 3
        with pytest.raises(Refused):
            await leave(1, caller="stranger")
        assert sessions(federation) == [(1, 0)] * 3
        assert await knows(federation, False)


@pytest.mark.parametrize(("span", "seconds"), [("", 0), ("30s", 30), ("5m", 300), ("12h", 43_200)])
def test_a_span_is_a_number_with_its_unit(span: str, seconds: int) -> None:
    """Anything else is refused where it is written."""
    assert seconds_of(ServeConfig(clients=["app"], listen="127.0.0.1:0", refresh=span).refresh) == seconds
    for wrong in ("5", "0m", "m", "5 m", "1d"):
        with pytest.raises(ValueError, match="refresh"):
            ServeConfig(clients=["app"], listen="127.0.0.1:0", refresh=wrong)
