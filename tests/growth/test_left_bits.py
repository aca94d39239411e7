"""Left bits of withheld instance spaces: what does not fit ends the attempt, and a stream serves once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.simulator import Federation, failed, finished
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.errors import Conflict, Malformed
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.growth import left_bits, messages
from treetap.party.growth.left_bits import STREAMS, AnsweredBits, ChosenBits
from treetap.party.runtime.job_store import JobStore
from treetap.protocols.key_options import LATTICE
from treetap.psi.group import POINT_BYTES
from treetap.transfers.base import CHOICE_BYTES
from treetap.transfers.extension import message_bytes
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, growth_pb2, types_pb2
from treetap.workers.engines import Engine

LABEL_HOLDER, FEATURE, OTHER = PARTIES
PARAMS = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.1, instance_spaces="withheld")
JOB = spec(PARAMS, scheme=LATTICE)
HERE = world(60, (1, 2, 2), missing=0.1)
N = len(HERE.y)
Change = Callable[[exchange_pb2.PeerMessage], object]


def _first_child(change: Callable[[growth_pb2.Child], object]) -> Change:
    return lambda parcel: change(parcel.growth.children.children[0])


def _flipped(child: growth_pb2.Child, record: int) -> None:
    bits = bytearray(child.left_bits)
    bits[record // 8] ^= 1 << record % 8
    child.left_bits = bytes(bits)


def _as_rows(child: growth_pb2.Child) -> None:
    child.left_bits = b""
    child.left.CopyFrom(types_pb2.RecordChunk(start=0, span=N, bitmap=bytes(8)))


def _cut(name: str, add: int) -> Change:
    """A message's points, or choices, shorter or longer by one byte."""

    def change(parcel: exchange_pb2.PeerMessage) -> None:
        body: Any = parcel.growth.left_choices if name == "choices" else getattr(parcel.setup, name_of(parcel))
        field = "choices" if name == "choices" else "points"
        value = getattr(body, field)
        setattr(body, field, value + b"\0" if add > 0 else value[:-1])

    return change


def _point(parcel: exchange_pb2.PeerMessage, point: bytes) -> None:
    body: Any = getattr(parcel.setup, name_of(parcel))
    body.points = point + body.points[POINT_BYTES:]


#: The neutral element of edwards25519, and a point of order two.
NEUTRAL, ORDER_2 = (number.to_bytes(POINT_BYTES, "little") for number in (1, 2**255 - 20))
#: What a message is changed to, and the end of the attempt.
CHANGED: dict[str, tuple[str, Change, str]] = {
    "a bit of the node": (
        "children",
        _first_child(partial(_flipped, record=0)),
        "the children of node 1 do not have the sums that its owner offered",
    ),
    "a byte of left bits less": (
        "children",
        _first_child(lambda child: setattr(child, "left_bits", child.left_bits[:-1])),
        f"left bits of {N} records have 8 bytes, not 7",
    ),
    "a byte of left bits more": (
        "children",
        _first_child(lambda child: setattr(child, "left_bits", child.left_bits + b"\0")),
        f"left bits of {N} records have 8 bytes, not 9",
    ),
    "records in their place": ("children", _first_child(_as_rows), f"left bits of {N} records have 8 bytes, not 0"),
    "another node's left bits": (
        "children",
        _first_child(lambda child: setattr(child, "node", 7)),
        "sent children of nodes [7], expected [1]",
    ),
    "a node twice under two handles": (
        "children",
        lambda parcel: parcel.growth.children.children.add(node=1, handle=99),
        "two handles for the split of node 1",
    ),
    "a byte of choices less": (
        "left_choices",
        _cut("choices", -1),
        f"{message_bytes(N) - 1} bytes of choices for node 1 of tree 0, not {message_bytes(N)}",
    ),
    "a byte of choices more": (
        "left_choices",
        _cut("choices", 1),
        f"{message_bytes(N) + 1} bytes of choices for node 1 of tree 0, not {message_bytes(N)}",
    ),
    "another node's choices": (
        "left_choices",
        lambda parcel: setattr(parcel.growth.left_choices, "node", 2),
        f"0 bytes of choices for node 1 of tree 0, not {message_bytes(N)}",
    ),
    "a point cut short": ("base_points", _cut("points", -1), "take 32 bytes of points, not 31"),
    "points cut short": ("base_choices", _cut("points", -1), f"take {CHOICE_BYTES} bytes of points, not "),
    "the neutral point": ("base_points", partial(_point, point=NEUTRAL), "is not of prime order"),
    "a point of order two": ("base_choices", partial(_point, point=ORDER_2), "is not of prime order"),
}


@pytest.mark.parametrize("case", CHANGED)
async def test_a_changed_message_ends_the_attempt(case: str, tmp_path: Path) -> None:
    """By what it is, and before a tree is stored; another process than the honest one has sent it."""
    kind, change, fault = CHANGED[case]
    met: list[str] = []

    def forge(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == kind and parcel.stage == 0 and not met:
            met.append(kind)
            change(parcel)

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = forge
    failed(await federation.train(JOB), fault)
    assert met


async def test_bits_outside_of_the_node_do_not_matter(tmp_path: Path) -> None:
    """The control of the first row above: of records that are elsewhere every bit is changed, and nothing differs."""
    grown = HERE.oracle(PARAMS)
    changed: list[int] = []

    def forge(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "children":
            for child in parcel.growth.children.children:
                inside = set(HERE.members(grown[parcel.round])[child.node].tolist())
                for record in set(range(N)) - inside:
                    _flipped(child, record)
                    changed.append(record)

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = forge
    finished(await federation.train(JOB))
    assert changed
    assert_oracles_model(federation.states, grown)


async def test_choices_that_do_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner waits no longer than for any message, and names it."""

    async def silent(*_: Any) -> None:
        return None

    monkeypatch.setattr(ChosenBits, "choose", silent)
    status = await Federation(tmp_path, HERE.tables).train(JOB)
    assert status.state == "interrupted"
    assert f"{FEATURE}: waited 20 s for left_choices of {LABEL_HOLDER}, in vain" in status.error


async def test_a_job_that_sends_spaces_takes_no_choices(tmp_path: Path) -> None:
    """Neither base transfers nor choices are among its messages."""
    federation = Federation(tmp_path, HERE.tables)
    finished(await federation.train(spec(replace(PARAMS, instance_spaces="sent"), scheme=LATTICE)))
    assert not {"base_points", "base_choices", "left_choices"} & {message.word for message in federation.log}


# ---- both parties of a pair, without a federation


@dataclass
class Wire:
    """Messages of one direction, as an outbox takes them and a mailbox gives them; `on_send` is called before each."""

    sent: dict[str, list[exchange_pb2.PeerMessage]] = field(default_factory=dict)
    on_send: Callable[[], object] = lambda: None

    def put(self, kind: str, body: Any) -> None:
        self.on_send()
        message = exchange_pb2.PeerMessage()
        getattr(message.growth if kind in ("left_choices", "children") else message.setup, kind).CopyFrom(body)
        self.sent.setdefault(kind, []).append(message)

    async def series(self, kind: str) -> Any:
        for message in self.sent.pop(kind):
            yield message


class Party:
    """A context's tools, as far as left bits need them."""

    def __init__(self, name: str, folder: Path, out: Wire, into: Wire, attempt: int = 1) -> None:
        self.party, self.job, self.attempt = name, "job", attempt
        self.engine, self.recorder = Engine(2), SimpleNamespace(on=False)
        self.store = JobStore(folder / name / "job", folder / name / "model")
        self.store.claim("nonce", "0" * 64)
        self.outbox = self.mailbox = self
        self._out, self._into = out, into

    async def offload(self, work: Callable[[], Any], **_: Any) -> Any:
        return work()

    def open(self, _: str, kind: str, *__: int) -> Any:
        async def put(body: Any) -> None:
            self._out.put(kind, body)

        async def close() -> None:
            return None

        return SimpleNamespace(put=put, close=close)

    async def send(self, _: str, kind: str, bodies: Any) -> None:
        for body in bodies:
            self._out.put(kind, body)

    async def send_each(self, kind: str, bodies: Any) -> None:
        for own in bodies.values():
            await self.send("", kind, own)

    async def only(self, _: str, kind: str) -> Any:
        (message,) = self._into.sent.pop(kind)
        return getattr(message.setup, kind)


class Pair:
    """A label holder and a feature party that have made their base transfers."""

    def __init__(self, folder: Path, attempt: int = 1) -> None:
        self.to_feature, self.to_holder = Wire(), Wire()
        holder: Any = Party(LABEL_HOLDER, folder, self.to_feature, self.to_holder, attempt)
        feature: Any = Party(FEATURE, folder, self.to_holder, self.to_feature, attempt)
        self.holder, self.feature = ChosenBits(holder, [FEATURE]), AnsweredBits(feature, LABEL_HOLDER)
        self.holder_context = holder

    async def agree(self) -> Pair:
        """The label holder sends first, and waits for the feature party."""
        only = self.holder_context.only

        async def after_the_other(sender: str, kind: str) -> Any:
            await self.feature.agree()
            return await only(sender, kind)

        self.holder_context.only = after_the_other
        await self.holder.agree()
        return self

    async def choose(self, t: int, won: dict[int, Any], total: int) -> None:
        growing: Any = SimpleNamespace(rows=won)
        choices: Any = [SimpleNamespace(node=node) for node in won]
        await self.holder.choose(t, 0, growing, {FEATURE: choices}, {FEATURE: PartnerRecords(total)})

    async def transferred(self, t: int, won: dict[int, Any], left: dict[int, Any], total: int) -> dict[int, list[int]]:
        """The left records of each node at the label holder."""
        await self.choose(t, won, total)
        choices, rows = self.to_feature.series("left_choices"), {}
        for node in won:
            reply = await self.feature.answer(choices, t, node, left[node], total)
            (body,) = messages.child_messages([(node, 0, reply)], total)
            rows[node] = self.holder.opened(t, 0, node, body.body.children).tolist()  # type: ignore[attr-defined]
        return rows


@pytest.mark.parametrize("total", [1, 63, 64, 65, 1000])
async def test_the_label_holder_gets_the_nodes_left_records(
    total: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several nodes one after the other, in messages of a bounded size."""
    monkeypatch.setattr(left_bits, "SUMS_BYTES", 1000)
    monkeypatch.setattr(messages, "SUMS_BYTES", 1000)
    rng, pair = np.random.default_rng(total), await Pair(tmp_path).agree()
    nodes = {node: (rng.random(total) < 0.4, rng.random(total) < 0.5) for node in (2, 3, 5)}
    won = {node: np.flatnonzero(inside) for node, (inside, _) in nodes.items()}
    left = {node: np.flatnonzero(goes) for node, (_, goes) in nodes.items()}
    got = await pair.transferred(7, won, left, total)
    assert got == {node: np.flatnonzero(inside & goes).tolist() for node, (inside, goes) in nodes.items()}


async def test_a_stream_is_noted_before_its_first_byte(tmp_path: Path) -> None:
    """All of a stage in one line, which is on disk when the first message goes."""
    pair = await Pair(tmp_path).agree()
    file = tmp_path / LABEL_HOLDER / "job" / STREAMS
    lines: list[int] = []
    pair.to_feature.on_send = lambda: lines.append(file.read_bytes().count(b"\n"))
    await pair.choose(0, {2: np.arange(3), 3: np.arange(3, 9)}, 10)
    await pair.choose(1, {2: np.arange(3)}, 10)
    assert lines == [1, 1, 2]


@pytest.mark.parametrize("again", ["in one process", "after a start"])
async def test_an_equal_stream_with_another_membership_is_refused(again: str, tmp_path: Path) -> None:
    """In the process that used it and in one that starts again in the same attempt; another attempt may have it."""
    pair = await Pair(tmp_path).agree()
    await pair.choose(0, {2: np.arange(3), 3: np.arange(3, 9)}, 10)
    sent = len(pair.to_feature.sent["left_choices"])
    if again == "after a start":
        pair = await Pair(tmp_path).agree()
        sent = 0
    with pytest.raises(Conflict, match="tree 0, node 3: its left bits were transferred before in this attempt"):
        await pair.choose(0, {3: np.arange(4, 10), 7: np.arange(2)}, 10)
    assert len(pair.to_feature.sent.get("left_choices", [])) == sent
    await (await Pair(tmp_path, attempt=2).agree()).choose(0, {3: np.arange(4, 10)}, 10)


async def test_choices_of_another_length_are_not_answered(tmp_path: Path) -> None:
    """Those for other records than the owner has; nothing is sent."""
    pair = await Pair(tmp_path).agree()
    await pair.choose(0, {1: np.arange(3)}, 65)
    with pytest.raises(Malformed, match=re.escape(f"{message_bytes(65)} bytes of choices for node 1 of tree 0")):
        await pair.feature.answer(pair.to_feature.series("left_choices"), 0, 1, np.arange(2), 64)
