"""A process that is suspended: the process that needs it next stops within the agreed silence, and names it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.replay import HERE, JOB, ORACLE, faultless
from tests.simulator import COORDINATOR, Federation, Message, run
from tests.worlds import PARTIES, assert_oracles_model

pytestmark = pytest.mark.second_tier

SILENCE_S = 20.0
#: Seconds after the silence within which the job has ended: the coordinator has all parties leave it.
NAMED_S = 5.0


def _freeze_and_thaw(folder: Path, victim: str, number: int, served: bool) -> None:
    async def main() -> None:
        federation = Federation(folder, HERE.tables, silence_s=SILENCE_S)
        frozen_at: list[float] = []

        def freeze(message: Message) -> None:
            if (message.number, message.served) == (number, served) and not frozen_at:
                frozen_at.append(asyncio.get_running_loop().time())
                federation.freeze(victim)

        federation.hook = freeze
        status = await federation.train(JOB)
        took = asyncio.get_running_loop().time() - frozen_at[0]
        assert status.state == "interrupted"
        assert victim in status.error
        assert took <= SILENCE_S + NAMED_S
        federation.freeze(victim, thaw=True)
        if number % 3:
            return
        for _ in range(3):  # what was under way at the thaw may cost an attempt
            if status.state != "finished":
                status = await federation.resume()
        assert status.state == "finished", status.error
        assert_oracles_model(federation.states, ORACLE)

    run(main())


def _first_of_each_kind(folder: Path) -> list[tuple[str, Message]]:
    """The first message of each kind between two processes, and a party at either end of it."""
    found: dict[str, Message] = {}
    for message in faultless(folder):
        found.setdefault(message.word, message)
    return [
        (victim, message)
        for message in found.values()
        for victim in (message.sender, message.to)
        if victim != COORDINATOR and message.word != "leave"
    ]


def test_a_suspended_party_is_named_within_the_silence(tmp_path: Path) -> None:
    """At every kind of message; in turn before it arrives, and when it has been served but not answered."""
    cases = _first_of_each_kind(tmp_path / "faultless")
    assert {victim for victim, _ in cases} == set(PARTIES[:2])
    for place, (victim, message) in enumerate(cases):
        try:
            _freeze_and_thaw(tmp_path / str(place), victim, message.number, served=place % 2 == 1)
        except BaseException as failure:
            failure.add_note(f"{victim} is frozen at {message}")
            raise
