"""One schedule carried out: the story under its faults, then every checker."""

from __future__ import annotations

import asyncio
import gc
import shutil
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.campaign import checks, defended, stages, stories
from tests.campaign.checks import Findings
from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.label_draws import Used, label_draws
from tests.campaign.noised_sums import noised_sums
from tests.campaign.plans import Plan
from tests.campaign.rig import SILENCE_S, Rig
from tests.pivodl.small_job import nonces
from tests.simulator import run
from treetap.party.node import SESSION_S


@dataclass(frozen=True)
class Outcome:
    """Outcome of a schedule.

    Attributes:
        findings: what did not hold; none in a good product.
        hits: faults that happened, but for those of the network as a whole.
        killed: processes that ended by a fault.
        virtual_s: seconds that passed in the simulation.
        cpu_s: processor seconds that it took.
    """

    findings: list[str]
    hits: int
    killed: int
    virtual_s: float
    cpu_s: float


def carry_out(plan: Plan, folder: Path) -> Outcome:
    """Run a plan with its processes' disks in a new folder, which is removed."""
    begun = time.process_time()
    found, made, labels = Findings(), KeysMade(), Used()
    if not plan.stage.startswith("pivodl"):
        stages.after_training(plan.stage)  # with which accounts are compared
    stages.lay_out(folder, plan.stage, trained=stories.needs_a_model(plan.story))
    before = checks.descriptors()
    numbers = {"hits": 0, "killed": 0, "virtual": 0.0}

    async def main() -> None:
        rig = Rig(folder, plan)
        with rig.active():
            rig.begin()
            try:
                await stories.STORIES[plan.story](rig, found)
                await _leave_nothing(rig, made, found)
                here, states = stages.stage(plan.stage), rig.federation.states
                found.extend(defended.faults_of_draws(states, labels, here, rig.hits))
                found.extend(sums.found(here, states, rig.hits))
            finally:
                numbers.update(hits=rig.hits, killed=rig.killed, virtual=asyncio.get_running_loop().time())
                await _close(rig, found)

    draws = plan.asked.get("draws", plan.seed)
    with (
        checks.logged() as log,
        ciphers(made, transparent=not plan.real),
        nonces(draws),
        label_draws(labels),
        noised_sums(draws) as sums,
    ):
        try:
            run(main())
        except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 - any is a finding
            where = "".join(traceback.format_exception(failure)[-3:]).strip()
            found.append(f"{type(failure).__name__}: {failure}\n{where}")
        if checks.descriptors() > before:
            gc.collect()  # of killed processes, whose files the system would have closed
    found += log.faults
    found.expect(checks.descriptors() <= before, f"{checks.descriptors() - before} descriptors stay open")
    forms = [form.decode("latin-1") for form in made.forms()]
    found.expect(not any(form in line for line in log.lines for form in forms), "a secret key is in a log")
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        list(found), int(numbers["hits"]), int(numbers["killed"]), numbers["virtual"], time.process_time() - begun
    )


async def _leave_nothing(rig: Rig, made: KeysMade, found: Findings) -> None:
    await asyncio.sleep(1.0)
    if any(rig.federation.node(party)._sessions for party in rig.federation.configs):
        await asyncio.sleep(SESSION_S + SILENCE_S)  # a party that never heard the end forgets the job by itself
    checks.memory(rig.federation, rig.engines, found)
    rig.start_again_where_deletions_were_refused()
    checks.files(rig.federation, found)
    if rig.plan.story == "train":
        checks.noise(rig.weights, found)
    checks.keys([rig.federation.folder], made.forms(), found)
    checks.transcripts(rig.federation, found)


async def _close(rig: Rig, found: Findings) -> None:
    await rig.federation.close()
    await asyncio.sleep(0)
    mine = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not mine]
    found.expect(not left, f"tasks are left: {[str(task.get_coro())[:120] for task in left]}")
    checks.errors(found)
