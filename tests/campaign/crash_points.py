"""Every process ended, or its power cut, at its every file operation of a training: plans without chance.

The trainings are five with a label holder, of which two defend its labels and two hide more, one with labels of all
parties, and one of a network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.disk import CRASHES
from tests.campaign.label_draws import Used, label_draws
from tests.campaign.noised_sums import noised_sums
from tests.campaign.plans import Plan
from tests.campaign.rig import Rig
from tests.campaign.stages import playable, stage
from tests.pivodl.small_job import nonces
from tests.simulator import COORDINATOR, run
from tests.worlds import PARTIES

HIDDEN = ("boosting-hidden", "boosting-private")
STAGES = ("boosting", "boosting-withheld", *HIDDEN, "forest-noisy", "pivodl-noise", "splitnn")


def operations(name: str) -> dict[str, int]:
    """The number of file operations of each process in a training on a stage without faults."""

    async def main(folder: Path) -> dict[str, int]:
        rig = Rig(folder, Plan(0, name, "train"))
        with rig.active():
            rig.begin()
            assert (await rig.federation.train(stage(name).job)).state == "finished"
            await rig.federation.close()
        return {who: rig.disks.of[who].operations for who in (*PARTIES, COORDINATOR, *stage(name).dealers)}

    with (
        tempfile.TemporaryDirectory() as folder,
        ciphers(KeysMade(), transparent=True),
        nonces(0),
        label_draws(Used()),
        noised_sums(),
    ):
        return run(main(Path(folder)))


def points(count: int, names: tuple[str, ...] = STAGES) -> Iterator[Plan]:
    """`count` plans with one crash each, spread evenly over all processes, operations and ways to crash."""
    every = [
        (name, who, at, how)
        for name in filter(playable, names)
        for who, most in operations(name).items()
        for at in range(most)
        for how in CRASHES
    ]
    for number in range(count):
        name, who, at, how = every[number * len(every) // count]
        fault = {"kind": "disk", "who": who, "at": at, "how": how, "for_s": 0.0, "back_s": (0.0, 30.0)[number % 2]}
        yield Plan(number, name, "train", {"draws": 0}, record=number % 5 == 0, faults=(fault,))
