"""Every process ended, or its power cut, at its every file operation of a training: plans without chance."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.disk import CRASHES
from tests.campaign.plans import Plan
from tests.campaign.rig import Rig
from tests.campaign.stages import stage
from tests.simulator import COORDINATOR, run
from tests.worlds import PARTIES


def operations() -> dict[str, int]:
    """The number of file operations of each process in a training without faults."""

    async def main(folder: Path) -> dict[str, int]:
        rig = Rig(folder, Plan(0, "boosting", "train"))
        with rig.active():
            rig.begin()
            assert (await rig.federation.train(stage("boosting").job)).state == "finished"
            await rig.federation.close()
        return {name: rig.disks.of[name].operations for name in (*PARTIES, COORDINATOR)}

    with tempfile.TemporaryDirectory() as folder, ciphers(KeysMade(), transparent=True):
        return run(main(Path(folder)))


def points(count: int) -> Iterator[Plan]:
    """`count` plans with one crash each, spread evenly over all processes, operations and ways to crash."""
    every = [(who, at, how) for who, most in operations().items() for at in range(most) for how in CRASHES]
    for number in range(count):
        who, at, how = every[number * len(every) // count]
        fault = {"kind": "disk", "who": who, "at": at, "how": how, "for_s": 0.0, "back_s": (0.0, 30.0)[number % 2]}
        yield Plan(number, "boosting", "train", record=number % 5 == 0, faults=(fault,))
