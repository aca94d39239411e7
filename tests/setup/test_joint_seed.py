"""The seed that all parties draw: no nonce is opened early, no commitment is copied, and every nonce counts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from treetap.errors import Malformed
from treetap.lattice.histogram_scheme import NONCE_BYTES, commitment
from treetap.party.runtime.context import Outbox, StepContext
from treetap.party.setup.steps import draw_joint_seed
from treetap.process.together import together

pytestmark = pytest.mark.real_time

NAMES = ("a", "b", "c")
Change = Callable[[str, str, str, Any], Any]


class Wire:
    """Messages between parties; `change` may alter them, `held` has kinds and receivers that wait."""

    def __init__(self, change: Change | None = None) -> None:
        self.sent: list[tuple[str, str, str]] = []
        self._change = change or (lambda kind, sender, to, content: content)
        self._boxes: dict[tuple[str, str, str], asyncio.Future[Any]] = {}
        self.held: dict[tuple[str, str], asyncio.Event] = {}

    def box(self, kind: str, sender: str, to: str) -> asyncio.Future[Any]:
        """What a party has got, or will get, from another."""
        return self._boxes.setdefault((kind, sender, to), asyncio.get_running_loop().create_future())

    async def send(self, kind: str, sender: str, to: str, content: Any) -> None:
        """Deliver a message, later if it is held."""
        self.sent.append((kind, sender, to))
        if (kind, to) in self.held:
            await self.held[kind, to].wait()
        self.box(kind, sender, to).set_result(self._change(kind, sender, to, content))


class Party:
    """As much of a party's context as a seed takes."""

    job, attempt = "job", 1

    def __init__(self, wire: Wire, name: str) -> None:
        self.party, self._wire = name, wire
        self.outbox = self.mailbox = self
        self._sending: list[asyncio.Task[None]] = []

    send_each = Outbox.send_each

    async def send(self, to: str, kind: str, contents: Sequence[Any], *_: int) -> None:
        (content,) = contents
        self._sending.append(asyncio.ensure_future(self._wire.send(kind, self.party, to, content)))

    async def only(self, sender: str, kind: str) -> Any:
        return await self._wire.box(kind, sender, self.party)


def drawn(wire: Wire, names: Sequence[str] = NAMES) -> list[asyncio.Task[bytes]]:
    """Parties that draw a seed."""
    parties = [cast(StepContext, Party(wire, name)) for name in names]
    return [asyncio.ensure_future(draw_joint_seed(party, NAMES)) for party in parties]


async def settled() -> None:
    """All that can be done is done."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_no_nonce_is_opened_before_all_commitments_have_come() -> None:
    """One party's commitments are late: the others have none of each other's nonces until then."""
    wire = Wire()
    wire.held["seed_commitment", "a"] = late = asyncio.Event()
    first, *others = drawn(wire, ("a", "b", "c"))
    await settled()
    assert ("seed_nonce", "b", "a") in wire.sent
    assert not any((kind, sender) == ("seed_nonce", "a") for kind, sender, _ in wire.sent)
    late.set()
    seeds = await together(first, *others)
    assert len(set(seeds)) == 1
    assert len(seeds[0]) == 32


@pytest.mark.parametrize("who", NAMES)
def test_each_partys_nonce_changes_the_seed(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one honest party's makes it uniform; the others' are fixed here."""

    async def main(number: int) -> bytes:
        nonces = {name: bytes([place + 1]) * NONCE_BYTES for place, name in enumerate(NAMES)}
        nonces[who] = bytes([number]) * NONCE_BYTES
        to_come = iter(nonces.values())
        monkeypatch.setattr(secrets, "token_bytes", lambda _: next(to_come))
        seeds = await together(*drawn(Wire()))
        assert len(set(seeds)) == 1
        return seeds[0]

    assert len({asyncio.run(main(number)) for number in (7, 8, 9)}) == 3


async def test_another_partys_commitment_is_none_of_ones_own() -> None:
    """A party that sends on what it has got, commitment and nonce, is refused: its name is in the commitment."""
    seen: dict[str, Any] = {}

    def copied(kind: str, sender: str, to: str, content: Any) -> Any:
        if (sender, to) == ("b", "a"):
            seen[kind] = content
        return seen[kind] if (sender, to) == ("c", "a") else content

    wire = Wire(copied)
    a, *others = drawn(wire)
    with pytest.raises(Malformed, match="the nonce of c is not the one that it has committed to"):
        await a
    for other in others:
        await other
    assert commitment("b", bytes(32)) != commitment("c", bytes(32))
