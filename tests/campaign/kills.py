"""Every process killed at every message of a training, started again, the job resumed: plans without chance.

Whoever sends or receives a message is killed before it arrives, and again after it was served but not answered;
everybody else before it arrives. Every second time the process is back at once, so that its peers meet a process that
knows nothing of the job; every other time it stays away until they have given up. (`tests/runtime/test_kill_and_resume`
does a share of it with boosting, and watches besides when models show.)
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.noised_sums import noised_sums
from tests.campaign.plans import Plan
from tests.campaign.rig import Rig
from tests.campaign.stages import playable, stage
from tests.pivodl.small_job import nonces
from tests.simulator import COORDINATOR, Message, run
from tests.worlds import PARTIES

#: Trainings by PIVODL, by boosting, by boosting on the records that private set intersection finds or with left bits or
#: sums that nobody opens, and of a network.
STAGES = ("pivodl", "boosting", "boosting-psi", "boosting-hidden", "boosting-private", "splitnn")
#: Virtual seconds after which everybody who waited for a dead process has given up.
AWAY_S = 200.0
#: One plan of so many uses the real ciphers.
_REAL_EVERY = 10


def messages(name: str = STAGES[0]) -> list[Message]:
    """Every message of a training on a stage without faults."""

    async def main(folder: Path) -> list[Message]:
        rig = Rig(folder, _plan(0, name, PARTIES[0], -1, served=False))
        with rig.active():
            assert (await rig.federation.train(stage(name).job)).state == "finished"
            await rig.federation.close()
        return rig.federation.log

    with tempfile.TemporaryDirectory() as folder, ciphers(KeysMade(), transparent=True), nonces(0), noised_sums():
        return run(main(Path(folder)))


@cache
def kills(names: tuple[str, ...]) -> tuple[Plan, ...]:
    """One plan for each stage, process, message, and moment of it."""
    moments = [
        (name, who, message.number, served)
        for name in filter(playable, names)
        for message in messages(name)
        for who in (*PARTIES, COORDINATOR, *stage(name).dealers)
        for served in ((False, True) if who in (message.sender, message.to) else (False,))
    ]
    return tuple(_plan(number, *moment) for number, moment in enumerate(moments))


def sample(count: int, names: tuple[str, ...] = STAGES[:1]) -> list[Plan]:
    """`count` of these plans, spread evenly over all; 0: all."""
    every = kills(names)
    return [every[number * len(every) // count] for number in range(count)] if count else list(every)


def _plan(number: int, name: str, who: str, at: int, served: bool) -> Plan:
    """One kill. The draws of parties are always those of one seed, or the messages would be others."""
    back_s = 0.0 if (at + served) % 2 == 0 else AWAY_S
    fault = {"kind": "kill", "who": who, "at": at, "served": served, "back_s": back_s}
    real, record = number % _REAL_EVERY == 0, number % 5 == 0
    return Plan(number, name, "train", {"draws": 0}, real=real, record=record, faults=(fault,))
