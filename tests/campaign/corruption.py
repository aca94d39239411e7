"""Damage to one file of one process: the right model and scores come of it, or an error that names what is damaged.

A corruption is drawn from a seed: a stage at which all processes have stopped, a file that one of them has kept, and
what is changed in it. The processes start on the damaged disks; an operator looks at all jobs, and goes on with one.

    python -m tests.campaign corruptions --count 3000
"""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from tests.campaign.checks import logged
from tests.campaign.pools import processes
from tests.oracle import OracleModel
from tests.pivodl import small_job
from tests.replay import HERE, JOB, ORACLE, asked
from tests.simulator import COORDINATOR, Federation, Message, run
from tests.splitnn import small_job as network
from tests.trainings import policies
from tests.worlds import PARTIES, World, assert_oracles_model, assert_oracles_scores
from treetap.coordinator.jobs import Jobs
from treetap.errors import Defect, TreetapError
from treetap.wire.v2 import jobs_pb2, setup_pb2

#: What is done to a file, or to its content.
HOW = ("flip", "digit", "cut", "drop", "double", "swap", "lines", "exchange", "missing")
#: Job → the word of the message at which all processes stop, and how many of it come first; none: it is finished.
STAGES: dict[str, tuple[str, int] | None] = {
    "growing": ("build_histograms", 6),
    "publishing": ("publish", 2),
    "published": None,
    "predicting": ("route_answers", 4),
    "growing from spread labels": ("settle_children", 10),
    "publishing from spread labels": ("publish", 3),
}
if network.INSTALLED:
    STAGES |= {"training a network": ("embedding_gradients", 5), "publishing a network": ("publish", 2)}


@dataclass(frozen=True)
class Corruption:
    """One file, and what is to happen to it; `draw` chooses the places by the seed."""

    seed: int
    stage: str
    path: str  #: below the federation's folder
    how: str


def _of(stage: str) -> tuple[World, setup_pb2.JobSpec, OracleModel]:
    """The world of a stage, its training and the model, of a network none."""
    if stage.endswith("network"):
        return HERE, network.JOB, OracleModel([], 0)
    if stage.endswith("spread labels"):
        return small_job.HERE, small_job.JOB, small_job.ORACLE
    return HERE, JOB, ORACLE


def _federation(folder: Path, stage: str) -> Federation:
    here, job, _ = _of(stage)
    return Federation(folder, here.tables, policies=policies(job))


@dataclass
class Summary:
    """Outcome of corruptions: right outcomes, named errors, and findings."""

    first: int = 0  #: the first seed
    right: int = 0
    named: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


@cache
def stopped(stage: str) -> Path:
    """A folder with the disks of all processes at a stage; it is made once in a process, and deleted with it."""
    folder = Path(tempfile.mkdtemp(prefix=f"treetap-{stage}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    place = STAGES[stage]

    async def main() -> None:
        federation = _federation(folder, stage)
        left = place[1] if place else 0

        def stop(message: Message) -> None:
            nonlocal left
            if place and message.word == place[0] and message.served:
                left -= 1
                if left == 0:
                    for name in (*PARTIES, COORDINATOR):
                        federation.kill(name)

        if stage == "predicting":
            await federation.train(_of(stage)[1])
        federation.hook = stop
        request = asked("new", "interactive")
        task = federation.predict(request) if stage == "predicting" else federation.train(_of(stage)[1])
        try:
            assert (await task).state == "finished"
        except BaseException:
            if left:
                raise
        await federation.close()

    run(main())
    return folder


@cache
def kept(stage: str) -> tuple[str, ...]:
    """The files that processes have kept at a stage, below the federation's folder."""
    folder = stopped(stage)
    places = [folder / party / "state" for party in PARTIES] + [folder / COORDINATOR / "journal"]
    files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    return tuple(str(path.relative_to(folder)) for path in files if path.stat().st_size)


def drawn(seed: int) -> Corruption:
    """The corruption of a seed."""
    chance = random.Random(seed)
    stage = chance.choice(list(STAGES))
    return Corruption(seed, stage, chance.choice(kept(stage)), chance.choice(HOW))


def damage(corruption: Corruption, folder: Path) -> None:
    """Do to the file what is to happen to it."""
    path, chance = folder / corruption.path, random.Random(corruption.seed)
    content = path.read_bytes()
    if corruption.how == "missing":
        path.unlink()
    elif corruption.how == "exchange":  # with another file of the same process
        others = [folder / each for each in kept(corruption.stage) if each != corruption.path]
        others = [each for each in others if each.relative_to(folder).parts[0] == Path(corruption.path).parts[0]]
        other = chance.choice(others or [path])
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    else:
        path.write_bytes(_CHANGES[corruption.how](content, chance))


def _flip(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :]


def _digit(content: bytes, chance: random.Random) -> bytes:
    places = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    if not places:
        return _flip(content, chance)
    place = chance.choice(places)
    other = chance.choice([digit for digit in b"0123456789" if digit != content[place]])
    return content[:place] + bytes([other]) + content[place + 1 :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    return content[: chance.choice([chance.randrange(len(content)), *ends[-2:]])]


def _part(content: bytes, chance: random.Random) -> tuple[int, int]:
    start, end = sorted(chance.sample(range(len(content) + 1), 2))
    return start, end


def _drop(content: bytes, chance: random.Random) -> bytes:
    start, end = _part(content, chance)
    return content[:start] + content[end:]


def _double(content: bytes, chance: random.Random) -> bytes:
    start, end = _part(content, chance)
    return content[:end] + content[start:]


def _swap(content: bytes, chance: random.Random) -> bytes:
    a, b = sorted(chance.sample(range(len(content)), 2))
    return content[:a] + content[b : b + 1] + content[a + 1 : b] + content[a : a + 1] + content[b + 1 :]


def _lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    return b"".join(
        chance.choice(
            [
                [*lines[:a], *lines[a + 1 :]],
                [*lines[: a + 1], *lines[a:]],
                [lines[b] if k == a else lines[a] if k == b else line for k, line in enumerate(lines)],
            ]
        )
    )


_CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": _flip,
    "digit": _digit,
    "cut": _cut,
    "drop": _drop,
    "double": _double,
    "swap": _swap,
    "lines": _lines,
}


def carry_out(corruption: Corruption, folder: Path) -> str:
    """ "right", "named", or what did not hold.

    `folder`: a new one for the disks, which is deleted afterwards.
    """
    source = stopped(corruption.stage)

    async def main() -> str:
        federation = _federation(folder, corruption.stage)
        for name in (*PARTIES, COORDINATOR):
            federation.kill(name)
        for party in PARTIES:
            shutil.copytree(source / party / "state", folder / party / "state", dirs_exist_ok=True)
        shutil.copytree(source / COORDINATOR / "journal", folder / COORDINATOR / "journal", dirs_exist_ok=True)
        damage(corruption, folder)
        try:
            for name in (*PARTIES, COORDINATOR):
                federation.start(name)
            jobs = federation.jobs
            jobs.serve_on()
            jobs.count()
            listed = {status.job: status for status in jobs.status("")}
            if corruption.path.startswith(COORDINATOR) is False and "job" not in listed:
                return f"status lists {sorted(listed)}"
            status = await _go_on(jobs, corruption.stage)
            return _judged(federation, corruption, status)
        except Defect as defect:
            return f"a defect: {defect}"
        except TreetapError as error:
            return _named(corruption, str(error))
        finally:
            await federation.close()

    try:
        found = run(main())
    except Exception as failure:  # noqa: BLE001 - any is a finding
        found = f"{type(failure).__name__}: {failure}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


async def _go_on(jobs: Jobs, stage: str) -> jobs_pb2.JobStatus:
    """Do as an operator would next: resume the job, or predict with the model."""
    job = {"published": "job", "predicting": "new"}.get(stage, "job")
    if stage == "published":
        return await jobs.wait(jobs.submit(asked("after", "interactive")))
    return await jobs.wait(jobs.resume(job))


def _judged(federation: Federation, corruption: Corruption, status: jobs_pb2.JobStatus) -> str:
    if status.state != "finished":
        return _named(corruption, status.error)
    try:
        if corruption.stage.endswith("network"):
            network.assert_network(federation.states)
            return "right"
        assert_oracles_model(federation.states, _of(corruption.stage)[2])
        if status.predictions:
            assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16)
    except TreetapError as error:  # of a file that the job did not need
        return _named(corruption, str(error))
    except AssertionError as failure:
        return f"WRONG: {' '.join(str(failure).split())[:300]}"
    return "right"


def _named(corruption: Corruption, error: str) -> str:
    """An error that says where the damage is: the file, or for what is missing the party or the job."""
    path = Path(corruption.path)
    who = path.parts[0]
    told = path.name in error or path.parent.name in error or who in error
    if corruption.how in ("cut", "drop", "lines", "missing", "exchange"):
        told = told or any(word in error for word in (*PARTIES, "'job'", "'new'", "job new", "job job"))
    if not told or "defect" in error or "object at 0x" in error:
        return f"an error that does not say where: {error!r}"
    return "named"


def carry_out_all(seeds: range, folder: Path) -> Summary:
    """The corruptions of some seeds, in this process, with the disks in new folders below `folder`."""
    summary = Summary()
    for seed in seeds:
        corruption = drawn(seed)
        outcome = carry_out(corruption, folder / str(seed))
        summary.kinds[f"{corruption.stage}, {corruption.how}"] += 1
        summary.right += outcome == "right"
        summary.named += outcome == "named"
        if outcome not in ("right", "named"):
            summary.findings.append(f"{corruption}: {outcome}")
    return summary


def conduct(count: int, workers: int, first: int = 0) -> Summary:
    """The corruptions of `count` seeds from `first` on, on several processes."""
    summary = Summary(first)
    parts = [range(start, min(start + 50, first + count)) for start in range(first, first + count, 50)]
    with processes(workers) as (pool, folder):
        for part in pool.imap_unordered(partial(_quietly, folder=folder), parts):
            summary.right, summary.named = summary.right + part.right, summary.named + part.named
            summary.kinds.update(part.kinds)
            summary.findings += part.findings
    return summary


def _quietly(seeds: range, folder: Path) -> Summary:
    with logged():
        return carry_out_all(seeds, folder)
